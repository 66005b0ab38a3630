"""The kernel functions of a text of OpenCL C and its own names, as far as it can be read without a compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.study.includes import without_comments

_DEFINE = re.compile(r"^[^\S\n]*#[^\S\n]*define[^\S\n]+(\w+)", re.MULTILINE)
_KERNEL = re.compile(r"kernel\b[^;{}]{0,300}?\bvoid\s+(\w+)\s*\(")
_DIRECTIVE = re.compile(r"^[^\S\n]*#[^\n]*", re.MULTILINE)
_ASSIGNED = re.compile(r"\b(\w++)\s*+=(?!=)")
_QUALIFIED = r"(?:const|volatile|restrict|static|inline|extern|(?:__)?(?:global|local|constant|private|kernel))\b"
_NUMBER = r"(?:void|bool|size_t|unsigned|signed|half|float|double|u?(?:char|short|int|long))\d{0,2}\b"
_DECLARED = re.compile(
    rf"\b(?:{_NUMBER}(?=(?:[\s*]|{_QUALIFIED})++(\w++)\s*+[;,=(){{}}:[])"
    rf"|(?!return\b|case\b|else\b|do\b|sizeof\b|{_QUALIFIED})[A-Za-z_]\w*+(?=\s++(\w++)\s*+[;,=(){{}}:[]))"
)
_ENUM = re.compile(r"\benum\b[^{};]{0,100}\{([^{}]*)\}")
_ARGUMENT = re.compile(r"\b(\w++)\s*+[,)]")


def macros_of(source: str) -> set[str]:
    """Return the names that a text `#define`s, wherever it does."""
    return set(_DEFINE.findall(without_comments(source)))


def names_declared(source: str) -> set[str]:
    """Return the names that a text gives to variables, members, functions and the like: a few more or less of them."""
    text = _DIRECTIVE.sub("", without_comments(source))
    found = set(_ASSIGNED.findall(text)).union(*_DECLARED.findall(text), *(names for _, names in kernels_of(source)))
    return found.union(*(re.findall(r"(?:^|,)\s*(\w+)", listed) for listed in _ENUM.findall(text)))


def kernels_of(source: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each kernel's name and the words that may be its arguments' names: theirs are among them."""
    macros, plain = macros_of(source), without_comments(source)
    for found in _KERNEL.finditer(plain):
        header = re.split("[{;]", plain[found.end() : found.end() + 4000], maxsplit=1)[0]
        if found[1] in macros:  # void NAME(op, T)(arguments): it puts a name together
            header = re.split(r"\)\s*\(", header, maxsplit=1)[-1]
        yield found[1], set(_ARGUMENT.findall(_to_closing(header)))


def _to_closing(text: str) -> str:
    """The beginning of a text up to the parenthesis that closes one before it: behind it another header may stand, of
    another branch of an #if.
    """
    depth = 1
    for found in re.finditer("[()]", text):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return text[: found.end()]
    return text
