"""Whether a run was right: outputs compared with the reference, guards around buffers and inputs unchanged.

`Checker` decides by four words for each check (a "look"). `OnDevice` computes them on the device; `readback.OnHost`
reads the buffers back, for devices that do not run the checks' OpenCL C.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.bench.arena import Guarded
from autotune.bench.checks import Checks
from autotune.bench.checks import Verdict as Verdict
from autotune.bench.kernels import CHECKS, common_options
from autotune.bench.readback import (
    OnHost,
    element,
    first_overwritten,
    nearest_outside,
    told_exact,
    told_foreign,
    told_share,
)
from autotune.bench.unwritten import is_unwritten_at
from autotune.devices import Memory, Program, Session
from autotune.errors import StudyError
from autotune.study import Buffer, Check, Leaf, Tolerance, leaves, member_of, numpy_type

_GROUP = 64
_USUAL = {"f4": "float", "i4": "int", "u4": "uint"}
_SLOTS, _WORDS = 256, 4  # results of one round of checks: four words each

Words = NDArray[np.uint32]
"""What one look found. For guards: the number of bytes changed before the buffer, and after it. For an input: its
checksum. For an output: how many values are wrong, how many of them NaN, ~(the index of the first), and the largest
error as a share of what is allowed, as the bits of a float."""


class Looks(Protocol):
    """Ways to check a buffer. `run` takes what the other methods return."""

    def guards(self, guarded: Guarded) -> Any:
        """Count the changed bytes of its guards."""

    def checksum(self, guarded: Guarded) -> Any:
        """Compute the checksum of its data."""

    def compare(self, guarded: Guarded, leaf: Leaf, tolerance: Tolerance) -> Any:
        """Compare its logical part with what is expected; if it holds structs, the numbers of one member."""

    def run(
        self, looks: Sequence[Any], repeated: Sequence[Any] = (), run: Callable[[], None] | None = None, runs: int = 1
    ) -> Sequence[Words]:
        """Make the runs; return what each look found after the last, then what each of the `repeated` found in all.

        Guards and inputs need only one look after the last run: what a kernel overwrites there stays overwritten.
        """

    def forget(self) -> None:
        """Forget the expected outputs on the device."""


class Checker:
    """Checks buffers of one session against the expected outputs.

    `scalars` are the types of expected outputs that are not known yet.
    """

    def __init__(
        self,
        session: Session,
        expected: Mapping[str, NDArray[Any]],
        inputs: Mapping[str, NDArray[Any]] | None = None,
        scalars: Sequence[str] = (),
    ) -> None:
        self._session = session
        self._expected = expected
        self._inputs = inputs or {}
        self._checks = Checks(session, expected, self._inputs)
        on_device = session.traits.checks_on_device
        self._looks: Looks = OnDevice(session, expected, scalars) if on_device else OnHost(session, expected)
        self._tried: set[str] = set()

    def prepare(self, buffers: Sequence[Guarded]) -> None:
        """Build and run all that checking these buffers needs, and store the checksums of new inputs.

        The time to compile our kernels at their first launch must not be charged to the kernel on trial.
        """
        new = [g for g in buffers if g.buffer.access == "in" and g.checksum is None]
        looks = [self._looks.checksum(guarded) for guarded in new]
        for guarded in buffers:
            if guarded.buffer.name in self._expected and guarded.buffer.name not in self._tried:
                looks.append(self._looks.guards(guarded))
                looks += [self._looks.compare(guarded, leaf, Tolerance()) for leaf in leaves(guarded.buffer.type)]
                self._tried.add(guarded.buffer.name)
        for guarded, words in zip(new, self._looks.run(looks) if looks else (), strict=False):
            guarded.checksum = int(words[0])

    def forget(self) -> None:
        """Forget the expected outputs on the device: a faulty kernel may have written to them."""
        self._looks.forget()
        self._tried.clear()

    def check(
        self,
        buffers: Sequence[Guarded],
        outputs: Mapping[str, Tolerance],
        checks: Mapping[str, Check] | None = None,
        *,
        inputs: bool = False,
        run: Callable[[], None] | None = None,
        runs: int = 1,
    ) -> Verdict:
        """Check guards, outputs, `checks` of the outputs and, with `inputs`, that no input was overwritten.

        `run` queues one run of the kernel: `runs` of them are made, the outputs of each are checked, and the host waits
        once.
        """
        read_only = [g for g in buffers if inputs and g.buffer.access == "in"]
        written = [g for g in buffers if g.buffer.name in outputs and g.buffer.name in self._expected]
        looks = [self._looks.guards(guarded) for guarded in buffers]
        looks += [self._looks.checksum(guarded) for guarded in read_only]
        parts = [(guarded, leaf) for guarded in written for leaf in leaves(guarded.buffer.type)]
        compare = [self._looks.compare(guarded, leaf, outputs[guarded.buffer.name]) for guarded, leaf in parts]
        tried = [Verdict()]

        def run_and_check() -> None:
            if run is not None:
                run()
            tried.append(self._checks.check(buffers, checks or {}))

        found = iter(self._looks.run(looks, compare, run_and_check if checks else run, runs))
        worst, reasons = max(one.max_error for one in tried), list[str]()
        for guarded, words in zip(buffers, found, strict=False):
            for where, count in zip(("before its start", "after its end"), words[:2], strict=True):
                if count:
                    nearest = nearest_outside(self._session, guarded, behind=where == "after its end")
                    what = f"canary {where}: {count} bytes changed, the nearest at {nearest}"
                    reasons.append(f"kernel wrote outside buffer {guarded.buffer.name} ({what})")
        if reasons:
            reasons[-1] += ": let it check its bounds, or give it room by allocate"
        for guarded, words in zip(read_only, found, strict=False):
            if int(words[0]) != guarded.checksum:
                first = first_overwritten(self._session, guarded, self._inputs.get(guarded.buffer.name))
                reasons.append(f"kernel overwrote its input {guarded.buffer.name}{first}")
        for (guarded, leaf), words in zip(parts, found, strict=True):
            worst = max(worst, float(words.view(np.float32)[3]))
            if words[0] or words[2]:  # a count may wrap around over many runs, a maximum does not
                reasons.append(self._wrong(guarded, leaf, words, runs, outputs[guarded.buffer.name]))
        if failed := [one.reason for one in tried if one.reason]:
            reasons.append(
                failed[0] if runs == 1 else f"wrong now and then, in {len(failed)} of {runs} runs: {failed[0]}"
            )
        return Verdict("; ".join(reasons), worst)

    def values(self, buffers: Sequence[Guarded], checks: Mapping[str, Check]) -> dict[str, NDArray[Any]]:
        """Return the value of each check now. Raises StudyError."""
        return {name: self._checks.value(buffers, name, check) for name, check in checks.items()}

    def _wrong(self, guarded: Guarded, leaf: Leaf, words: Words, runs: int, tolerance: Tolerance) -> str:
        buffer = guarded.buffer
        extent, stride = _walk(buffer, leaf)
        index = int(~words[2])
        place = np.unravel_index(index, extent)
        dtype, shape = numpy_type(leaf.scalar)[0], (*buffer.shape, *(extent for extent, _ in leaf.axes))
        found = np.empty(1, dtype)
        offset = leaf.offset + sum(int(i) * step for i, step in zip(place, stride, strict=True)) * dtype.itemsize
        self._session.read(guarded.whole, found, guarded.start + offset)
        known = member_of(np.asarray(self._expected[buffer.name]), leaf).astype(dtype, copy=False)
        expected = known.reshape(-1)[index]
        name = f"{buffer.name}{leaf.label}"
        first = element(buffer.name, shape, index, leaf.label, len(buffer.shape))
        left = _is_left(guarded, offset, found)
        as_before = " (as before the run; never written?)" if left else ""
        cure = told_exact(found[0], expected, tolerance) or ("" if left else told_foreign(found[0]))
        cure = cure or told_share(float(words.view(np.float32)[3]))
        nans = f", {int(words[1])} of them NaN" if words[1] else ""
        if runs > 1:  # the run that was wrong is over
            return (
                f"wrong now and then: {int(words[0])} values of {name} in {runs} runs{nans}; "
                f"first {first}, expected {expected!s}"
            )
        return (
            f"{int(words[0])} of {math.prod(shape)} values of {name} are wrong{nans}; "
            f"first {first} = {found[0]!s}{as_before}, expected {expected!s}{cure}"
            + (", as the reference writes nothing there" if is_unwritten_at(known, index) else "")
        )


class OnDevice:
    """Checks buffers on the device, with kernels of this package."""

    def __init__(self, session: Session, expected: Mapping[str, NDArray[Any]], scalars: Sequence[str] = ()) -> None:
        self._session = session
        self._expected = expected
        self._references: dict[tuple[str, Leaf], Memory] = {}
        # One program for all three kernels: the smallest alone takes as long to build as all together.
        kinds = [np.asarray(array).dtype.str[1:] for array in expected.values()]
        known = [_USUAL[kind] for kind in kinds if kind in _USUAL]
        usual = next((one for one in (*known, *scalars) if one in _USUAL.values()), "float")
        common = self._build(usual)
        self._guards, self._checksum = common.kernel("guards"), common.kernel("checksum")
        self._compare = {usual: common.kernel("compare")}
        # One geometry for all buffers, since PoCL compiles for each geometry; enough items to fill a large GPU.
        self._items = _GROUP * (256 if session.traits.shares_cores else 4096)
        self._results = session.allocate(_SLOTS * _WORDS * 4)

    def forget(self) -> None:
        self._references.clear()

    def run(
        self, looks: Sequence[Any], repeated: Sequence[Any] = (), run: Callable[[], None] | None = None, runs: int = 1
    ) -> Sequence[Words]:
        if len(looks) + len(repeated) > _SLOTS:
            raise StudyError(f"more than {_SLOTS // 3} buffers or members of structs in one kernel")
        self._session.fill(self._results, 0, 0, _SLOTS * _WORDS * 4)
        for turn in range(runs):
            if run is not None:
                run()
            due = [*enumerate(repeated, len(looks)), *(enumerate(looks) if turn == runs - 1 else ())]
            for guarded in {id(image): image for _, (image, *_) in due}.values():
                guarded.pull(self._session)
            for slot, (_, kernel, arguments) in due:
                self._session.set_arguments(kernel, (*arguments, self._results, np.uint32(slot)))
                self._session.launch(kernel, (self._items,), (_GROUP,))
        found = np.empty((_SLOTS, _WORDS), np.uint32)
        self._session.read(self._results, found)
        return list(found[: len(looks) + len(repeated)])

    def guards(self, guarded: Guarded) -> Any:
        start, stop, size = guarded.start, guarded.start + guarded.nbytes, guarded.size
        numbers = (np.uint64(start), np.uint64(stop), np.uint64(size), np.uint32(guarded.guard))
        return guarded, self._guards, (guarded.whole, *numbers)

    def checksum(self, guarded: Guarded) -> Any:
        start, stop = guarded.start // 4, (guarded.start + guarded.nbytes + 3) // 4
        return guarded, self._checksum, (guarded.whole, np.uint64(start), np.uint64(stop))

    def compare(self, guarded: Guarded, leaf: Leaf, tolerance: Tolerance) -> Any:
        buffer = guarded.buffer
        if (buffer.name, leaf) not in self._references:
            self._upload(buffer, leaf)
        extent, stride = _walk(buffer, leaf)
        real = np.float64 if leaf.scalar == "double" else np.float32
        limits = (real(tolerance.relative), real(tolerance.absolute))
        start = np.uint64(leaf.offset // numpy_type(leaf.scalar)[0].itemsize)
        layout = (start, np.uint64(math.prod(extent)), np.array(extent, np.uint64), np.array(stride, np.uint64))
        return (
            guarded,
            self._compare[leaf.scalar],
            (guarded.view, self._references[buffer.name, leaf], *layout, *limits),
        )

    def _upload(self, buffer: Buffer, leaf: Leaf) -> None:
        dtype, _ = numpy_type(leaf.scalar)
        data = np.ascontiguousarray(member_of(np.asarray(self._expected[buffer.name]), leaf).astype(dtype))
        self._references[buffer.name, leaf] = self._session.allocate(data.nbytes)
        self._session.write(self._references[buffer.name, leaf], data)
        if leaf.scalar not in self._compare:
            self._compare[leaf.scalar] = self._build(leaf.scalar).kernel("compare")

    def _build(self, scalar: str) -> Program:
        integer = numpy_type(scalar)[0].kind in "iu"
        real = "double" if scalar == "double" else "float"
        options = {
            "TYPE": scalar,
            "REAL": real,
            "REAL_OR_INT": scalar if integer else real,
            "IS_INTEGER": int(integer),
            "IS_DOUBLE": int(scalar == "double"),
            "IS_HALF": int(scalar == "half"),
        }
        flags = [f"-D{name}={value}" for name, value in options.items()]
        return self._session.build(CHECKS, [*flags, *common_options(self._session)])


def _is_left(guarded: Guarded, offset: int, found: NDArray[Any]) -> bool:
    """Say whether a value is what was there before the run; a kernel may have computed the same."""
    if guarded.poison is None:
        return False
    filled = np.full(3, guarded.poison, np.uint32).tobytes()
    return found.tobytes() == filled[offset % 4 :][: found.nbytes]


@lru_cache(maxsize=1024)
def _walk(buffer: Buffer, leaf: Leaf) -> tuple[list[int], list[int]]:
    """Return four extents and strides, counted in numbers, that visit a leaf in the logical part of the allocation."""
    dtype, width = numpy_type(buffer.type)
    size, step = numpy_type(leaf.scalar)[0].itemsize, dtype.itemsize * width
    axes = list(leaf.axes)
    for logical, allocated in zip(reversed(buffer.shape), reversed(buffer.allocate), strict=True):
        axes.insert(0, (logical, step))
        step *= allocated
    extent, stride = [1], [1]
    for many, nbytes in reversed(axes):
        if many == 1:
            continue
        if extent == [1]:
            extent, stride = [many], [nbytes // size]
        elif nbytes // size == extent[0] * stride[0]:  # the dimensions inside are dense: one longer run
            extent[0] *= many
        else:
            extent.insert(0, many)
            stride.insert(0, nbytes // size)
    if len(extent) > 4:
        raise StudyError(f"buffer {buffer.name} is padded in more than three dimensions")
    missing = 4 - len(extent)
    return [1] * missing + extent, [0] * missing + stride
