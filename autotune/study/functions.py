"""The kernel functions of a text of OpenCL C, as far as it can be read without a compiler."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.study.includes import without_comments

_DEFINE = re.compile(r"^[^\S\n]*#[^\S\n]*define[^\S\n]+(\w+)", re.MULTILINE)
_KERNEL = re.compile(r"kernel\b[^;{}]{0,300}?\bvoid\s+(\w+)\s*\(")
_ASSIGNED = re.compile(r"\b(\w++)\s*+=(?!=)")
_ARGUMENT = re.compile(r"\b(\w++)\s*+[,)]")


def macros_of(source: str) -> set[str]:
    """Return the names that a text `#define`s, wherever it does."""
    return set(_DEFINE.findall(without_comments(source)))


def variables_of(source: str) -> set[str]:
    """Return the names of a text's own: what it assigns to, and what its kernels' arguments may be called."""
    return set(_ASSIGNED.findall(without_comments(source))).union(*(names for _, names in kernels_of(source)))


def kernels_of(source: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each kernel's name and the words that may be its arguments' names: theirs are among them."""
    macros, plain = macros_of(source), without_comments(source)
    for found in _KERNEL.finditer(plain):
        header = re.split("[{;]", plain[found.end() : found.end() + 4000], maxsplit=1)[0]
        if found[1] in macros:  # void NAME(op, T)(arguments): it puts a name together
            header = re.split(r"\)\s*\(", header, maxsplit=1)[-1]
        yield found[1], set(_ARGUMENT.findall(header))
