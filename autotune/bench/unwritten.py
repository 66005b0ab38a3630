"""Values of a reference that verify nothing: those that its kernel left as they were (poison or data), and NaNs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.checks import judged
from autotune.bench.readback import element
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
"""The poison as words of rows of small values, for each byte of a word at which a row may begin."""

_BEGINNING = 4096
"""Bytes that are compared first: outputs that differ from what they held nearly always do so here already."""

_AT_ONCE = 1 << 16
"""Values that are processed together."""


def count_unwritten(data: NDArray[Any]) -> tuple[int, int]:
    """Return how many values of an array hold only poison, and the index of the first.

    A struct is one value. A value of less than four bytes counts only as part of a whole word of poison, since a byte
    that equals one of the poison may have been computed.
    """
    values = _poisoned(data)
    return (int(values.sum()), int(values.argmax())) if values.any() else (0, 0)


def is_unwritten_at(data: NDArray[Any], index: int) -> bool:
    """Say whether the value at a flat index holds only poison, as `count_unwritten` counts it."""
    return bool(_poisoned(data)[index])


def _poisoned(data: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a flat mask of the values that hold only poison."""
    raw, size = np.ascontiguousarray(data).reshape(-1).view(np.uint8), data.dtype.itemsize
    words = raw[: len(raw) // 4 * 4].view(np.uint32)
    if size % 4 == 0:
        return np.asarray((words == POISON).reshape(-1, size // 4).all(axis=1))
    poisoned = np.repeat(np.isin(words, _TURNED), 4)
    rest = len(raw) - len(poisoned)  # up to three bytes, which are no whole word
    return np.asarray(np.pad(poisoned, (0, rest)).reshape(-1, size).all(axis=1))


def unwritten_in(buffer: Buffer, data: NDArray[Any]) -> list[str]:
    """Say how many values hold only poison, for each member of an output's elements, or for the whole output.

    Empty if there are none. A kernel need not write the padding of a vector of three. Small members beside larger ones
    are left out, since `count_unwritten` cannot judge them.
    """
    wide = [leaf for leaf in leaves(buffer.type) if numpy_type(leaf.scalar)[0].itemsize % 4 == 0]
    said = []
    for label, values in [(leaf.label, member_of(data, leaf)) for leaf in wide] or [("", data)]:
        count, first = count_unwritten(values)
        if count:
            where = element(buffer.name, values.shape, first, label, len(buffer.shape))
            said.append(f"{count:,} of {values.size:,} values of {buffer.name}{label} unwritten, first {where}")
    return said


def is_unwritten(data: NDArray[Any]) -> bool:
    """Say whether an output holds only poison."""
    return data.nbytes >= 4 and count_unwritten(data)[0] == data.nbytes // 4 * 4 // data.dtype.itemsize


def count_nans(data: NDArray[Any]) -> tuple[int, int]:
    """Return how many values of an output, in its logical shape, are NaN but not poison, and the index of the first.

    Structs are not counted.
    """
    if data.dtype.kind != "f":
        return 0, 0
    nans = np.isnan(data).reshape(-1)
    count, first = int(nans.sum()), int(nans.argmax()) if nans.size else 0
    return count - count_unwritten(data)[0] if count else 0, first


def not_numbers(plan: Plan, expected: Mapping[str, NDArray[Any]]) -> str:
    """Say for which values a reference gives NaN: a configuration that gives NaN there passes. Empty if none."""
    own = {one.name: leaves(one.type)[0] for one in plan.buffers if not is_struct(one.type)}
    said = []
    for name, whole in expected.items():
        data = member_of(whole, own[name]) if name in own else whole  # without the padding of a vector of three
        count, first = count_nans(data)
        if count:
            said.append(f"{count:,} of {data.size:,} values of {name}, first {element(name, data.shape, first)}")
    if not said:
        return ""
    return f"the reference gives NaN for {'; '.join(said)}: there, NaN counts as right; check the inputs' data"


def unverified(plan: Plan, outputs: Mapping[str, NDArray[Any]]) -> str:
    """Say which values of its outputs a reference leaves unwritten, or return an empty string if there are none.

    Where poison is expected, poison is right, so a value that a configuration fails to write there is not noticed.
    """
    buffers = {buffer.name: buffer for buffer in plan.buffers}
    said = [line for name in plan.outputs for line in unwritten_in(buffers[name], outputs[name])]
    cure = 'they are not verified; access = "inout" with data compares them too'
    return f"the reference leaves {'; '.join(said)}: {cure}" if said else ""


def left_alone(expected: Mapping[str, NDArray[Any]], inputs: Mapping[str, NDArray[Any]]) -> list[str]:
    """Return the `inout` outputs that must hold what they held before: a kernel that writes nothing passes."""
    return [name for name, data in expected.items() if name in inputs and _alike(data, inputs[name])]


def _alike(one: NDArray[Any], other: NDArray[Any]) -> bool:
    if one.size != other.size or one.dtype != other.dtype:
        return False
    mine, theirs = (np.ascontiguousarray(data).reshape(-1).view(np.uint8) for data in (one, other))
    return np.array_equal(mine[:_BEGINNING], theirs[:_BEGINNING]) and np.array_equal(mine, theirs)


def unmoved(names: Sequence[str]) -> str:
    """Say that a reference leaves the named outputs as they were, or return an empty string if there are none."""
    if not names:
        return ""
    cure = "so does a kernel that writes nothing; check the inputs, or what decides whether it writes"
    return f"the reference leaves {' and '.join(names)} as {'it was' if len(names) == 1 else 'they were'}: {cure}"


def indistinct(outputs: Mapping[str, Tolerance], expected: Mapping[str, NDArray[Any]]) -> str:
    """Say for which outputs 0 or another number is right everywhere, within their tolerance. Empty if for none."""
    known = {name: _right_everywhere(expected[name], outputs[name]) for name in outputs if name in expected}
    zeros = [name for name, (zero, _) in known.items() if zero]
    alike = [name for name, (zero, other) in known.items() if other and not zero and expected[name].size > 1]
    said = []
    if zeros:
        cure = "check the inputs and the launch, or lower absolute in [tolerance]"
        said.append(f"zeros are right for all of {' and '.join(zeros)}, within the tolerance: {cure}")
    if alike:
        cure = "a kernel that mixes up elements passes too; check whether the inputs are all alike"
        said.append(f"one number is right for all of {' and '.join(alike)}, within the tolerance: {cure}")
    return "; ".join(said)


def _right_everywhere(data: NDArray[Any], allowed: Tolerance) -> tuple[bool, bool]:
    """Say whether 0 is right for every value, and whether any one number is."""
    flat, zero, some = data.reshape(-1), True, False
    least: Any = -np.inf
    most: Any = np.inf
    wide: type = np.longdouble if data.dtype.kind in "iu" else np.float64  # 2**53 + 1 is not a double
    for begin in range(0, flat.size if data.dtype.kind in "fiu" else 0, _AT_ONCE):  # hardly ever more than the first
        values: NDArray[Any] = _written(flat[begin : begin + _AT_ONCE]).astype(wide)
        if not np.isfinite(values).all():
            return False, False
        if not values.size:
            continue
        some = True
        away = np.abs(values)
        room = allowed.absolute + allowed.relative * away
        zero = zero and bool((away <= room).all())
        least, most = max(least, (values - room).max()), min(most, (values + room).min())
        if least > most:
            return False, False
    return some and zero, some


def _written(values: NDArray[Any]) -> NDArray[Any]:
    """Return the values of an output that are not poison: in a reference's, nothing is compared with that."""
    if values.dtype.itemsize % 4:
        return values
    poisoned = (np.ascontiguousarray(values).view(np.uint32).reshape(values.size, -1) == POISON).all(axis=1)
    written: NDArray[Any] = values[~poisoned]
    return written


def unjudged(plan: Plan, inputs: Mapping[str, NDArray[Any]], expected: Mapping[str, NDArray[Any]]) -> str:
    """Say for which outputs all checks that name them hold for zeros, or for unchanged data. Empty if for none."""
    written = [buffer for buffer in plan.buffers if buffer.writes]
    if not plan.checks or not {*plan.checks} <= expected.keys():
        return ""
    zeros = {one.name: np.zeros(one.data_shape, numpy_type(one.type)[0]) for one in written}
    before = {one.name: inputs[one.name] for one in written if one.name in inputs}
    said = []
    if holding := _holding(plan, inputs, expected, zeros):
        said.append(f"the checks pass if all of {' and '.join(holding)} is 0: add one that fails then")
    held = _holding(plan, inputs, expected, zeros | before) if before else []
    if holding := [name for name in held if name in before]:
        said.append(f"the checks pass if {' and '.join(holding)} is left unchanged: check the inputs, or add a check")
    return "; ".join(said)


def _holding(
    plan: Plan,
    inputs: Mapping[str, NDArray[Any]],
    expected: Mapping[str, NDArray[Any]],
    written: Mapping[str, NDArray[Any]],
) -> list[str]:
    """Return the outputs for which no check fails if they hold the `written` arrays.

    A check that names several outputs, such as a difference, may hold although one of them fails elsewhere: the others
    that it names are then left out too.
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
