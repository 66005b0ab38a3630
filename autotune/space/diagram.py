"""The decision diagram of a space: row <-> value indices, the rows near a row, the order of its levels.

Also columns of values, whose equal rows become one state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import SpaceError

Integers = NDArray[np.int64]
Indices = NDArray[np.int16]
Column = NDArray[Any]
"""Python's values, one per row: truth values, whole numbers, floats, text; objects if they have several types."""

MAX_ROWS = 2**62
_RADIX_LIMIT = 2**62


@dataclass(frozen=True)
class Level:
    """The transitions that give one parameter its value, ascending by state and value.

    `key` is state * count + value index; `target` is the state in the next level; `first` (one longer) is the number
    of rows below all transitions before this one; `start` (states + 1) is the first transition of each state.
    """

    column: int
    count: int
    key: Integers
    target: Integers
    first: Integers
    start: Integers

    def descend(self, state: Integers, value: Integers) -> tuple[Integers, Integers]:
        """Return the transitions of `state` by `value`, and whether they exist; same shapes."""
        key = state * self.count + value
        at = np.searchsorted(self.key, key)
        at[at == len(self.key)] = 0
        return at, self.key[at] == key

    def used(self) -> Integers:
        """Return the value indices that some row has here, ascending."""
        return np.unique(self.key % self.count)


@dataclass(frozen=True)
class Diagram:
    """Levels from the first parameter bound to the last; state 0 of the first is the root."""

    levels: tuple[Level, ...]

    @classmethod
    def link(cls, columns: Sequence[tuple[int, int]], keys: Sequence[Integers], targets: Sequence[Integers]) -> Diagram:
        """Make a diagram from each level's (column, count), keys and targets; drop transitions that lead to no row.

        Raises SpaceError beyond 2**62 rows.
        """
        levels: list[Level] = []
        states = [1, *(int(target.max()) + 1 for target in targets)]
        below = np.ones(states.pop(), dtype=np.int64)
        for (column, count), key, target in zip(reversed(columns), reversed(keys), reversed(targets), strict=True):
            alive = below[target] > 0
            key, target = key[alive], target[alive]
            rows = below[target]
            if float(rows.sum(dtype=np.float64)) > MAX_ROWS:
                hint = "search a part of them: --fix NAME=VALUE for some of the parameters"
                raise SpaceError("there are more than 2**62 valid configurations", hint=hint)
            first = np.concatenate([[0], np.cumsum(rows)])
            start = np.searchsorted(key, np.arange(states.pop() + 1, dtype=np.int64) * count)
            below = first[start[1:]] - first[start[:-1]]
            levels.append(Level(column, count, key, target, first, start))
        return cls(tuple(reversed(levels)))

    def indices(self, rows: Integers) -> Indices:
        """Return the value indices of rows, shape (n, parameters)."""
        result = np.empty((len(rows), len(self.levels)), dtype=np.int16)
        state, rest = np.zeros(len(rows), dtype=np.int64), rows
        for level in self.levels:
            wanted = level.first[level.start[state]] + rest
            at = np.searchsorted(level.first, wanted, side="right") - 1
            result[:, level.column] = level.key[at] - state * level.count
            state, rest = level.target[at], wanted - level.first[at]
        return result

    def rows(self, indices: Indices) -> Integers:
        """Return the row of each index vector, shape (n, parameters); -1 for vectors that are not valid."""
        state, row = np.zeros(len(indices), dtype=np.int64), np.zeros(len(indices), dtype=np.int64)
        valid: NDArray[np.bool_] = np.ones(len(indices), dtype=np.bool_)
        for level in self.levels:
            value = indices[:, level.column].astype(np.int64)
            at, exists = level.descend(state, value)
            valid = np.asarray(valid & exists & (value >= 0) & (value < level.count))
            row += level.first[at] - level.first[level.start[state]]
            state = level.target[at]
        return np.where(valid, row, -1)

    def neighbours(
        self, row: int, distance: int, most: int | None = None, rng: np.random.Generator | None = None
    ) -> Integers:
        """Return the rows that differ from `row` in 1 to `distance` parameters, ascending.

        Walks down all paths at once, each with the distance left: a path that has used up its distance can only
        follow the values of `row`. With `most` and `rng`, a random `most` of the paths go on if there are more: long
        lists have millions of them.
        """
        here = self.indices(np.array([row], dtype=np.int64))[0].astype(np.int64)
        state, found, left = np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([distance])
        for level in self.levels:
            parent, at = _branches(level, state, left > 0, int(here[level.column]), most, rng)
            value = level.key[at] - state[parent] * level.count
            left = left[parent] - (value != here[level.column])
            found = found[parent] + level.first[at] - level.first[level.start[state[parent]]]
            state = level.target[at]
            if most is not None and rng is not None and len(state) > most:
                # That of `row` itself goes on: what differs further down branches off from it.
                kept = np.append(rng.choice(len(state), most, replace=False), np.flatnonzero(left == distance)[:1])
                state, found, left = state[kept], found[kept], left[kept]
        return np.unique(found[found != row])

    def nearest(self, indices: Indices) -> int:
        """Return the row that differs in the fewest indices from these (parameters,); ties: fewest steps, first row.

        By dynamic programming from the last level up: one cost for each transition, whatever the number of rows.
        """
        change = 1 + sum(level.count for level in self.levels)  # costs more than all steps together
        rest: Integers = np.zeros(1, dtype=np.int64)  # the least cost below each state
        found: list[Integers] = []
        for level in reversed(self.levels):
            steps = np.abs(level.key % level.count - int(indices[level.column]))
            below = rest[level.target] if found else 0
            cost = steps + change * (steps > 0) + below
            begins = level.start[:-1]
            rest = np.zeros(len(begins), dtype=np.int64)
            alive = begins < level.start[1:]  # no transition leads to states without transitions
            rest[alive] = np.minimum.reduceat(cost, begins[alive])
            found.append(cost)
        state, row = 0, 0
        for level, cost in zip(self.levels, reversed(found), strict=True):
            begin, end = int(level.start[state]), int(level.start[state + 1])
            at = begin + int(cost[begin:end].argmin())
            row += int(level.first[at] - level.first[begin])
            state = int(level.target[at])
        return row


def _branches(
    level: Level,
    state: Integers,
    free: NDArray[np.bool_],
    value: int,
    most: int | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[Integers, Integers]:
    """Return (path, transition): for each path that of `value`, if it exists, and for free paths all others too.

    Of more than `most` others a random `most` are returned.
    """
    straight, exists = level.descend(state, np.full(len(state), value))
    paths, open_paths = np.flatnonzero(exists), np.flatnonzero(free)
    begin, end = level.start[state[open_paths]], level.start[state[open_paths] + 1]
    ends = np.cumsum(end - begin)
    total = int(ends[-1]) if len(ends) else 0
    picked = (
        np.arange(total) if most is None or rng is None or total <= most else rng.choice(total, most, replace=False)
    )
    which = np.searchsorted(ends, picked, side="right")
    fanned = end[which] - (ends[which] - picked)
    other = level.key[fanned] % level.count != value
    path = np.concatenate([paths, open_paths[which[other]]])
    return path, np.concatenate([straight[paths], fanned[other]])


def binding_order(sizes: Mapping[str, int], scopes: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the parameters in the order to bind them.

    `sizes` gives the number of values of each parameter, `scopes` the parameters of each constraint in the order of
    its text. Greedy: the next parameter is the one that leaves the fewest combinations of bound parameters that
    unfinished constraints still need. Ties: it finishes more constraints, has fewer values, is earlier in a
    constraint, is earlier in the study. Parameters linked by constraints, directly or through others, stay together.
    """
    bit = {name: 1 << position for position, name in enumerate(sizes)}
    masks = [sum(bit[name] for name in set(scope)) for scope in scopes]
    place: dict[str, int] = {}
    for scope in scopes:
        for position, name in enumerate(scope):
            place[name] = min(place.get(name, position), position)
    linked = [name for name in sizes if name in place]
    # Parameters that no constraint names may come at any time: of these, the one with the fewest values is next.
    others = sorted((name for name in sizes if name not in place), key=lambda name: (sizes[name], bit[name]))[::-1]
    bound = 0
    order: list[str] = []

    def cost(name: str) -> tuple[float, int, int, int, int]:
        after = bound | bit[name]
        needed = 0
        for mask in masks:
            if mask & ~after:
                needed |= mask & after
        width = sum(math.log(sizes[each]) for each in linked if bit[each] & needed)
        finished = sum(1 for mask in masks if mask & bit[name] and not mask & ~after)
        return round(width, 9), -finished, sizes[name], place.get(name, 0), bit[name]

    while len(order) < len(sizes):
        begun = 0
        for mask in masks:
            if mask & bound and mask & ~bound:
                begun |= mask & ~bound
        rest = [name for name in linked if not bit[name] & bound]
        name = min([name for name in rest if bit[name] & begun] or [*rest, *others[-1:]], key=cost)
        if others[-1:] == [name]:
            others.pop()
        order.append(name)
        bound |= bit[name]
    return tuple(order)


def column_of(values: Sequence[Any]) -> Column:
    """Return Python values as a column: of objects if they have several types, so that each keeps its type."""
    if len(set(map(type, values))) > 1:
        column: Column = np.empty(len(values), dtype=object)
        column[:] = values
        return column
    return np.array(values)


def joined(columns: Sequence[Column]) -> Column:
    """Return the concatenated columns; of objects if they have several kinds."""
    return np.concatenate(columns if len({c.dtype.kind for c in columns}) == 1 else [c.astype(object) for c in columns])


def alike(columns: Sequence[Column], length: int) -> bool:
    """Say whether rows are sure to equal others, or cheap to compare: so few values are possible in whole numbers.

    What is not of whole numbers alone is taken for alike: it takes longer to compute with.
    """
    radix = 1
    for column in columns:
        if column.dtype.kind not in "bi":
            return True
        radix *= int(column.max()) - int(column.min()) + 1 if len(column) else 1
    return radix <= 4 * length + 1000


def merge(columns: Sequence[Column], length: int) -> tuple[Integers, Integers]:
    """Return the first position of each distinct row, and for every row the index of the one that it equals.

    The distinct rows are in ascending order of their columns, so the result does not depend on the order
    of equal rows.
    """
    code, radix = np.zeros(length, dtype=np.int64), 1
    for column in columns:
        codes, count = _codes(column)
        if radix * count > _RADIX_LIMIT:
            distinct, code = np.unique(code, return_inverse=True)
            radix = len(distinct)
        code, radix = code * count + codes, radix * count
    if radix > 4 * length + 1000:
        _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
        return first, inverse
    last = np.full(radix, -1, dtype=np.int64)
    last[code[::-1]] = np.arange(length - 1, -1, -1)
    present = last >= 0
    return last[present], (np.cumsum(present) - 1)[code]


def narrow(column: Column) -> Column:
    """Return the column with whole numbers in the smallest signed type that holds them."""
    if column.dtype != np.int64 or not len(column):
        return column
    low, high = int(column.min()), int(column.max())
    fits = (t for t in (np.int8, np.int16, np.int32) if np.iinfo(t).min <= low and high <= np.iinfo(t).max)
    return column.astype(next(fits, np.int64))


def _codes(column: Column) -> tuple[Integers, int]:
    """Return a column as numbers from 0 in the order of its values, and an upper limit of their count."""
    if column.dtype == np.bool_:
        return column.astype(np.int64), 2
    if column.dtype.kind == "i" and len(column):
        low, high = int(column.min()), int(column.max())
        if high - low < 2**31:
            return column.astype(np.int64) - low, high - low + 1
    if column.dtype.kind == "O":
        seen: dict[tuple[type, object], int] = {}
        return np.array([seen.setdefault((type(v), v), len(seen)) for v in column.tolist()], dtype=np.int64), len(seen)
    distinct, inverse = np.unique(column, return_inverse=True)
    return inverse.astype(np.int64), len(distinct)
