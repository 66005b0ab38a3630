"""What a reference tells nothing of: what its kernel left as it was, filled with poison or data before, and NaNs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.checks import judged
from autotune.bench.words import POISON
from autotune.errors import StudyError
from autotune.study import (
    Buffer,
    Plan,
    Tolerance,
    evaluate,
    is_struct,
    leaves,
    member_of,
    names_of,
    numpy_type,
    widened,
)

_TURNED = np.array([(POISON << bits | POISON >> 32 - bits) & 0xFFFFFFFF for bits in (0, 8, 16, 24)], np.uint32)
"""The word of poison as it lies in rows of small values, wherever in a word a row begins."""

_BEGINNING = 4096
"""Bytes that are compared first: outputs that differ from what they held hardly ever do so only behind that."""

_AT_ONCE = 1 << 16
"""Values that are looked at together."""


def count_unwritten(data: NDArray[Any]) -> tuple[int, int]:
    """Return how many values of an array are nothing but poison, and the place of the first.

    A struct is one value. Of values of less than four bytes, those count that share a word of poison with others: one
    byte alone may well be what was computed.
    """
    raw, size = np.ascontiguousarray(data).reshape(-1).view(np.uint8), data.dtype.itemsize
    words = raw[: len(raw) // 4 * 4].view(np.uint32)
    poisoned = words == POISON if size % 4 == 0 else np.isin(words, _TURNED)
    if not poisoned.any():
        return 0, 0
    if size % 4:
        poisoned = np.repeat(poisoned, 4)[: len(raw) // size * size]
        poisoned = np.pad(poisoned, (0, -len(poisoned) % size))
    values = poisoned.reshape(-1, size // 4 if size % 4 == 0 else size).all(axis=1)
    return int(values.sum()), int(values.argmax())


def unwritten_in(buffer: Buffer, data: NDArray[Any]) -> list[str]:
    """Say of each member of an output's elements, or of all of it, how many values are nothing but poison; empty: none.

    What pads a vector of three is nobody's to write. Small members beside larger ones are left out, as
    `count_unwritten` has it.
    """
    wide = [leaf for leaf in leaves(buffer.type) if numpy_type(leaf.scalar)[0].itemsize % 4 == 0]
    said = []
    for label, values in [(leaf.label, member_of(data, leaf)) for leaf in wide] or [("", data)]:
        count, first = count_unwritten(values)
        if count:
            where = element(buffer.name, values, first, label, len(buffer.shape))
            said.append(f"{count:,} of {values.size:,} values of {buffer.name}{label} unwritten, first {where}")
    return said


def is_unwritten(data: NDArray[Any]) -> bool:
    """Whether an output holds the poison from one end to the other."""
    return data.nbytes >= 4 and count_unwritten(data)[0] == data.nbytes // 4 * 4 // data.dtype.itemsize


def count_nans(data: NDArray[Any]) -> tuple[int, int]:
    """Return how many values of an output, in its logical shape, are NaN but no poison, and the place of the first.

    Of structs none is counted.
    """
    if data.dtype.kind != "f":
        return 0, 0
    nans = np.isnan(data).reshape(-1)
    count, first = int(nans.sum()), int(nans.argmax()) if nans.size else 0
    return count - count_unwritten(data)[0] if count else 0, first


def not_numbers(plan: Plan, expected: Mapping[str, NDArray[Any]]) -> str:
    """Say for which values a reference gives NaN, where whatever a configuration makes NaN of is right; empty: none."""
    own = {one.name: leaves(one.type)[0] for one in plan.buffers if not is_struct(one.type)}
    said = []
    for name, whole in expected.items():
        data = member_of(whole, own[name]) if name in own else whole  # not what pads a vector of three
        count, first = count_nans(data)
        if count:
            said.append(f"{count:,} of {data.size:,} values of {name}, first {element(name, data, first)}")
    if not said:
        return ""
    return f"the reference gives NaN for {'; '.join(said)}: each NaN is right there; see to the inputs' data"


def unverified(plan: Plan, outputs: Mapping[str, NDArray[Any]]) -> str:
    """Say which values of a reference's outputs the reference leaves unwritten; empty: none.

    Poison is right where poison is expected, so nothing that a configuration leaves there is found out.
    """
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    said = [line for name in plan.outputs for line in unwritten_in(buffers[name], outputs[name])]
    cure = 'they are not verified; access = "inout" with data has them compared too'
    return f"the reference leaves {'; '.join(said)}: {cure}" if said else ""


def left_alone(expected: Mapping[str, NDArray[Any]], inputs: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return the outputs that are to hold what they held before (`inout`): whoever writes nothing is right."""
    return [name for name, data in expected.items() if name in inputs and _alike(data, inputs[name])]


def _alike(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.size != other.size or one.dtype != other.dtype:
        return False
    mine, theirs = (np.ascontiguousarray(data).reshape(-1).view(np.uint8) for data in (one, other))
    return np.array_equal(mine[:_BEGINNING], theirs[:_BEGINNING]) and np.array_equal(mine, theirs)


def unmoved(names: Sequence[str]) -> str:
    """Say that a reference leaves outputs as they were; empty: none."""
    if not names:
        return ""
    cure = "so does a kernel that writes nothing; see to the inputs, or to what decides whether it writes"
    return f"the reference leaves {' and '.join(names)} as {'it was' if len(names) == 1 else 'they were'}: {cure}"


def indistinct(outputs: Mapping[str, Tolerance], expected: Mapping[str, NDArray[Any]]) -> str:
    """Say of which outputs 0 or another number is right everywhere, within their tolerance; empty: none."""
    known = {name: _right_everywhere(expected[name], outputs[name]) for name in outputs if name in expected}
    zeros = [name for name, (zero, _) in known.items() if zero]
    alike = [name for name, (zero, other) in known.items() if other and not zero and expected[name].size > 1]
    said = []
    if zeros:
        cure = "see to the inputs and the launch, or give [tolerance] less absolute"
        said.append(f"zeros are right for all of {' and '.join(zeros)}, within the tolerance: {cure}")
    if alike:
        cure = "so is a kernel that takes one for another; see to the inputs, which may be all alike"
        said.append(f"one number is right for all of {' and '.join(alike)}, within the tolerance: {cure}")
    return "; ".join(said)


def _right_everywhere(data: NDArray[Any], allowed: Tolerance) -> tuple[bool, bool]:
    """Say whether 0, and whether some number, is right for every value."""
    flat, zero = data.reshape(-1), True
    least: Any = -np.inf
    most: Any = np.inf
    wide: type = np.longdouble if data.dtype.kind in "iu" else np.float64  # 2**53 + 1 is no double
    for begin in range(0, flat.size if data.dtype.kind in "fiu" else 0, _AT_ONCE):  # hardly ever more than the first
        values: NDArray[Any] = flat[begin : begin + _AT_ONCE].astype(wide)
        if not np.isfinite(values).all():
            return False, False
        away = np.abs(values)
        room = allowed.absolute + allowed.relative * away
        zero = zero and bool((away <= room).all())
        least, most = max(least, (values - room).max()), min(most, (values + room).min())
        if least > most:
            return False, False
    some = flat.size > 0 and data.dtype.kind in "fiu"
    return some and zero, some


def unjudged(plan: Plan, inputs: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> str:
    """Say for which outputs all checks that name them hold without any work: zeros, or what lay there; empty: none."""
    written = [buffer for buffer in plan.buffers if buffer.writes]
    if not plan.checks or not {*plan.checks} <= expected.keys():
        return ""
    zeros = {one.name: np.zeros(one.data_shape, numpy_type(one.type)[0]) for one in written}
    before = {one.name: inputs[one.name] for one in written if one.name in inputs}
    said = []
    if holding := _holding(plan, inputs, expected, zeros):
        said.append(f"the checks hold where all of {' and '.join(holding)} is 0: add one that does not")
    held = _holding(plan, inputs, expected, zeros | before) if before else []
    if holding := [name for name in held if name in before]:
        said.append(f"the checks hold where {' and '.join(holding)} stays as it was: see to the inputs, or add another")
    return "; ".join(said)


def _holding(
    plan: Plan,
    inputs: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
    written: Mapping[str, NDArray[Any]],
) -> list[str]:
    """Return the outputs of which no check fails where they hold what is given as `written`.

    A check that holds for several of them, as a difference does, tells nothing of who is beside one that is judged.
    """
    held, failing = list[set[str]](), set[str]()
    for name, check in plan.checks.items():
        named = names_of(check.text)
        arrays = {one: widened(np.asarray(data)) for one, data in {**inputs, **written}.items() if one in named}
        try:
            found = np.asarray(evaluate(check.text, {**arrays, **dict(check.numbers)}, f"check.{name}"))
            fails = bool(judged(name, check, found, np.asarray(expected[name])).reason)
        except StudyError:
            fails = True
        if fails:
            failing |= named & written.keys()
        else:
            held.append(named & written.keys())
    while beside := [names for names in held if names & failing and not names <= failing]:
        failing.update(*beside)
    return sorted(set[str]().union(*held) - failing)


def element(name: str, data: NDArray[Any], index: int, label: str = "", axes: int = 0) -> str:
    """Return what a value of an output is called, `c[3, 4]`, by its index in a flat array.

    With the `label` of a member, which is behind so many axes: `p[3].place[1]`.
    """
    places = [str(int(place)) for place in np.unravel_index(index, data.shape)]
    outside, inside = (places[:axes], places[axes:]) if label else (places, [])
    return f"{name}[{', '.join(outside)}]{label}" + (f"[{', '.join(inside)}]" if inside else "")
