"""Quotients and remainders of sums with variables, and sums in which these are combined again."""

from __future__ import annotations

from functools import cached_property

from autotune.study.drafting.findings import Guard, Quotient
from autotune.study.drafting.guarding import Guards
from autotune.study.drafting.terms import Sum, counted_through, put_together, quotient, remainder, with_ids


class Divided(Guards):
    """Scopes with the divisions in them."""

    @cached_property
    def _takes(self) -> frozenset[str]:
        """The names of the kernel's arguments."""
        return frozenset(self._kernel.functions[self._kernel.entry].takes)

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
