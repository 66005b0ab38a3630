"""Structs as C lays them out: from a study's `[structs]` to a NumPy type, and to the numbers that lie in it.

A struct is passed on as its text, `struct Particle { float4 position; int tag[4]; }`, including the structs nested in
it, so that a plan needs nothing else. OpenCL C lays it out as C does: a member starts at a multiple of its alignment (a
vector's alignment is its size; three components take the room of four), and the size is a multiple of the largest
alignment. A `packed` struct has no room between its members; the size of an `aligned(32)` struct is a multiple of 32.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from autotune.errors import StudyError, placed
from autotune.study.types import SCALAR_TYPES, is_plain, numpy_type, scalar_type
from autotune.text import did_you_mean

MAX_BYTES = 2**20
"""Of one struct."""

MAX_MEMBERS = 128
"""Of one struct, including those of nested structs: each is compared by a launch of its own."""

_MEMBER = re.compile(r"\s*([\w{}]+(?:\s+\w+)?)\s+(\w+)\s*((?:\[\s*\d{1,9}\s*\]\s*)*);?\s*")
_ATTRIBUTE = re.compile(r"\s*(?:packed|aligned\s*\(\s*(\d{1,5})\s*\))\s*")
_TOKEN = re.compile(r"\s*(\w+|[{}\[\];])")
_DEEPEST = 8
_ALIGNMENTS = [2**power for power in range(13)]


class Leaf(NamedTuple):
    """Numbers of one type in an element: an innermost member of a struct, or the whole of a plain type.

    `axes` are the extents and strides in bytes within the element; `path` are the members, outermost first.
    """

    path: tuple[str, ...]
    scalar: str
    offset: int
    axes: tuple[tuple[int, int], ...]

    @property
    def label(self) -> str:
        """What follows the buffer's name in messages."""
        return "".join(f".{part}" for part in self.path)


class _Layout(NamedTuple):
    name: str
    dtype: np.dtype[Any]
    alignment: int
    leaves: tuple[Leaf, ...]


def is_struct(text: str) -> bool:
    """Whether a type's text is that of a struct."""
    return text.startswith("struct ")


def struct_name(text: str) -> str:
    """Return the name of a struct, and any other type unchanged."""
    return text.split(" ", 2)[1] if is_struct(text) else text


def struct_dtype(text: str) -> np.dtype[Any]:
    """Return the NumPy type of a struct, with C's offsets. Raises StudyError."""
    return _layout(text).dtype


@cache
def leaves(text: str) -> tuple[Leaf, ...]:
    """Return the leaves of one element of a type, struct or not; a vector of three has three numbers."""
    if is_struct(text):
        return _layout(text).leaves
    _, scalar, width = scalar_type(text)
    size = np.dtype(SCALAR_TYPES[scalar]).itemsize
    return (Leaf((), scalar, 0, ((width, size),) if width > 1 else ()),)


def offsets(text: str) -> dict[str, int]:
    """Return where the members of a struct start, in bytes."""
    fields: Mapping[str, Any] = _layout(text).dtype.fields or {}
    return {name: int(where) for name, (_, where, *_) in fields.items()}


def astride(text: str) -> Leaf | None:
    """Return a leaf whose numbers lie at no multiple of their size, where no device reads them at once; or None."""
    if not is_struct(text):
        return None
    size, sizes = struct_dtype(text).itemsize, {name: np.dtype(kind).itemsize for name, kind in SCALAR_TYPES.items()}
    placed = ((leaf, (size, leaf.offset, *(step for _, step in leaf.axes))) for leaf in leaves(text))
    return next((leaf for leaf, places in placed if any(place % sizes[leaf.scalar] for place in places)), None)


def struct_texts(tables: Mapping[str, Sequence[str]], choices: Mapping[str, Any]) -> dict[str, str]:
    """Return the text of each struct in a study's `[structs]`: name -> members, as C writes them. Raises StudyError.

    A member's type is one of OpenCL's, a choice (`{T}4`) or a struct declared before.
    """
    texts: dict[str, str] = {}
    for name, members in tables.items():
        where = f"structs.{name}"
        if is_plain(name):
            raise StudyError(f"{name!r} is already an OpenCL type", where=where, hint="choose another name")
        later = [other for other in tables if other not in texts]
        numbered = [*enumerate(members, 1)]
        attributes = [_attribute(text, f"{where}.{n}") for n, text in numbered if _ATTRIBUTE.fullmatch(text)]
        plain = [(n, text) for n, text in numbered if not _ATTRIBUTE.fullmatch(text)]
        if not plain:
            raise StudyError("has no members", where=where, hint='write "float4 position" or "int tag[4]"')
        parts = [_member(text, texts, choices, f"{where}.{n}", later) for n, text in plain]
        if twice := [called for called, count in Counter(called for _, called in parts).items() if count > 1]:
            raise StudyError(f"has {twice[0]!r} twice", where=where)
        texts[name] = f"struct {' '.join([name, *attributes])} {{ {' '.join(text for text, _ in parts)} }}"
        if not re.search(r"\{\w+\}", texts[name]):
            with placed(where):
                _layout(texts[name])
    return texts


def _attribute(text: str, where: str) -> str:
    """Return a layout attribute as it is written in a struct's text. Raises StudyError."""
    found = _ATTRIBUTE.fullmatch(text)
    if found is None or found[1] is None:
        return "packed"
    if int(found[1]) not in _ALIGNMENTS:
        raise StudyError(f"{text!r}: no power of two up to {_ALIGNMENTS[-1]}", where=where, hint='write "aligned(16)"')
    return f"aligned {int(found[1])}"


def _member(
    text: str, known: Mapping[str, str], choices: Mapping[str, Any], where: str, later: Sequence[str]
) -> tuple[str, str]:
    found = _MEMBER.fullmatch(text)
    if found is None:
        raise StudyError(f"{text!r:.80} is not a member", where=where, hint='write "float4 position" or "int tag[4]"')
    kind, name, dimensions = found[1].removeprefix("struct ").strip(), found[2], re.sub(r"\s", "", found[3])
    if kind in choices:
        kind = f"{{{kind}}}"
    elif kind in known:
        kind = known[kind]
    elif kind in later:
        hint = "order [structs] so that each comes before those that hold it"
        raise StudyError(f"the struct {kind} is not defined before it", where=where, hint=hint)
    elif not re.search(r"\{\w+\}", kind):
        if not is_plain(kind) and did_you_mean(kind, known):
            raise StudyError(f"no struct {kind!r} before it{did_you_mean(kind, known)}", where=where)
        with placed(where):
            scalar_type(kind)
    return f"{kind} {name}{dimensions};", name


@cache
def _layout(text: str) -> _Layout:
    tokens = _TOKEN.findall(text)
    found, rest = _parse(tokens, 0, 0)
    if rest != len(tokens):
        raise StudyError(f"not a struct: {text:.80}")
    if len(found.leaves) > MAX_MEMBERS:
        raise StudyError(f"{found.name} has more than {MAX_MEMBERS} members, nested ones included")
    return found


def _parse(tokens: Sequence[str], at: int, depth: int) -> tuple[_Layout, int]:
    """Read `struct NAME { ... }` and return its layout, and the index of the token after it."""
    opened = tokens.index("{", at) if "{" in tokens[at:] else at
    if depth > _DEEPEST or tokens[at : at + 1] != ["struct"] or opened < at + 2:
        raise StudyError("not a struct" if depth <= _DEEPEST else f"structs nested more than {_DEEPEST} deep")
    name, attributes, at = tokens[at + 1], tokens[at + 2 : opened], opened + 1
    packed = "packed" in attributes
    end, alignment = 0, max([int(word) for word in attributes if word.isdigit()], default=1)
    names: list[str] = []
    formats: list[Any] = []
    starts: list[int] = []
    inside: list[Leaf] = []
    while tokens[at] != "}":
        if tokens[at] == "struct":
            member, at = _parse(tokens, at, depth + 1)
        else:
            member, at = _plain(tokens[at]), at + 1
        called, at = tokens[at], at + 1
        dimensions: list[int] = []
        while tokens[at] == "[":
            dimensions.append(int(tokens[at + 1]))
            at += 3
        at += 1  # ;
        start = end if packed else round_up(end, member.alignment)
        size = member.dtype.itemsize * _count(dimensions, called)
        end, alignment = start + size, alignment if packed else max(alignment, member.alignment)
        if end > MAX_BYTES:
            raise StudyError(f"{name} takes more than {MAX_BYTES} bytes")
        names.append(called)
        formats.append((member.dtype, tuple(dimensions)) if dimensions else member.dtype)
        starts.append(start)
        inside += _placed(member, called, start, dimensions)
    size = round_up(end, alignment)
    dtype = np.dtype({"names": names, "formats": formats, "offsets": starts, "itemsize": size})
    return _Layout(name, dtype, alignment, tuple(inside)), at + 1


def _plain(text: str) -> _Layout:
    dtype, stored = numpy_type(text)
    whole = np.dtype((dtype, (stored,))) if stored > 1 else dtype
    return _Layout(text, whole, whole.itemsize, leaves(text))


def _placed(member: _Layout, name: str, start: int, dimensions: Sequence[int]) -> Iterator[Leaf]:
    """Yield the leaves of a member, with paths and offsets within its struct."""
    axes: list[tuple[int, int]] = []
    step = member.dtype.itemsize
    for extent in reversed(dimensions):
        axes.insert(0, (extent, step))
        step *= extent
    for leaf in member.leaves:
        yield Leaf((name, *leaf.path), leaf.scalar, start + leaf.offset, (*axes, *leaf.axes))


def _count(dimensions: Sequence[int], name: str) -> int:
    count = 1
    for extent in dimensions:
        if not 1 <= extent <= MAX_BYTES:
            raise StudyError(f"{name} has an extent of {extent}")
        count *= extent
    return count


def round_up(value: int, multiple: int) -> int:
    """Return the least multiple of `multiple` that is not below the value."""
    return -(-value // multiple) * multiple


# -- NumPy's records ------------------------------------------------------------------------------


def member_of(record: np.ndarray[Any, Any], leaf: Leaf) -> np.ndarray[Any, Any]:
    """Return the numbers of a leaf in an array of elements, without the padding of a vector of three."""
    found = record
    for name in leaf.path:
        found = found[name]
    if leaf.axes and leaf.axes[-1][0] == 3 and found.shape[-1] == 4:
        found = found[..., :3]
    return found


def paired(
    ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any], label: str = ""
) -> Iterator[tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]:
    """Yield for each innermost member of two arrays of structs its `.path` and the numbers of both.

    Members are matched by name in any order; NumPy itself matches those of nested structs by position. Raises
    ValueError if the members differ.
    """
    names = ours.dtype.names
    if names is None:
        yield label, ours, theirs
        return
    if theirs.dtype.names is None or set(theirs.dtype.names) != set(names):
        raise ValueError(f"{label[1:]} holds {theirs.dtype!s:.80}, its members are {', '.join(names)}".strip())
    for name in names:
        yield from paired(ours[name], theirs[name], f"{label}.{name}")


def widened(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array with its numbers in 64 bits, so that results are more precise than the kernel's."""
    return array.astype(wide_type(array.dtype))


def wide_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return a type with its numbers in 64 bits and the same nesting. Only `ulong` stays unsigned, so 0 - 1 is -1."""
    if dtype.names is not None:
        return np.dtype([(name, wide_type(dtype[name])) for name in dtype.names])
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return np.dtype((wide_type(base), shape))
    return np.dtype(np.float64 if dtype.kind == "f" else np.uint64 if dtype == np.uint64 else np.int64)
