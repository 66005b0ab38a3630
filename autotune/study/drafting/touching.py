"""What OpenCL's own functions read and write in a kernel's arguments, and the components of vectors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.study.drafting.findings import Pointer
from autotune.study.drafting.syntax import is_type
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.trees import Tree

_UNDERSTOOD = re.compile(
    r"(read|write)_image|get_image|atom|v(load|store)|async_work_group(_strided)?_copy|prefetch|wait_group"
)

_FRACTION = re.compile(r"((?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?)[fFhH]?")
"""A number with a point; `##` may have joined a suffix to it."""


def is_understood(name: str) -> bool:
    """Whether an OpenCL function is one that `touched` knows, or that uses no arguments' memory."""
    return _UNDERSTOOD.match(name) is not None


def touched(
    name: str, given: Sequence[Any], widths: Mapping[str, str]
) -> Iterator[tuple[Pointer, Sum | tuple[Sum, ...] | None, str]]:
    """Yield each use of memory by an OpenCL function: a pointer, the last place counted from it, and the kind of use.

    The place is a tuple of coordinates for an image, None if it is not known. `widths`: see vectors.py.
    """
    pointers = [each for each in given if isinstance(each, Pointer)]
    if found := re.fullmatch(r"(read|write)_image\w+", name):
        places = next((each for each in given[1:] if type(each) is tuple), None)
        alone = next((each for each in given[1:] if isinstance(each, Sum)), None)
        index = places if places is not None else () if alone is None else (alone,)
        if pointers and all(isinstance(each, Sum) for each in index):
            yield pointers[0], tuple(index), found[1]
    elif (kind := atomic_kind(name)) and pointers:
        yield pointers[0], Sum(), kind
    elif (found := re.fullmatch(r"v(load|store)a?(?:_half)?(2|3|4|8|16)?(?:_\w+)?", name)) and pointers:
        width = Sum.of(widths.get(name) or int(found[2] or 1))
        at = next(iter(given[found[1] == "store" :]), None)  # after the stored value
        last = at * width + width - 1 if isinstance(at, Sum) else None
        yield pointers[0], last, "read" if found[1] == "load" else "write"
    elif name.startswith("async_work_group") and len(pointers) == 2:
        count = given[2] if len(given) > 2 and isinstance(given[2], Sum) and given[2].known else Sum.of(1)
        yield pointers[0], count - 1, "write"
        yield pointers[1], count - 1, "read"


def atomic_kind(name: str) -> str:
    """Return how an atomic function uses its pointer: `read`, `write`, `both`; empty for other functions."""
    found = re.fullmatch(r"atom(?:ic)?_(?:(load)|(store|init|flag_clear))?\w*", name)
    return "" if found is None else "read" if found[1] else "write" if found[2] else "both"


def addressed(tree: Tree = ("",)) -> Tree | None:
    """Return the element or member whose address is taken, `x[i]` in `(global uint *)&x[i]`; None for others."""
    if tree[0] == "cast":
        return addressed(tree[2])
    return tree[2] if tree[:2] == ("unary", "&") and tree[2][0] != "name" else None


def beside_fraction(left: Tree, right: Tree) -> Tree | None:
    """Return the operand beside a fraction of a pixel, `x` in `x + 0.5f`, which is the same pixel; or None."""
    return left if _is_fraction(right) else right if _is_fraction(left) else None


def _is_fraction(tree: Tree) -> bool:
    if tree[0] == "vector":
        return all(map(_is_fraction, tree[1:]))
    told = _FRACTION.fullmatch(tree[1]) if tree[0] == "number" else None
    return told is not None and 0 < float(told[1]) < 1


def components(type_name: str) -> tuple[str, int]:
    """Return the type of a vector's components and their number; an empty type if it is not a type of OpenCL."""
    name = type_name.strip().removeprefix("const ").strip()
    if not is_type(name):
        return "", 1
    found = re.fullmatch(r"([a-z_]*[a-z])(\d+)", name)
    return (found[1], int(found[2])) if found else (name, 1)


def bytes_of(type_name: str) -> int:
    """Return the bytes of one element of a type; 0 if it is not a type of OpenCL."""
    of, count = components(type_name)
    size = {"char": 1, "short": 2, "half": 2, "int": 4, "float": 4, "long": 8, "double": 8}.get(of.removeprefix("u"), 0)
    return size * (4 if count == 3 else count)
