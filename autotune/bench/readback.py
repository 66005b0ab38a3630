"""Checks buffers on the host, which reads them back: for devices that do not run OpenCL C. See verify.py."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.arena import Guarded
from autotune.bench.words import LOCAL
from autotune.devices import Session
from autotune.study import Leaf, Tolerance, is_struct, leaves, member_of, numpy_type

_NONE = np.zeros(4, np.uint32)


class OnHost:
    """Implements verify.Looks by reading buffers back; compares in 64 bits."""

    def __init__(self, session: Session, expected: Mapping[str, NDArray[Any]]) -> None:
        self._session = session
        self._expected = expected

    def forget(self) -> None:
        pass  # it keeps nothing on the device

    def run(
        self,
        looks: Sequence[Callable[[], NDArray[np.uint32]]],
        repeated: Sequence[Callable[[], NDArray[np.uint32]]] = (),
        run: Callable[[], None] | None = None,
        runs: int = 1,
    ) -> list[NDArray[np.uint32]]:
        totals = [_NONE.copy() for _ in repeated]
        for _ in range(runs):
            if run is not None:
                run()
            for total, look in zip(totals, repeated, strict=True):
                words = look()
                total[:2] += words[:2]
                total[2:] = np.maximum(total[2:], words[2:])
        return [*(look() for look in looks), *totals]

    def guards(self, guarded: Guarded) -> Any:
        start, stop = guarded.start, guarded.start + guarded.nbytes

        def look() -> NDArray[np.uint32]:
            whole = self._read(guarded, 0, guarded.size)
            changed = whole != _unchanged(guarded)
            return np.array([changed[:start].sum(), changed[stop:].sum(), 0, 0], np.uint32)

        return look

    def checksum(self, guarded: Guarded) -> Any:
        return lambda: np.array(
            [zlib.crc32(self._read(guarded, guarded.start, guarded.nbytes).data), 0, 0, 0], np.uint32
        )

    def compare(self, guarded: Guarded, leaf: Leaf, tolerance: Tolerance) -> Any:
        buffer = guarded.buffer
        dtype, _ = numpy_type(buffer.type)

        def look() -> NDArray[np.uint32]:
            expected = member_of(np.asarray(self._expected[buffer.name]).astype(dtype), leaf).reshape(-1)
            return compared(member_of(contents(self._session, guarded), leaf).reshape(-1), expected, tolerance)

        return look

    def _read(self, guarded: Guarded, start: int, nbytes: int) -> NDArray[np.uint8]:
        guarded.pull(self._session)
        found = np.empty(nbytes, np.uint8)
        self._session.read(guarded.whole, found, start)
        return found


def contents(session: Session, guarded: Guarded) -> NDArray[Any]:
    """Read back the logical part of a buffer, in its shape."""
    guarded.pull(session)
    buffer = guarded.buffer
    dtype, width = numpy_type(buffer.type)
    room = np.empty((*buffer.allocate, width), dtype)
    session.read(guarded.whole, room, guarded.start)
    return room[tuple(slice(extent) for extent in buffer.shape)].reshape(buffer.data_shape)


def _unchanged(guarded: Guarded) -> NDArray[np.uint8]:
    """Return the bytes of its guards as long as nothing writes there, repeated over the whole allocation."""
    return np.full(-(-guarded.size // 4), guarded.guard, np.uint32).view(np.uint8)[: guarded.size]


def nearest_outside(session: Session, guarded: Guarded, *, behind: bool) -> str:
    """Name the changed place of a guard that is nearest to the buffer, by the index that reaches it from a kernel."""
    start = guarded.start + guarded.nbytes if behind else 0
    stop = guarded.size if behind else guarded.start
    found = np.empty(stop - start, np.uint8)
    session.read(guarded.whole, found, start)
    changed = np.flatnonzero(found != _unchanged(guarded)[start:stop]) + start - guarded.start
    if not len(changed):  # another run has changed it since
        return "no place any more"
    dtype, width = numpy_type(guarded.buffer.type)
    return f"{guarded.buffer.name}[{int(changed[0 if behind else -1]) // (dtype.itemsize * width)}]"


def first_overwritten(session: Session, guarded: Guarded, data: NDArray[Any] | None) -> str:
    """Name the first value of an input that differs from its data, or return "" if only the padding differs."""
    found, kind = contents(session, guarded), guarded.buffer.type
    was = np.asarray(0 if data is None else data).astype(found.dtype)
    if was.size != found.size:
        return ""
    was = was.reshape(found.shape)
    members = [(member_of(found, leaf), member_of(was, leaf)) for leaf in leaves(kind)] if is_struct(kind) else []
    changed = [bits_differ(*pair).reshape(found.size, -1).any(axis=1) for pair in members or [(found, was)]]
    if not np.any(changed):
        return ""
    index = int(np.any(changed, axis=0).argmax())
    values = f" = {found.reshape(-1)[index]!s}, was {was.reshape(-1)[index]!s}"
    return f", first {element(guarded.buffer.name, found.shape, index)}{values}"


def element(name: str, shape: Sequence[int], index: int, label: str = "", axes: int = 0) -> str:
    """Return the name of a value of an array, such as `c[3, 4]`, by its index in the flat array.

    With the `label` of a member, which follows the first `axes` indices: `p[3].place[1]`.
    """
    places = [str(int(place)) for place in np.unravel_index(index, shape)]
    outside, inside = (places[:axes], places[axes:]) if label else (places, [])
    return f"{name}[{', '.join(outside)}]{label}" + (f"[{', '.join(inside)}]" if inside else "")


def bits_differ(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a flat mask of the numbers whose bits differ."""
    return np.asarray((bytes_of(one) != bytes_of(other)).any(axis=1))


def bytes_of(data: NDArray[Any]) -> NDArray[np.uint8]:
    """Return the bytes of an array's numbers, a row for each."""
    return np.ascontiguousarray(data).reshape(-1).view(np.uint8).reshape(-1, data.dtype.itemsize)


def compared(found: NDArray[Any], expected: NDArray[Any], tolerance: Tolerance) -> NDArray[np.uint32]:
    """Return how many values are wrong, how many of them NaN, ~(index of the first), and the worst error.

    The worst error is a share of what is allowed, as the bits of a float.
    """
    wide: type = np.longdouble if found.dtype.kind in "iu" else np.float64
    x: NDArray[Any] = found.astype(wide)
    e: NDArray[Any] = expected.astype(wide)
    with np.errstate(all="ignore"):
        same = (found == expected) | (np.isnan(x) & np.isnan(e))
        error, allowed = np.abs(x - e), tolerance.absolute + tolerance.relative * np.abs(e)
        finite = np.isfinite(error)  # the tolerance of an infinity is infinite
        wrong = ~same & ~(finite & (error <= allowed))
        share = np.where(~same & (allowed > 0) & finite, error / allowed, np.where(same, 0.0, np.inf))
        worst = np.array([np.max(share, initial=0.0)]).astype(np.float32)
    first = ~np.uint32(min(int(np.argmax(wrong)), 2**32 - 1)) if wrong.any() else np.uint32(0)
    nans = np.count_nonzero(np.isnan(x) & ~np.isnan(e))
    return np.array([np.count_nonzero(wrong), nans, first, worst.view(np.uint32)[0]], np.uint32)


def told_exact(found: Any, expected: Any, tolerance: Tolerance) -> str:
    """Return a clause for a reason whose first wrong value is so near that only rounding may have made it differ.

    Empty if the value is not that near or not floating-point, and if the study has a tolerance.
    """
    if found.dtype.kind != "f" or tolerance != Tolerance() or not np.isfinite([found, expected]).all():
        return ""
    near = abs(float(found) - float(expected)) <= 1e-3 * abs(float(expected))
    return "; without a [tolerance] above 0 they must be equal" if near else ""


def told_share(worst: float) -> str:
    """Return a clause for a reason: how large the largest error is, `worst` as a share of the tolerance.

    It tells rounding under a tight tolerance from a mistake. Empty if it is infinite, as without a tolerance.
    """
    return f"; the largest error is {worst:.3g} x the tolerance" if 1 < worst < np.inf else ""


def told_foreign(found: Any) -> str:
    """Return a clause for a reason whose first wrong value may come from memory that a kernel must not rely on.

    Such memory holds infinity, among others, and NaN is 0 times that. Local memory holds the same bits for whole
    numbers. Empty for other values.
    """
    memory = "memory that is unwritten or beyond the end of an input"
    if found.dtype.kind == "f" and np.isnan(found):
        return f"; NaN may be 0 times {memory}: a larger allocate puts zeros there"
    if found.dtype.kind == "f" and np.isinf(found):
        return f"; infinity may come from {memory}, or from local memory that is unwritten"
    if found.tobytes() == np.uint32(LOCAL[0]).tobytes():
        return "; this is what local memory holds before it is written"
    return ""
