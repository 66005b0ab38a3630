"""Constraints -> diagram: bind one parameter at a time and keep only what the constraints still need to know.

After each parameter, the parts of a constraint whose names are all bound are computed and replace these
names: in `MWG % (MDIMC * VWM) == 0`, once MDIMC and VWM are bound, only their product is kept.
Partial configurations that agree in all that is kept are one state. A constraint whose names are all
bound drops what it forbids. Before that, interval arithmetic over the values still open drops partial
configurations that can no longer satisfy it. So time and memory depend on states, not on configurations.

Related: Willemsen et al., "Efficient construction of large search spaces for auto-tuning" (2025), which
enumerates with a constraint solver; decision diagrams, Bryant (1986) and Andersen et al. (2007).
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.errors import Counted, SpaceError, tell_counted
from autotune.expression import Expression, Node, compiled, is_beyond, operand, put_in, reduced, unknown_name
from autotune.model import Value
from autotune.space.bounds import Bounds, decided, of_blocks, of_column, of_values, surely_false, whole_number
from autotune.space.diagram import Column, Diagram, Integers, alike, binding_order, column_of, joined, merge, narrow

CHUNK = 1 << 17  # candidates computed at once
PRUNED = 3_000  # with more candidates of a parameter, interval arithmetic saves more time than it takes
MANY = 30_000  # with more candidates, looking for equal ones takes longer than computing all of them
BLOCK = 64  # values of a long list that are pruned together
MAX_TRANSITIONS = 10_000_000  # of one parameter: about 1 GB at the peak


class EmptyError(Exception):
    """No configuration is valid."""


class FailedError(Exception):
    """A configuration that no constraint forbids, and a constraint that cannot be computed for it."""

    def __init__(self, number: int, indices: Mapping[str, int]) -> None:
        super().__init__(number)
        self.number = number
        self.indices = indices


class _UnsafeError(Exception):
    """A part of a constraint fails for some partial configurations: it must be computed with the whole constraint."""

    def __init__(self, part: Node) -> None:
        super().__init__(part)
        self.part = part


class _Condition(NamedTuple):
    """A constraint that is not decided yet: its number among the constraints, and the rest of its tree."""

    number: int
    tree: Node


def build(
    values: Mapping[str, Sequence[Value]],
    constraints: Sequence[Expression],
    constants: Mapping[str, Any],
    max_transitions: int = MAX_TRANSITIONS,
) -> Diagram:
    """Return the diagram of the valid configurations.

    Raises EmptyError if there is none; FailedError; ExpressionError for an unknown name, and for a value that no
    expression takes; SpaceError if a level would have more than `max_transitions`.
    """
    conditions = []
    beyond = {name: value for name, listed in values.items() for value in listed if is_beyond(value)}
    for number, constraint in enumerate(constraints):
        for name in sorted(constraint.names - values.keys() - constants.keys()):
            raise unknown_name(constraint.text, name, [*values, *constants], where=constraint.where)
        constraint.usable(beyond)
        known = {name: constants[name] for name in constraint.names - values.keys()}
        conditions.append(_Condition(number, put_in(constraint.tree, constraint.usable(known))))
    sizes = {name: len(listed) for name, listed in values.items()}
    order = binding_order(sizes, [_scope(condition.tree) for condition in conditions])
    return _Builder(values, conditions, max_transitions).build(order)


def _scope(tree: Node) -> list[str]:
    """Return the names of a tree in the order of its text."""
    if tree.sign == "name":
        return [tree.value]
    return list(dict.fromkeys(name for part in tree.parts for name in _scope(part)))


class _Builder:
    """Binds one parameter after another.

    Between two parameters there are states. Columns hold what is kept of each state, by name, and the number + 1 of
    the first constraint that failed for it.
    """

    def __init__(
        self, values: Mapping[str, Sequence[Value]], conditions: Sequence[_Condition], max_transitions: int
    ) -> None:
        self._values = values
        self._max_transitions = max_transitions
        self._open = {name: of_values(listed) for name, listed in values.items()}
        self._conditions = list(conditions)
        self._kept: dict[str, Column] = {}
        self._fault = np.zeros(1, dtype=np.int32)
        self._unsafe: set[Node] = set()
        self._parts = 0

    def build(self, order: Sequence[str]) -> Diagram:
        """Bind the parameters in this order."""
        root = _Candidates(np.zeros(1, dtype=np.int64), {}, self._fault)
        root.check([condition for condition in self._conditions if not condition.tree.names])
        if not len(root.key):
            raise EmptyError
        self._fault = root.fault
        self._conditions = [condition for condition in self._conditions if condition.tree.names]
        keys, targets = [], []
        for name in order:
            key, target = self._bind(name)
            keys.append(key)
            targets.append(target)
        if self._fault.any():
            self._fail(order, keys, targets)
        columns = [(list(self._values).index(name), len(self._values[name])) for name in order]
        return Diagram.link(columns, keys, targets)

    def _bind(self, name: str) -> tuple[Integers, Integers]:
        del self._open[name]
        while True:
            try:
                survivors, self._conditions = self._extend(name)
                break
            except _UnsafeError as error:
                self._unsafe.add(error.part)
        if not survivors:
            raise EmptyError
        key = np.concatenate([each.key for each in survivors])
        fault = np.concatenate([each.fault for each in survivors])
        kept = {each: joined([piece.names[each] for piece in survivors]) for each in survivors[0].names}
        first, target = merge([*kept.values(), fault], len(key))
        self._kept, self._fault = {each: column[first] for each, column in kept.items()}, fault[first]
        return key, target

    def _extend(self, name: str) -> tuple[list[_Candidates], list[_Condition]]:
        """Return the remaining candidates of a level, with what is kept of them, and the rest of the conditions."""
        known = frozenset(self._kept) | {name}
        finished = [c for c in self._conditions if c.tree.names <= known]
        parts: dict[Node, Node] = {}
        rest = [self._shortened(c, name, known, parts) for c in self._conditions if not c.tree.names <= known]
        touched = [c for c in rest if c.tree.names & {name, *(part.value for part in parts.values())}]
        needed = sorted(frozenset().union(*(c.tree.names for c in rest)) - set(self._open))
        size, total = len(self._fault) * len(self._values[name]), 0
        survivors = []
        for key in self._keys(name):
            place = len(self._values) - len(self._open)
            tell_counted(Counted(name, place, len(self._values), int(key[0]) / size))
            candidates = self._candidates(name, key)
            candidates.check(finished)
            candidates.compute(parts)
            if size > PRUNED:
                candidates.prune(touched, self._open)
            if len(candidates.key):
                survivors.append(candidates.reduced_to(needed))
            total += len(candidates.key)
            if total > self._max_transitions:
                raise SpaceError(
                    f"the constraints leave more than {self._max_transitions:,} partial configurations up to {name}",
                    hint="give it fewer values, or a constraint of its own",
                )
        return survivors, rest

    def _keys(self, name: str) -> Iterator[Integers]:
        """Yield the keys of a level, ascending, at most CHUNK at once; of a long list without hopeless blocks."""
        listed, states = self._values[name], len(self._fault)
        concerned = [condition for condition in self._conditions if name in condition.tree.names]
        numbers = all(isinstance(value, int | float) for value in listed)
        if states < 2 or len(listed) < 2 * BLOCK or not numbers or not concerned:
            for begin in range(0, states * len(listed), CHUNK):
                yield np.arange(begin, min(begin + CHUNK, states * len(listed)), dtype=np.int64)
            return
        begins = np.arange(0, len(listed), BLOCK, dtype=np.int64)
        bounds, within = of_blocks(listed, BLOCK), np.arange(BLOCK, dtype=np.int64)
        at_once = max(1, 8 * CHUNK // len(listed))
        for begin in range(0, states, at_once):
            some = np.arange(begin, min(begin + at_once, states), dtype=np.int64)
            state, block = np.repeat(some, len(begins)), np.tile(np.arange(len(begins)), len(some))
            places = _Candidates(state * len(listed) + begins[block], {}, self._fault[state])
            places.names = {each: column[state] for each, column in self._kept.items()} | {name: block}
            places.prune(concerned, self._open, {name: bounds})
            value = places.key[:, None] % len(listed) + within
            keys = (places.key[:, None] + within)[value < len(listed)]
            for first in range(0, len(keys), CHUNK):
                yield keys[first : first + CHUNK]

    def _shortened(
        self, condition: _Condition, name: str, known: frozenset[str], parts: dict[Node, Node]
    ) -> _Condition:
        """Replace the parts of a condition that can be computed by names of new columns, listed in `parts`."""
        if name not in condition.tree.names:
            return condition

        def replacement(node: Node) -> Node | None:
            if node.sign == "name":
                return node
            if node in self._unsafe or not node.names:  # a part without names is a constant that fails
                return None
            if node not in parts:
                self._parts += 1
                parts[node] = Node("name", value=f"#{self._parts}")
            return parts[node]

        return _Condition(condition.number, reduced(condition.tree, known, replacement))

    def _candidates(self, name: str, key: Integers) -> _Candidates:
        state, value = np.divmod(key, len(self._values[name]))
        names = {each: column[state] for each, column in self._kept.items()}
        return _Candidates(key, names | {name: column_of(self._values[name])[value]}, self._fault[state])

    def _fail(self, order: Sequence[str], keys: Sequence[Integers], targets: Sequence[Integers]) -> None:
        """Raise FailedError with a configuration that leads to a failed state."""
        state = int(np.argmax(self._fault > 0))
        number = int(self._fault[state]) - 1
        indices = {}
        for name, key, target in zip(reversed(order), reversed(keys), reversed(targets), strict=True):
            state, indices[name] = divmod(int(key[np.argmax(target == state)]), len(self._values[name]))
        raise FailedError(number, indices)


@dataclass
class _Candidates:
    """Some candidates of a level: `key` is state * number of values + value index, `names` their known values."""

    key: Integers
    names: dict[str, Column]
    fault: NDArray[np.int32]

    def check(self, finished: Sequence[_Condition]) -> None:
        """Drop candidates that finished conditions forbid; mark those on which they fail."""
        for condition in finished:
            columns, row = self._distinct(condition.tree)
            keep, failed = (each[row] for each in _judged(condition.tree, columns))
            self.fault = np.where(failed & (self.fault == 0), np.int32(condition.number + 1), self.fault)
            self._keep(keep)

    def compute(self, parts: Mapping[Node, Node]) -> None:
        """Add the columns of new parts. Raises _UnsafeError with a part that fails."""
        for part, name in parts.items():
            columns, row = self._distinct(part)
            many = bool(columns) and len(columns[0]) > PRUNED
            found = whole_number(part, _known(part, columns)) if many else None
            if found is None:
                if many:
                    columns, row = self._distinct(part, merged=True)
                answers = computed(part, columns)
                if None in answers:
                    raise _UnsafeError(part)
                found = column_of(answers)
            self.names[name.value] = found[row]

    def prune(
        self, touched: Sequence[_Condition], open: Mapping[str, Bounds], blocks: Mapping[str, Bounds] | None = None
    ) -> None:
        """Drop candidates for which no values of the open parameters can satisfy a condition.

        The column of a name in `blocks` has numbers of blocks, whose bounds are given there.
        """
        for condition in touched:
            columns, row = self._distinct(condition.tree, open)
            names = sorted(condition.tree.names - open.keys())
            known = {
                name: blocks[name].at(column) if blocks and name in blocks else of_column(column)
                for name, column in zip(names, columns, strict=True)
            }
            hopeless = surely_false(condition.tree, {**open, **known})
            self._keep(~np.broadcast_to(hopeless, columns[0].shape)[row])

    def reduced_to(self, names: Sequence[str]) -> _Candidates:
        """Return the same candidates with only some of the names, in small types."""
        return _Candidates(self.key, {name: narrow(self.names[name]) for name in names}, self.fault)

    def _distinct(self, tree: Node, but: Container[str] = (), *, merged: bool = False) -> tuple[list[Column], Any]:
        """Return the columns of the names of `tree`, with distinct rows, and for each candidate its row.

        Names in `but` are left out. Unless `merged`, the rows stay as they are if there are many and few are equal.
        """
        columns = [self.names[name] for name in sorted(tree.names) if name not in but]
        if not merged and len(self.key) > MANY and not alike(columns, len(self.key)):
            return columns, slice(None)
        first, row = merge(columns, len(self.key))
        return [column[first] for column in columns], row

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        if keep.all():
            return
        self.key, self.fault = self.key[keep], self.fault[keep]
        self.names = {name: column[keep] for name, column in self.names.items()}


def _known(tree: Node, columns: Sequence[Column]) -> dict[str, Bounds]:
    """The values of the names of `tree`, from their columns in the order of the names."""
    return dict(zip(sorted(tree.names), map(of_column, columns), strict=True))


def _judged(tree: Node, columns: Sequence[Column]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """The rows that a condition does not forbid, and those on which it fails; of many their bounds come first."""
    if not columns or len(columns[0]) <= PRUNED:
        return _verdicts(computed(Node("bool", (tree,)), columns))
    true, false = decided(tree, _known(tree, columns))
    keep = ~np.broadcast_to(false, columns[0].shape)
    failed = np.zeros(len(keep), dtype=np.bool_)
    left = np.flatnonzero(keep & ~true)
    some = [column[left] for column in columns]
    first, which = merge(some, len(left))
    found = _verdicts(computed(Node("bool", (tree,)), [column[first] for column in some]))
    keep[left], failed[left] = (each[which] for each in found)
    return keep, failed


def _verdicts(answers: Sequence[bool | None]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    keep = np.array([answer is not False for answer in answers], dtype=np.bool_)
    return keep, np.array([answer is None for answer in answers], dtype=np.bool_)


def computed(tree: Node, columns: Sequence[Column]) -> list[Any]:
    """Return the value of `tree` for each row of the columns of its names, None if it fails."""
    function = compiled(tree)
    listed = [[operand(v) for v in c.tolist()] if c.dtype.kind in "OU" else c.tolist() for c in columns]
    with suppress(ArithmeticError):
        return list(map(function, *listed)) if columns else [function()]

    def attempt(*row: Any) -> Any:
        with suppress(ArithmeticError):
            return function(*row)
        return None

    return list(map(attempt, *listed)) if columns else [None]
