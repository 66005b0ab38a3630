"""The upper bounds of variables that comparisons, quotients and remainders in a kernel tell."""

from __future__ import annotations

from functools import cached_property

from autotune.study.drafting.findings import Guard, Quotient
from autotune.study.drafting.scopes import Kernel, Scopes
from autotune.study.drafting.terms import Sum, counted_through, put_together, quotient, remainder, with_ids


class Guards(Scopes):
    """Scopes with the bounds of their variables, and the divisions of these."""

    def __init__(self, kernel: Kernel, *, through: bool) -> None:
        super().__init__(kernel, through=through)
        self._minima: dict[str, list[Sum]] = {}

    @cached_property
    def _takes(self) -> frozenset[str]:
        """The names of the kernel's arguments."""
        return frozenset(self._kernel.functions[self._kernel.entry].takes)

    def _compared(self, operator: str, left: Sum, right: Sum) -> None:
        """Note a variable's upper bound, whether the comparison lets the variable pass or turns it away."""
        passing, turned = left - right, right - left
        rim = passing if not right else turned if not left else None  # `place - rim < 0` bounds no place
        pairs = {"<": (passing, turned - 1), ">=": (turned - 1, passing), "<=": (passing - 1, turned)}
        forms = pairs.get(operator, (turned, passing - 1))
        for turned_away, form in zip((False, True), forms, strict=True):
            if rim is None or (form - rim).number is None:
                for each in self._without_minima(form):
                    self._guard(each, turned_away, plain_number=self._in_condition and not turned_away)

    def _without_minima(self, form: Sum) -> list[Sum]:
        for name in form.names & self._minima.keys():
            return [each for part in self._minima[name] for each in self._without_minima(form.with_value(name, part))]
        return [form]

    def _guard(self, form: Sum, turned_away: bool, *, plain_number: bool) -> None:
        """Note that a sum is less than 0: its variables, if their factors are positive, stay below the negated rest."""
        self.found.note_span(form)
        fixed = form.part(lambda product: all("#" not in name or name[:4] == "lsz#" for name in product))
        varying, rest = form - fixed, -fixed
        for name in [name for name in varying.names if varying.factor_of(name) == Sum.of(-1)]:
            if (most := self._left_over(name)) is not None:  # in `x - x % 8 < n`, x is at most 7 farther
                varying, rest = varying + Sum.of(name), rest + most
        ends = {name for name in varying.names if name in self.found.contents and varying.factor_of(name) == Sum.of(-1)}
        if ends:
            array = self.found.contents[min(ends)]
            for name in (varying.names - ends) & self.found.loops.keys():
                loop = self.found.loops[name]
                if any(array == self.found.contents.get(each) for each in loop.start.names):
                    loop.through = array
        elif varying and all(factor > 0 for factor in varying.terms.values()) and (rest.names or plain_number):
            self.found.note_guard(Guard(varying, rest), turns_away=turned_away)
            name = min(varying.names)
            if name in self.found.quotients and varying == Sum.of(name):  # a // b < n is a < n * b
                value, by = self.found.quotients[name]
                self._guard(value - rest * by, turned_away, plain_number=False)

    def _left_over(self, name: str) -> Sum | None:
        """The largest value of a remainder or of a masked value; None for other variables."""
        if "%" not in name and not name.startswith("masked."):
            return None
        return next((limit - 1 for limit in self.found.limits_of(Sum.of(name))), None)

    def _minimum(self, parts: list[Sum]) -> Sum:
        atom = self._fresh("min")
        (name,) = atom.names
        self._minima[name] = parts
        self.found.guards += [Guard(atom, part + 1) for part in parts if part.known]
        return atom

    def _with_ids(self, value: Sum) -> Sum:
        value = with_ids(value)
        for name in value.names & self.found.quotients.keys():
            value = put_together(value, name, *self.found.quotients[name])
        through = counted_through(value) if self._through else value
        self.found.ids.through |= {
            axis for axis in (1, 2) if {f"gid#{axis}", f"wid#{axis}"} & value.names - through.names
        }
        return through

    def _quotient(self, value: Sum, by: Sum) -> Sum:
        found = quotient(value, by)
        if len(found.names) == 1 and not found.known:
            self.found.quotients[min(found.names)] = Quotient(value, by)
        return found

    def _remainder(self, value: Sum, by: Sum) -> Sum:
        found = remainder(value, by)
        if not found.known:
            self.found.guards.append(Guard(found, by))
        return found

    def _masked(self, value: Sum, mask: Sum) -> Sum:
        """Return `value & mask`: a remainder if one more than the mask is a power of two; a macro is taken for one."""
        by = mask + 1
        named = not by.constant and len(by.terms) == 1 and by.names.isdisjoint(self._takes)
        if named or (by.number is not None and by.number > 1 and by.number.bit_count() == 1):
            return self._remainder(value, by)
        masked = self._fresh("masked")
        self.found.guards.append(Guard(masked, by))
        return masked

    def _divided_by(self, value: Sum, taken: Sum) -> Sum | None:
        """Return the divisor if a value's quotient times the divisor is subtracted: W in `n - n / W * W`; else None."""
        for name in taken.names & self.found.quotients.keys():
            whole, by = self.found.quotients[name]
            if whole == value and taken == Sum.of(name) * by:
                return by
        return None
