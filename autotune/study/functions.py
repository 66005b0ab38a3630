"""Finds the kernel functions and declared names in OpenCL C, as far as that is possible without a compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.study.includes import without_comments

_DEFINE = re.compile(r"^[^\S\n]*#[^\S\n]*define[^\S\n]+(\w+)", re.MULTILINE)
_KERNEL = re.compile(r"kernel\b[^;{}]{0,300}?\bvoid\s+(\w+)\s*\(")
_DIRECTIVE = re.compile(r"^[^\S\n]*#[^\n]*", re.MULTILINE)
_CONDITION = re.compile(r"^[^\S\n]*#[^\S\n]*(?:el)?if\b((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_COMPARED = re.compile(r"\b([A-Za-z_]\w*+)\s*[=!]=\s*(?=([A-Za-z_]\w*+)(?!\s*\())")
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
    """Return the names that a text `#define`s anywhere."""
    return set(_DEFINE.findall(without_comments(source)))


def names_compared(source: str) -> set[tuple[str, str]]:
    """Return the pairs of names that an `#if` of a text compares, `A == B` or `A != B`, each in both orders."""
    found = {pair for text in _CONDITION.findall(without_comments(source)) for pair in _COMPARED.findall(text)}
    return found | {(two, one) for one, two in found}


def names_declared(source: str) -> set[str]:
    """Return the names of variables, members, functions and the like in a text: a few may be missing or too many."""
    text = _DIRECTIVE.sub("", without_comments(source))
    found = set(_ASSIGNED.findall(text)).union(*_DECLARED.findall(text), *(names for _, names in kernels_of(source)))
    return found.union(*(re.findall(r"(?:^|,)\s*(\w+)", listed) for listed in _ENUM.findall(text)))


def kernels_of(source: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each kernel's name, and a set of words that includes the names of its arguments."""
    macros, plain = macros_of(source), without_comments(source)
    for found in _KERNEL.finditer(plain):
        header = re.split("[{;]", plain[found.end() : found.end() + 4000], maxsplit=1)[0]
        if found[1] in macros:  # void NAME(op, T)(arguments): a macro makes the name
            header = re.split(r"\)\s*\(", header, maxsplit=1)[-1]
        yield found[1], set(_ARGUMENT.findall(_to_closing(header)))


def _to_closing(text: str) -> str:
    """Return a text up to the parenthesis that closes one opened before it.

    After it, the header in another branch of an `#if` may follow.
    """
    depth = 1
    for found in re.finditer("[()]", text):
        depth += 1 if found[0] == "(" else -1
        if not depth:
            return text[: found.end()]
    return text
