"""Proposals for the extents of buffers, from what was read of a kernel's indices."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from math import gcd
from typing import NamedTuple

from autotune.study.drafting.findings import Mention
from autotune.study.drafting.images import BEYOND, Images
from autotune.study.drafting.indices import Level, Rows, rows_of_ids, shared_out, words
from autotune.study.drafting.terms import Sum, divided, factors_of, is_multiple, taken_off


def product(shape: Sequence[Sum]) -> Sum:
    """Return the number of elements of a shape."""
    total = Sum.of(1)
    for extent in shape:
        total = total * extent
    return total


class _Told(NamedTuple):
    """What an index tells of its buffer: the extents of a row, and the limit of what counts the rows.

    `number`: what the index adds to that count; `stored`: whether the place is written; `bounded`: whether a guard
    bounds the whole index, or the limit is the length of rows along which ids count.
    """

    inner: tuple[Sum, ...]
    limit: Sum
    number: int
    stored: bool
    bounded: bool

    @property
    def kind(self) -> Sum:
        """The limit without its number."""
        return self.limit - self.limit.constant


class Shapes(Images):
    """The extents that one kernel's reading tells."""

    def _of_several(self, index: Sum, rows: Rows) -> Rows:
        """Return an index's rows, split further if elements are several numbers: `2 * (y * W + x)` counts pairs."""
        several = gcd(*(factor for product, factor in index.terms.items() if product))
        counted, extent = self._levels(index)[-1].counted, rows.extents[-1]
        limit = self.upper(counted) if several > 1 else None
        row = next(iter(extent.terms), ())
        if limit is None or limit.terms.get(row, 0) < 2 * extent.terms.get(row, 1):
            return rows
        outer = self._rows(shared_out(index, several))
        return rows if outer is None else Rows(outer.counted, [*outer.extents, Sum.of(several)])

    def _begun(self, value: Sum) -> Sum:
        """Replace variables that change only later by their first values."""
        either = value.names & self.reading.either.keys()
        if not either:
            return value
        for name in either - {name for guard in self.reading.guards for name in guard.varying.names}:
            one, other = self.reading.either[name]
            value = value.with_value(name, one) if one == other else value
        return value

    def _from_starts(self, index: Sum, argument: str) -> Sum:
        """Add their unknown starts to the variables of loops without a known end, and note the doubt.

        They may get far, unless something else that the loop steps tells the number of turns.
        """
        index = self._in_turns(index)
        for name in sorted(index.names & self.reading.loops.keys()):
            if self.upper(Sum.of(name)) is not None:
                continue
            start = self.reading.loops[name].start
            self.doubts[argument] = BEYOND
            index = index if start.known else index.with_value(name, start + Sum.of(name))
        return index

    def _spread(self, index: Sum, axis: int) -> Sum:
        """Replace an id that a loop steps by the global size by one variable that counts all places."""
        if axis not in self.each or axis not in self.wholes or self._over_launch(index, axis) != self.each[axis]:
            return index
        self._turns[f"spread.#{axis}"] = self.wholes[axis]
        return index.with_value(f"gsz#{axis}", Sum()).with_value(f"gid#{axis}", Sum.of(f"spread.#{axis}"))

    def _as_guarded(self, index: Sum) -> Sum:
        """Replace each sum that a guard bounds by one variable, and subtract the same on both sides if the index does.

        In `(y + k - b) * W` after `y + k < H + b`, the variable is below H.
        """
        guards = sorted(self.reading.guards, key=lambda guard: -len(guard.varying.terms))
        for count, (varying, limit) in enumerate(guards):
            held = next(iter(varying.terms))
            among = [(product, rest) for product in index.terms if (rest := divided(product, held)) is not None]
            for each, rest in among if len(varying.terms) > 1 else ():
                by = Sum([(rest, 1)]) * Sum.of(index.terms[each] // varying.terms[held])
                if (
                    not by
                    or not by.known
                    or any(index.terms.get(p) != n for p, n in varying.expanded(by).terms.items())
                ):
                    continue
                terms = [Sum([term]) for term in limit.terms.items()]
                off = sum((each for each in terms if taken_off(index, each.expanded(by))), Sum())
                name = f"guarded.#{count}"
                self._turns[name] = self._named(limit - off)
                index = index - (varying - off).expanded(by) + Sum.of(name) * by
        return index

    def along_rows(self) -> set[str]:
        """Return the sizes that bound how far a kernel goes along rows whose length is another size."""
        rows = [limits for extent, limits in self._bounded_rows if not {*words(str(extent))} & self._small]
        return set[str]().union(*rows) - self._small

    def divisors(self) -> set[str]:
        """Return the sizes in divisors of whole-number quotients, whether or not an extent depends on them."""
        told = (quotient.by.names for quotient in self.reading.quotients.values())
        return set[str]().union(*told) - self._small

    def padded(self) -> set[str]:
        """Return the lengths of rows along which another size bounds how far to go: then a `stride` is not small."""
        return {str(extent) for extent, limits in self._bounded_rows if limits - {str(extent)} - self._small}

    def row_lengths(self) -> Iterator[tuple[str, int, Sum]]:
        """Yield sizes that are row lengths, how many of their units make a place (4 if bytes), and the rows' bounds."""
        for extent, counted in self._along_rows:
            told = re.fullmatch(r"([A-Za-z_]\w*)(?: // (\d+))?", str(extent))
            most = self.upper(counted) if told and told[1] in self._sizes else None
            if told and most is not None and most.known and told[1] not in words(str(most)):
                yield told[1], int(told[2] or 1), most

    @cached_property
    def _bounded_rows(self) -> list[tuple[Sum, set[str]]]:
        """The lengths of rows, each with the sizes that bound the sums that count along them."""
        found = []
        for extent, counted in self._along_rows:
            along = [guard for guard in self.reading.guards if set() < guard.varying.names <= counted.names]
            found.append((extent, {limit for guard in along if (limit := str(guard.limit)) in self._sizes}))
        return found

    @cached_property
    def _along_rows(self) -> list[Level]:
        """The lengths of rows, each with the sum that counts along them."""
        places = (mention.places[0] for mention in self.reading.mentions if len(mention.places) == 1)
        levels = (level for place in dict.fromkeys(places) for level in self._levels(self._begun(place))[1:])
        return [level for level in levels if self._sized(level.extent)]

    # -- shapes -----------------------------------------------------------------------------------

    def shape(self, name: str, *, written: bool, farthest: bool = False, local: bool = False) -> list[Sum] | None:
        """Return the extents of a buffer, row by row; None if its indices do not tell them.

        The extents that most indices tell are used, since rims may be left out in ways that are not read; or those of
        the `farthest` index. In `local` memory, which holds what was written, reads at places that a loop halves do not
        count.
        """
        found = self._all_told(self.reading.filled(name) if local else self.reading.of(name), farthest=farthest)
        if name in self.reading.unread:
            self.doubts[name] = BEYOND
        if not found:
            return None
        inner, kind = self._usual(found, farthest=farthest)
        alike = [each for each in found if each.inner == inner and each.kind == kind]
        # Neighbours on both sides of bounded places: the rim is left out in a way that was not read.
        plainly = any(not each.number and not each.limit.constant for each in alike)
        beyond = max(each.limit.constant for each in alike)
        stored = [each for each in found if each.stored]
        if plainly and ((written and stored) or min(each.number for each in alike) < 0):
            beyond = max((each.limit.constant for each in stored if each.kind == kind), default=0)
        if name in self.reading.rimmed or (inner and 0 < -beyond < gcd(*factors_of(kind))):
            beyond = max(beyond, 0)  # whole elements: with `3 * y * W + x`, the rows after the last exist too
        shape = [kind + beyond, *map(self._named, inner)]
        reached = max(self.elements([each.limit, *each.inner]) for each in found)
        if not plainly and reached > self.elements(shape):
            self.doubts[name] = BEYOND
        return shape

    def _all_told(self, mentions: Sequence[Mention], *, farthest: bool) -> list[_Told]:
        """Return what each mention of a buffer tells, with the comparisons that hold there."""
        found = list[_Told]()
        for mention in mentions:
            self._here = self.holding(mention)
            if (told := self._told(mention, farthest=farthest)) is not None:
                found.append(told)
        self._here = []
        return found

    def _usual(self, found: Sequence[_Told], *, farthest: bool) -> tuple[tuple[Sum, ...], Sum]:
        """Return the extents of a row and the limit of rows, without its number, that most indices tell.

        Of those with the longest rows; a guard may bound a larger multiple of the same limit.
        """
        rows = max(len(each.inner) for each in found)
        counted = Counter((each.inner, each.kind) for each in found if len(each.inner) == rows)

        def most_of(told: tuple[tuple[Sum, ...], Sum]) -> float:
            inner, kind = told
            return self.elements([kind, *inner])

        if farthest:
            inner, kind = max(counted, key=most_of)
        else:
            inner, kind = max(counted, key=lambda told: (self._sized(told[1]), counted[told], most_of(told)))
        guarded = [each.kind for each in found if each.bounded]
        return inner, max([kind, *(each for each in guarded if not inner and is_multiple(each, kind))], key=factors_of)

    def _told(self, mention: Mention, *, farthest: bool) -> _Told | None:
        """Return what an index tells of its buffer; None if that is nothing, which is noted as a doubt."""
        index = self._from_starts(self._begun(mention.places[0]), mention.name)
        index = self._grouped(index) if farthest else index
        whole = bool(self.reading.guards_of(index))
        index = self._as_guarded(index) if self._strided(index) and not whole else index
        for axis, extent in self.axes.items() if not whole else ():
            index = self._spread(index, axis).with_value(f"gsz#{axis}", extent)
        index = self._factored(index)
        ended = self._ended(index)
        flat = whole and (self._strided(index) or ended is not None)
        rows = Rows(index, []) if flat else self._rows(index)
        if ended is not None and (across := self._rows(index)) is not None and ended.over(product(across.extents)):
            rows = across
        rows = self._of_several(index, rows) if rows is not None and rows.extents else rows
        limit = None if rows is None else self.upper(rows.counted)
        if limit is None and (apart := self._rows(self._as_guarded(index))) is not None and not ended:
            rows, limit = apart, self.upper(apart.counted)
        if rows is not None and rows.extents and ended is not None:
            limit = ended.over(product(rows.extents))
        if rows is None or limit is None or not limit.known:
            if not index.names & self.reading.contents.keys():  # contents are bounded by their data
                self.doubts[mention.name] = BEYOND
            return None
        bounded = whole or bool(limit.names & self._by_items)
        return _Told(tuple(rows.extents), limit, rows.counted.constant, stored=mention.writes, bounded=bounded)

    @cached_property
    def _by_items(self) -> set[str]:
        """The lengths of rows along which ids count."""
        return rows_of_ids(self.reading)

    def _ended(self, index: Sum) -> Sum | None:
        """Return the limit of a whole index of rows, `n` in `y * W + x < n` or `y * W + x - r < n`; None if none."""
        strided = any("#" not in name for product in index.varying for name in product)
        alike = self.reading.guards_of(index)
        beyond = ((index - varying, limit) for varying, limit in alike if self._sized(limit))
        ends = (limit + rest for rest, limit in beyond if not rest or rest.number is None)
        return next(ends, None) if strided else None
