"""Right or wrong, decided on the device: outputs against the reference, guards around buffers, inputs untouched."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.arena import POISON, Guarded
from autotune.bench.sources import CHECKS, COMPARE, common_options
from autotune.devices.opencl import Kernel, Memory, Session
from autotune.errors import StudyError
from autotune.study import Buffer, Tolerance, numpy_type

_GROUP = 64
_SLOTS, _WORDS = 256, 4  # results of one round of checks: four words each


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a check found: `reason` is empty where everything is right; `max_error` a share of the tolerance."""

    reason: str = ""
    max_error: float = 0.0


class Checker:
    """Checks buffers of one session against the expected outputs, without moving them to the host."""

    def __init__(self, session: Session, expected: Mapping[str, NDArray[Any]]) -> None:
        self._session = session
        self._expected = expected
        self._references: dict[str, Memory] = {}
        self._compare: dict[str, Kernel] = {}
        common = session.build(CHECKS, common_options(session.info))
        self._guards, self._checksum = common.kernel("guards"), common.kernel("checksum")
        # One geometry for all buffers, since PoCL compiles anew for each; enough items to fill a large GPU.
        self._items = _GROUP * (256 if session.info.kind == "cpu" else 4096)
        self._results = session.allocate(_SLOTS * _WORDS * 4)

    def prepare(self, buffers: Sequence[Guarded]) -> None:
        """Build and run what checking these buffers takes, and note the checksums of inputs that are new.

        PoCL compiles a kernel at its first launch, which must not fall to the account of the kernel on trial.
        """
        new = [g for g in buffers if g.buffer.access == "in" and g.checksum is None]
        steps: list[tuple[Any, Guarded]] = [(self._launch_checksum, guarded) for guarded in new]
        for guarded in buffers:
            if guarded.buffer.name in self._expected and guarded.buffer.name not in self._references:
                steps += [(self._launch_guards, guarded), (self._launch_trial_comparison, guarded)]
        for guarded, slot in zip(new, self._run(steps), strict=False):
            guarded.checksum = int(slot[0])

    def forget(self) -> None:
        """Forget the expected outputs on the device: a faulty kernel may have written to them."""
        self._references.clear()

    def check(
        self,
        buffers: Sequence[Guarded],
        outputs: Mapping[str, Tolerance],
        *,
        inputs: bool = False,
        run: Callable[[], None] | None = None,
        runs: int = 1,
    ) -> Verdict:
        """Check guards and outputs and, with `inputs`, that no input was overwritten.

        `run` queues one run of the kernel: so many runs are made, the outputs of each checked, and the host waits once.
        """
        steps: list[tuple[Any, Guarded]] = [(self._launch_guards, guarded) for guarded in buffers]
        read_only = [g for g in buffers if inputs and g.buffer.access == "in"]
        steps += [(self._launch_checksum, guarded) for guarded in read_only]
        written = [g for g in buffers if g.buffer.name in outputs and g.buffer.name in self._expected]
        compare = [(lambda g, s: self._launch_compare(g, outputs[g.buffer.name], s), g) for g in written]
        slots = iter(self._run(steps, compare, run, runs))
        worst, reasons = 0.0, []
        for guarded in buffers:
            reasons += _guard_reasons(guarded, next(slots))
        for guarded in read_only:
            if int(next(slots)[0]) != guarded.checksum:
                reasons.append(f"kernel overwrote its input {guarded.buffer.name}")
        for guarded in written:
            slot = next(slots)
            worst = max(worst, float(slot.view(np.float32)[3]))
            if slot[0] or slot[2]:  # a count may wrap around over many runs, a maximum does not
                reasons.append(self._wrong(guarded, slot, runs))
        return Verdict("; ".join(reasons), worst)

    def _run(
        self,
        steps: Sequence[tuple[Any, Guarded]],
        repeated: Sequence[tuple[Any, Guarded]] = (),
        run: Callable[[], None] | None = None,
        runs: int = 1,
    ) -> list[NDArray[np.uint32]]:
        """Return what each step found, then what each of the `repeated` found after all of the runs together.

        What a kernel overwrites of guards and inputs stays overwritten: one look after the last run sees it.
        """
        if len(steps) + len(repeated) > _SLOTS:
            raise StudyError(f"more than {_SLOTS // 3} buffers in one kernel")
        self._session.fill(self._results, 0, 0, _SLOTS * _WORDS * 4)
        for _ in range(runs):
            if run is not None:
                run()
            for slot, (launch, guarded) in enumerate(repeated, len(steps)):
                launch(guarded, slot)
        for slot, (launch, guarded) in enumerate(steps):
            launch(guarded, slot)
        found = np.empty((_SLOTS, _WORDS), np.uint32)
        self._session.read(self._results, found)
        return list(found[: len(steps) + len(repeated)])

    def _launch(self, kernel: Kernel, arguments: Sequence[Any], slot: int) -> None:
        self._session.set_arguments(kernel, (*arguments, self._results, np.uint32(slot)))
        self._session.launch(kernel, (self._items,), (_GROUP,))

    def _launch_guards(self, guarded: Guarded, slot: int) -> None:
        start, stop, size = guarded.start, guarded.start + guarded.nbytes, guarded.size
        numbers = (np.uint64(start), np.uint64(stop), np.uint64(size), np.uint32(guarded.guard))
        self._launch(self._guards, (guarded.whole, *numbers), slot)

    def _launch_checksum(self, guarded: Guarded, slot: int) -> None:
        start, stop = guarded.start // 4, (guarded.start + guarded.nbytes + 3) // 4
        self._launch(self._checksum, (guarded.whole, np.uint64(start), np.uint64(stop)), slot)

    def _launch_compare(self, guarded: Guarded, tolerance: Tolerance, slot: int) -> None:
        buffer = guarded.buffer
        extent, stride = _walk(buffer)
        real = np.float64 if buffer.type.startswith("double") else np.float32
        count = np.uint64(math.prod(extent))
        limits = (real(tolerance.relative), real(tolerance.absolute))
        layout = (np.array(extent, np.uint64), np.array(stride, np.uint64))
        reference = self._reference(buffer)
        self._launch(self._kernel_for(buffer), (guarded.view, reference, count, *layout, *limits), slot)

    def _launch_trial_comparison(self, guarded: Guarded, slot: int) -> None:
        self._launch_compare(guarded, Tolerance(), slot)

    def _reference(self, buffer: Buffer) -> Memory:
        if buffer.name not in self._references:
            dtype, _ = numpy_type(buffer.type)
            data = np.asarray(self._expected[buffer.name]).astype(dtype)
            self._references[buffer.name] = self._session.allocate(data.nbytes)
            self._session.write(self._references[buffer.name], data)
        return self._references[buffer.name]

    def _kernel_for(self, buffer: Buffer) -> Kernel:
        scalar = buffer.type.rstrip("0123456789")
        if scalar not in self._compare:
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
            program = self._session.build(COMPARE, [*flags, *common_options(self._session.info)])
            self._compare[scalar] = program.kernel("compare")
        return self._compare[scalar]

    def _wrong(self, guarded: Guarded, slot: NDArray[np.uint32], runs: int) -> str:
        buffer = guarded.buffer
        extent, stride = _walk(buffer)
        index = int(~slot[2])
        place = np.unravel_index(index, extent)
        dtype, shape = numpy_type(buffer.type)[0], buffer.data_shape
        found = np.empty(1, dtype)
        offset = sum(int(i) * step for i, step in zip(place, stride, strict=True)) * dtype.itemsize
        self._session.read(guarded.whole, found, guarded.start + offset)
        expected = np.asarray(self._expected[buffer.name]).reshape(-1)[index]
        where = ", ".join(str(int(i)) for i in np.unravel_index(index, shape))
        unwritten = " (never written)" if _is_poison(found) else ""
        nans = f", {int(slot[1])} of them NaN" if slot[1] else ""
        if runs > 1:  # the run that was wrong is over
            return (
                f"wrong now and then: {int(slot[0])} values of {buffer.name} in {runs} runs{nans}; "
                f"first {buffer.name}[{where}], expected {expected.astype(dtype)}"
            )
        return (
            f"{int(slot[0])} of {math.prod(shape)} values of {buffer.name} are wrong{nans}; "
            f"first {buffer.name}[{where}] = {found[0]}{unwritten}, expected {expected.astype(dtype)}"
        )


def _is_poison(found: NDArray[Any]) -> bool:
    pattern = np.array([POISON, POISON], np.uint32).tobytes()
    return found.tobytes() in (pattern[: found.nbytes], pattern[2 : 2 + found.nbytes])


def _guard_reasons(guarded: Guarded, slot: NDArray[np.uint32]) -> list[str]:
    name = guarded.buffer.name
    places = (("before its start", int(slot[0])), ("after its end", int(slot[1])))
    return [
        f"kernel wrote outside buffer {name} (canary {where}: {count} bytes changed)"
        for where, count in places
        if count
    ]


def _walk(buffer: Buffer) -> tuple[list[int], list[int]]:
    """Return four extents and the strides in components that walk the logical part of the allocation."""
    _, width = numpy_type(buffer.type)
    extent, stride, step = [width], [1], width
    for logical, allocated in zip(reversed(buffer.shape), reversed(buffer.allocate), strict=True):
        if step == extent[0] * stride[0]:  # the dimensions inside are dense: one longer run
            extent[0] *= logical
        else:
            extent.insert(0, logical)
            stride.insert(0, step)
        step *= allocated
    if len(extent) > 4:
        raise StudyError(f"buffer {buffer.name} is padded in more than three dimensions")
    missing = 4 - len(extent)
    return [1] * missing + extent, [0] * missing + stride
