"""Runs a reference kernel, and checks that its results do not depend on what was in memory before.

It runs three times, each time with other words in memory that it must not read: in outputs, scratch and local memory
before it runs, and beyond the ends of buffers. Results that differ depend on these words. Results that vary from run to
run anyway, as sums by atomics do, prove nothing: values within the tolerance of each other are ignored, and so are
values that differ in another run with the same words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.bench.arena import Arena
from autotune.bench.launcher import Announce, Launcher, Stopwatch
from autotune.bench.prepare import Compiled, bind, compile_plan
from autotune.bench.readback import bits_differ, bytes_of, contents, element
from autotune.bench.report import Fault
from autotune.bench.signature import check_signatures
from autotune.bench.timing import Limits
from autotune.bench.unwritten import is_unwritten, left_alone, unmoved, unwritten_in
from autotune.bench.verify import Checker
from autotune.bench.words import POISON, spoilt
from autotune.devices import Session
from autotune.model import Outcome
from autotune.study import Buffer, Leaf, Plan, Tolerance, leaves, member_of, numpy_type

_AGAIN_NS, _AGAIN_BYTES = 1_000_000_000, 2**28
"""A reference that takes longer, or whose outputs are larger, runs only once."""


class ReferenceBench:
    """Runs references on one session, on buffers of its own. `announce` is called before each phase.

    `hints` may say what is wrong with the current reference.
    """

    def __init__(
        self, session: Session, inputs: Mapping[str, NDArray[Any]], limits: Limits, announce: Announce
    ) -> None:
        self._session = session
        self._inputs = inputs
        self._limits = limits
        self._announce = announce
        self.hints: tuple[str, ...] = ()

    def reference(self, plan: Plan) -> dict[str, NDArray[Any]]:
        """Return the outputs of a reference, in their logical shapes, and the values of its checks.

        Raises Fault, also if it leaves an output as it was, or if its results depend on what was in memory.
        """
        outputs = {buffer.name: buffer for buffer in plan.buffers if buffer.name in plan.outputs}
        self._announce("build", self._limits.build_s)
        scalars = [leaf.scalar for buffer in outputs.values() for leaf in leaves(buffer.type)]
        self._checker = Checker(self._session, {}, self._inputs, scalars)
        self.hints = tuple(check_signatures(self._session, plan, placed=False))
        compiled = compile_plan(self._session, plan)
        found, run_ns = self._run(plan, compiled)
        if run_ns <= _AGAIN_NS and sum(buffer.nbytes for buffer in outputs.values()) <= _AGAIN_BYTES:
            self._require_own(plan, compiled, outputs, found)
        for name, buffer in outputs.items():
            if buffer.access == "out" and is_unwritten(found[name]):
                raise Fault(Outcome.WRONG_RESULT, f"the reference writes nothing to {name}, or adds to its old values")
        alone = left_alone(found, self._inputs)
        if not plan.checks and {*alone} >= outputs.keys():
            raise Fault(Outcome.WRONG_RESULT, unmoved(alone))
        return found

    def _require_own(
        self, plan: Plan, compiled: Compiled, outputs: Mapping[str, Buffer], found: Mapping[str, NDArray[Any]]
    ) -> None:
        """Raise Fault if the reference gives other results with other words in memory."""
        places = {name: np.zeros(buffer.shape, np.bool_) for name, buffer in outputs.items()}
        small = [(one, leaf) for one in outputs.values() for leaf in leaves(one.type) if _is_small(leaf)]
        left: dict[tuple[Buffer, Leaf], Any] = dict.fromkeys(small, True)  # values that held each run's word at the end
        for turn in (1, 2):
            other, _ = self._run(plan, compiled, turn)
            for name, buffer in outputs.items():
                word = spoilt(buffer.type)[turn]
                places[name] |= _differing(buffer, found[name], other[name], plan.outputs[name], word)
            for buffer, leaf in [*left]:
                mine, theirs = (member_of(data[buffer.name], leaf) for data in (found, other))
                left[buffer, leaf] &= _both_left(mine, theirs, spoilt(buffer.type)[turn]).reshape(mine.shape)
                if not left[buffer, leaf].any():
                    del left[buffer, leaf]
        if left and not any(unwritten_in(buffer, found[name]) for name, buffer in outputs.items()):
            buffer, leaf = next(iter(left))
            raise _left(buffer, leaf, left[buffer, leaf])
        if any(differs.any() for differs in places.values()):
            scratch = any(buffer.access == "scratch" for buffer in plan.buffers)
            again, _ = self._run(plan, compiled)
            for name, buffer in outputs.items():
                by_itself = _differing(buffer, found[name], again[name], plan.outputs[name])
                _require_own(buffer, places[name] & ~by_itself, scratch=scratch)

    def _run(self, plan: Plan, compiled: Compiled, turn: int = 0) -> tuple[dict[str, NDArray[Any]], int]:
        """Run a reference once, on new buffers filled with words number `turn`; return its results, and its ns.

        With turn 0, outputs are filled with the mark of unwritten values. Raises Fault.
        """
        self._checker.forget()
        arena = Arena(self._session, self._inputs, first=turn, marked=turn == 0)
        built = bind(self._session, arena, self._checker, plan, compiled)
        launcher = Launcher(self._session, arena, self._limits, self._announce, Stopwatch())
        run_ns = launcher.once(built, self._limits.first_s)
        written = [guarded for guarded in built.buffers if guarded.buffer.name in plan.outputs]
        found = {guarded.buffer.name: np.ascontiguousarray(contents(self._session, guarded)) for guarded in written}
        found |= self._checker.values(built.buffers, plan.checks)
        if reason := self._checker.check(built.buffers, {}).reason:
            raise Fault(Outcome.WRONG_RESULT, reason)
        return found, run_ns


def _require_own(buffer: Buffer, foreign: NDArray[np.bool_], *, scratch: bool) -> None:
    """Raise Fault if there are `foreign` elements: they depend on what was in memory before, or on a race."""
    if foreign.any():
        name = buffer.name
        where = element(name, foreign.shape, int(foreign.reshape(-1).argmax()))
        what = f"its result for {name} depends on what was in memory before, first {where}"
        adds = f'if it adds to what {name} holds, write access = "inout" with data; else ' * (buffer.access == "out")
        zeroed = ' (for scratch that must start with zeros, write access = "zeroed")' * scratch
        cures = f"{adds}it reads unwritten memory{zeroed}, or what other work-items write meanwhile (missing barrier?)"
        raise Fault(Outcome.WRONG_RESULT, f"{what}: {cures}, or beyond the end of a buffer")


def _is_small(leaf: Leaf) -> bool:
    return numpy_type(leaf.scalar)[0].itemsize % 4 != 0


def _left(buffer: Buffer, leaf: Leaf, left: NDArray[np.bool_]) -> Fault:
    """Return the fault of a reference that leaves only a few small values as they were, which a single run cannot show.

    Otherwise there would be no warning, and later, with other poison, each configuration that also leaves them would be
    wrong.
    """
    what = f"it leaves {element(buffer.name, left.shape, int(left.argmax()), leaf.label, len(buffer.shape))} unwritten"
    cure = 'if that is meant, write access = "inout" with data = { distribution = "constant", value = 0 }'
    return Fault(Outcome.WRONG_RESULT, f"{what}: {cure}")


def _differing(
    buffer: Buffer, one: NDArray[Any], other: NDArray[Any], tolerance: Tolerance, word: int | None = None
) -> NDArray[np.bool_]:
    """Return a mask of an output's elements whose bits differ.

    Floating-point numbers within the tolerance of each other do not count as different. Neither do values that both
    runs left unwritten, if the outputs of the `other` run were filled with `word`.
    """
    found = np.zeros(math.prod(buffer.shape), np.bool_)
    for leaf in leaves(buffer.type):
        mine, theirs = (member_of(data, leaf) for data in (one, other))
        differs = bits_differ(mine, theirs)
        if mine.dtype.kind == "f" and differs.any():
            differs[differs] = ~_near(mine.reshape(-1)[differs], theirs.reshape(-1)[differs], tolerance)
        if word is not None and differs.any():
            differs &= ~_both_left(mine, theirs, word)
        found |= differs.reshape(len(found), -1).any(axis=1)
    return found.reshape(buffer.shape)


def _near(one: NDArray[Any], other: NDArray[Any], tolerance: Tolerance) -> NDArray[np.bool_]:
    mine, theirs = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(all="ignore"):  # no NaN is near
        return np.asarray(np.abs(mine - theirs) <= tolerance.absolute + tolerance.relative * np.abs(mine))


def _both_left(one: NDArray[Any], other: NDArray[Any], word: int) -> NDArray[np.bool_]:
    """Return a flat mask of the values that hold only poison in `one`, and only `word` in the `other` run.

    A value begins at the same byte of a word in both runs, so a computed number cannot match both.
    """
    mine, theirs = bytes_of(one), bytes_of(other)
    found = np.zeros(len(mine), np.bool_)
    for phase in range(4) if mine.shape[1] % 4 else range(1):
        rolled = (np.roll(np.frombuffer(np.uint32(each).tobytes(), np.uint8), -phase) for each in (POISON, word))
        first, second = (np.resize(each, mine.shape[1]) for each in rolled)
        found |= (mine == first).all(axis=1) & (theirs == second).all(axis=1)
    return found
