"""Split indices into rows and the sums that count along the rows."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from autotune.errors import UsageError
from autotune.expression import Expression
from autotune.study.drafting.reading import EXTENT, Reading
from autotune.study.drafting.terms import Product, Sum, divided, spread_out


def words(text: str) -> list[str]:
    """Return the names and numbers in a text."""
    return re.findall(r"\w+", text)


def tile_of(counted: Sum, axis: int) -> Sum | None:
    """Return the number of places that a sum gives each work-group: TILE in `group * TILE + item`; None for others."""
    groups = [name for name in counted.names if name.startswith(("wid#", "gid#"))]
    tile = counted.factor_of(f"wid#{axis}")
    several = bool(tile.names) or (tile.number or 0) > 1
    items = any(counted.factor_of(name) == Sum.of(1) for name in counted.names if "lid#" in name)
    return tile if groups == [f"wid#{axis}"] and tile.known and several and items else None


def shared_out(value: Sum, several: int) -> Sum:
    """Return a sum with each factor divided by a number."""
    return Sum((product, factor // several) for product, factor in value.terms.items())


def coordinates(reading: Reading) -> set[Sum]:
    """Return the coordinates at which images are read and written: a factor in these is no length of rows."""
    return {place for mention in reading.mentions if len(mention.places) > 1 for place in mention.places}


def rows_of_ids(reading: Reading, axes: Sequence[int] = (0, 1, 2)) -> set[str]:
    """Return the names that alone are the length of rows along which global ids count: N in `2 * N + id`."""
    found = set[str]()
    for place in {*reading.places} - coordinates(reading):
        products = [product for product in place.terms if product]
        ids = [each for each in products if each in [(f"gid#{axis}",) for axis in axes] and place.terms[each] == 1]
        others = [each for each in products if each not in ids]
        known = {tuple(name for name in each if "#" not in name) for each in others}
        several = any(place.terms[each] > 1 or len(each) > 1 for each in others)  # in `id + N`, N may be an offset
        if several and len(ids) == len(known) == 1 and len(row := known.pop()) == 1:
            found |= {*row}
    return found


def row_by_numbers(place: Sum, variable: str) -> int:
    """Return the length of the row along which a variable counts: 64 in `64 * y + x` for x; 0 if no number tells."""
    each = place.factor_of(variable).number or 0
    steps = (place.factor_of(name).number or 0 for name in place.names if "#" in name)
    return min((step for step in steps if step > each > 0), default=0)


def items_by_numbers(place: Sum, axis: int) -> int:
    """Return the number of items along an axis in such a row; 0 if none tells."""
    each, row = place.factor_of(f"gid#{axis}").number or 0, row_by_numbers(place, f"gid#{axis}")
    return row // each if row and row % each == 0 else 0


def _only_taken_off(counted: Sum) -> bool:
    """Whether a sum has variables and only negative factors: it counts no rows."""
    return not counted.known and max(counted.terms.values()) < 0


@dataclass(frozen=True)
class Basis:
    """What the proposals for one kernel's launch and extents start from.

    `sizes`: its whole numbers, and whether each is small; `local`: the extents of its work-group. Sizes that have to be
    made up are added to `made`, under names that are not `taken`. `each`: the number of places that an item writes
    along axes that nothing bounds, if it is known already.
    """

    reading: Reading
    sizes: Mapping[str, bool]
    local: Sequence[str]
    taken: Collection[str]
    made: dict[str, str]
    each: Mapping[int, Sum]


class Level(NamedTuple):
    """An axis of an index: its extent, 0 for the outermost, and what counts along it."""

    extent: Sum
    counted: Sum


class Rows(NamedTuple):
    """An index as rows: what counts them, and the extents of a row, none if the index has no rows."""

    counted: Sum
    extents: list[Sum]


class Indices(ABC):
    """The indices of one kernel."""

    def __init__(self, basis: Basis) -> None:
        self.reading, self._sizes, self.made = basis.reading, basis.sizes, basis.made
        self._small = {name for name, small in basis.sizes.items() if small}

    @abstractmethod
    def upper(self, value: Sum, depth: int = 0) -> Sum | None:
        """Return the bound that a sum stays below; None if nothing tells one."""

    def _started(self, value: Sum) -> Sum:
        return self.reading.started(value)

    def _ids(self, value: Sum) -> set[int]:
        """The axes whose ids are in a sum, also within the text of names."""
        return {axis for axis in range(3) for name in value.names if f"gid#{axis}" in name or f"wid#{axis}" in name}

    def _sized(self, value: Sum) -> bool:
        named = {word for name in value.names for word in words(name)}
        return bool(named & {*self._sizes, *self.made}) or any(EXTENT in name for name in value.names)

    def elements(self, shape: Sequence[Sum]) -> float:
        """Return the number of elements of a shape with some number for each name, to compare shapes."""
        limits = [guard.limit for guard in self.reading.guards]
        taken_off = [product[0] for limit in limits for product, n in limit.terms.items() if n < 0 < len(product)]
        exponents = re.findall(r"\*\* (\w+)", " ".join(map(str, shape)))
        small = {*self._small, *taken_off, *exponents}
        total = 1.0
        for extent in shape:
            text = str(extent).replace(EXTENT, "image_extent_")
            names = {name: 3 if name in small else 512 + 64 * (sum(map(ord, name)) % 7) for name in words(text)}
            try:
                total *= float(Expression.parse(text).evaluate(names))
            except (UsageError, ArithmeticError, ValueError):
                return 0.0
        return total

    def _strided(self, index: Sum) -> bool:
        return any("gsz#" in name for name in index.names)

    def _factored(self, index: Sum) -> Sum:
        """Return an index with each stride that is a sum as one factor: `(W + 2)` in `y * W + 2 * y + W + 2`."""
        for name in sorted(name for name in index.names if "#" in name):
            stride = index.factor_of(name)
            factor = next(iter(stride.terms), ("",)) if len(stride.terms) == 1 else ()
            if len(factor) == 1 and (told := spread_out(factor[0])) is not None:  # whole strides may be added too
                skipped = next(filter(None, (self._whole(index.fixed, told, of) for of in told.terms)), Sum())
                index = index - skipped.expanded(told) + skipped * Sum.of(factor[0])
            if not stride.known or len(stride.terms) < 2 or min(stride.terms.values()) < 0 or not self._sized(stride):
                continue
            if stride.terms.get(()) == 1:  # `i * N + i` is a diagonal; rows of N + 1 are written as `i * (N + 1)`
                continue
            rest = index - Sum.of(name).expanded(stride)
            skipped = next(filter(None, (self._whole(rest.fixed, stride, of) for of in stride.terms)), Sum())
            index = rest - skipped.expanded(stride) + (Sum.of(name) + skipped) * stride.as_factor()
        return index

    def _whole(self, value: Sum, stride: Sum, of: Product) -> Sum:
        """How often a known sum contains a stride, by one of its products; 0 if subtracting that removes no product."""
        held = [(divided(product, of), n) for product, n in value.terms.items()] if of else []
        found = Sum((rest, n // stride.terms[of]) for rest, n in held if rest is not None)
        left = value - found.expanded(stride)
        return found if left.terms.keys() < value.terms.keys() else Sum()

    def _rows(self, index: Sum) -> Rows | None:
        """Return an index as rows; None if it cannot be split so."""
        levels = self._levels(index)
        return Rows(levels[0].counted, [level.extent for level in levels[1:]]) if levels else None

    def _levels(self, index: Sum) -> list[Level]:
        """Return the axes of an index, the outermost first; none if it cannot be split so."""
        strides: dict[Product, Sum] = {}
        loose = Sum()
        for product, factor in index.terms.items():
            stride = tuple(name for name in product if "#" not in name and self._sized(Sum.of(name)))
            rest = tuple(name for name in product if name not in stride)
            if any("#" in name for name in rest):
                strides[stride] = strides.get(stride, Sum()) + Sum([(rest, factor)])
            else:
                loose += Sum([(product, factor)])
        for product, factor in loose.terms.items():
            # Skipped whole rows count as rows: `k * N` and `N` in `(k + 1 + gid) * N + k`.
            stride = max((each for each in strides if divided(product, each) is not None), key=len, default=())
            rest = divided(product, stride) or ()
            strides[stride] = strides.get(stride, Sum()) + Sum([(rest, factor)])
        order = sorted(strides, key=len, reverse=True)
        if not order:
            return [Level(Sum(), Sum())]
        levels = [Level(Sum(), strides[order[0]])]
        for outer, inner in zip(order, [*order[1:], ()], strict=True):
            if (left := divided(outer, inner)) is None:
                return []
            if outer != inner:
                levels.append(Level(Sum([(left, 1)]), strides.get(inner, Sum())))
        return [] if any(_only_taken_off(level.counted) for level in levels) else self._of_numbers(levels)

    def _of_numbers(self, levels: list[Level]) -> list[Level]:
        """Return the levels with one more axis if each element is several numbers: 3 in `(y * W + x) * 3 + c`."""
        several = gcd(*(factor for level in levels[:-1] for factor in level.counted.terms.values()))
        extent, inner = levels[-1]
        rest = Sum((product, factor % several) for product, factor in inner.terms.items()) if several > 1 else Sum()
        if several < 2 or rest.varying == inner.varying or not self._numbered(several, inner, rest):
            return levels
        outer = [*levels[:-1], Level(extent, inner - rest)]
        apart = [Level(level.extent, shared_out(level.counted, several)) for level in outer]
        return [*apart, Level(Sum.of(several), rest)]

    def _numbered(self, several: int, inner: Sum, rest: Sum) -> bool:
        """Whether the rest of a multiple counts the numbers of an element.

        It does if a variable counts them, or if all literals do and nothing ends the row. `2 * y * W + 2 * x` alone may
        be every other place of every other row.
        """
        if rest.varying:
            most = self.upper(rest)
            return most is not None and most.number is not None and 1 < most.number <= several
        alike = [place for place in self.reading.places if inner.varying.items() <= place.varying.items()]
        whole = all(factor % several == 0 for place in alike for product, factor in place.terms.items() if product)
        told = {place.constant % several for place in alike}
        return whole and len(told) == several and self.upper(inner) is None
