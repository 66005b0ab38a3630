"""The bounds of sums: what their variables stay below, by guards, the launch and the turns of loops."""

from __future__ import annotations

from abc import ABC
from math import gcd

from autotune.study.drafting.axes import extent_of
from autotune.study.drafting.findings import Guard, Loop
from autotune.study.drafting.indices import Basis, tile_of
from autotune.study.drafting.launches import Launches
from autotune.study.drafting.terms import Sum, undivided


def _ahead(varying: Sum, limit: Sum, rest: Sum) -> Sum:
    """Return the bound of `varying + rest` if `varying` stays below a limit.

    In a sum that counts in fours, three more is the last of a four.
    """
    step, ahead = gcd(*varying.terms.values()), rest.number or 0
    if not 0 < ahead < step or limit.constant:  # with `i + 4 <= n` the last is n - 1
        return limit + rest
    whole = all(factor % step == 0 for factor in limit.terms.values())
    return (limit if whole else Sum.of(f"round_up({limit}, {step})")) - step + ahead + 1


class Limits(Launches, ABC):
    """The bounds that one kernel's reading tells."""

    def __init__(self, basis: Basis) -> None:
        self._turns: dict[str, Sum] = {}
        """The bounds of variables that stand for the turns of loops, or for other counted sums."""
        self._here: list[Guard] = []
        """The guards that hold where the place is that is looked at, if it is known where."""
        super().__init__(basis)

    def upper(self, value: Sum, depth: int = 0) -> Sum | None:
        """Return the bound that a sum stays below; None if nothing tells one."""
        if value.known:
            return self._named(value) + 1
        if depth > 5:
            return None
        alike = self.reading.guards_of(value)
        alike = [guard for guard in alike if guard in self._here] or alike
        if stated := [_ahead(varying, limit, value - varying) for varying, limit in alike]:
            return self._plainest(stated)
        loops = self.reading.loops
        if any(loops[name].through for name in value.names & loops.keys()):
            name = "ENTRIES" if "ENTRIES" not in self._taken else "ENTRIES_"
            self.made[name] = "guess: how many entries the rows hold in all"
            return Sum.of(name)
        if (tiled := next((axis for axis in self.tiles if tile_of(value, axis) is not None), None)) is not None:
            return self.axes[tiled] + max(value.constant, 0)
        return self._by_variables(value, depth)

    def _plainest(self, stated: list[Sum]) -> Sum:
        """Return the plainest of the bounds that guards state; of those that differ from it by a number, the least."""
        first = min(stated, key=lambda each: (not self._sized(each), len((each - each.constant).terms)))
        near = [each for each in stated if (each - first).number is not None]
        return self._named(min(near, key=lambda each: (len(each.terms), each.constant)))

    def _by_variables(self, value: Sum, depth: int) -> Sum | None:
        """Return the bound of a sum by those of its variables."""
        total = value.fixed + 1
        for name in sorted(value.names):
            if "#" not in name:
                continue
            factor, below = value.factor_of(name), self._of_variable(name, depth)
            taken_off = factor.known and all(each < 0 for each in factor.terms.values())
            if taken_off and (least := self._least(name)) is not None:
                total += factor * least
            elif factor != Sum.of(1) and (most := self._of_multiples(Sum.of(name) * factor)) is not None:
                total += most
            elif below is None or not factor.known or any(each < 0 for each in factor.terms.values()):
                return None
            else:
                total += factor * below - factor
        return undivided(self._named(total))

    def _of_multiples(self, value: Sum) -> Sum | None:
        """Return the largest value of a variable's multiples, `WPT * item`, if a guard bounds just these; or None."""
        step = gcd(*value.terms.values())
        alike = [guard for guard in self.reading.guards if guard.varying == value]
        limit = next((guard.limit for guard in (*filter(self._here.__contains__, alike), *alike)), None)
        if limit is None or not self._sized(limit):
            return None
        return limit - 1 if step == 1 else _ahead(value, limit, Sum.of(step - 1)) - step

    def _least(self, name: str) -> Sum | None:
        """Return a variable's smallest value, `-R` in `for (j = -R; j <= R; j++)`; 0 for ids; None if it is unknown."""
        if name.partition("#")[0] in ("gid", "lid", "wid", "masked.") or "%" in name:
            return Sum()
        loop = self.reading.loops.get(name)
        if loop is None or not loop.start.known or loop.fall is not None:
            return None
        rises = loop.known_step is not None and min(loop.known_step.terms.values(), default=0) > 0
        return self._named(loop.start) if rises or (loop.start.number or 0) > 0 or not loop.start else None

    def _of_variable(self, name: str, depth: int) -> Sum | None:
        kind, _, axis = name.partition("#")
        if name in self._turns:
            return self._turns[name]
        if kind == "gid":
            return self.axes.get(int(axis))
        if kind in ("lid", "lsz"):
            local = self._local[int(axis)] if int(axis) < len(self._local) else "1"
            return extent_of(local) + (kind == "lsz")
        if kind in ("wid", "ngr"):
            groups = self._groups(int(axis))
            return None if groups is None else groups + (kind == "ngr")
        if kind == "gsz":
            return self.axes[int(axis)] + 1 if int(axis) in self.axes else None
        either = [self.upper(self._unmoved(value), depth + 1) for value in self.reading.either.get(name, ())]
        if len(told := [limit for limit in either if limit is not None]) == 2:
            return max(told, key=lambda limit: self.elements([limit]))
        loop = self.reading.loops.get(name, Loop(Sum()))
        if loop.through or self.reading.limits_of(Sum.of(name)):
            return self.upper(Sum.of(name), depth + 1)
        if loop.fall is not None:
            return self.upper(loop.start, depth + 1)
        quotient = self.reading.quotients.get(name)
        most = self.upper(quotient.value, depth + 1) if quotient is not None and quotient.by.known else None
        if quotient is None or most is None or not most.known:
            return None
        return most.over(quotient.by) or Sum.of(f"ceil_div({most}, {quotient.by})")

    def _unmoved(self, value: Sum) -> Sum:
        """Replace a variable that nothing steps by its start; return other sums unchanged."""
        loop = self.reading.loops.get(str(value))
        return loop.start if loop and loop.step is None and not loop.moved and loop.start.known else value

    def _in_turns(self, index: Sum) -> Sum:
        """Replace variables that a loop steps beside its bounded one by their start plus turns times steps."""
        for name in sorted(index.names & self.reading.loops.keys()):
            loop = self.reading.loops[name]
            turns = self.reading.turns(name) if loop.known_step is not None else None
            if turns is not None and loop.known_step is not None and self.upper(Sum.of(name)) is None:
                turn = f"turn.#{loop.head or name}"
                self._turns[turn] = self._named(turns)
                index = index.with_value(name, loop.start + Sum.of(turn) * loop.known_step)
        return index
