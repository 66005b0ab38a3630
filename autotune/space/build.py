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

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.errors import SpaceError
from autotune.expression import Expression, Node, compiled, is_beyond, operand, put_in, reduced, unknown_name
from autotune.model import Value
from autotune.space.bounds import Bounds, of_column, of_values, surely_false
from autotune.space.diagram import Column, Diagram, Integers, binding_order, column_of, joined, merge, narrow

CHUNK = 1 << 17  # candidates computed at once
PRUNED = 3_000  # with more candidates of a parameter, interval arithmetic saves more time than it takes
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
        for begin in range(0, size, CHUNK):
            candidates = self._candidates(name, np.arange(begin, min(begin + CHUNK, size), dtype=np.int64))
            candidates.check(finished)
            candidates.compute(parts)
            if size > PRUNED:
                candidates.prune(touched, self._open)
            if len(candidates.key):
                survivors.append(candidates.reduced_to(needed))
            total += len(candidates.key)
            if total > self._max_transitions:
                raise SpaceError(
                    f"the constraints leave more than {self._max_transitions} partial configurations up to {name}",
                    hint="give it fewer values, or a constraint of its own",
                )
        return survivors, rest

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
            answers, row = self._compute(Node("bool", (condition.tree,)))
            failed = np.array([answer is None for answer in answers], dtype=np.bool_)[row]
            self.fault = np.where(failed & (self.fault == 0), np.int32(condition.number + 1), self.fault)
            self._keep(np.array([answer is not False for answer in answers], dtype=np.bool_)[row])

    def compute(self, parts: Mapping[Node, Node]) -> None:
        """Add the columns of new parts. Raises _UnsafeError with a part that fails."""
        for part, name in parts.items():
            answers, row = self._compute(part)
            if None in answers:
                raise _UnsafeError(part)
            self.names[name.value] = column_of(answers)[row]

    def prune(self, touched: Sequence[_Condition], open: Mapping[str, Bounds]) -> None:
        """Drop candidates for which no values of the open parameters can satisfy a condition."""
        for condition in touched:
            bound = sorted(condition.tree.names - open.keys())
            first, row = merge([self.names[name] for name in bound], len(self.key))
            known = {name: of_column(self.names[name][first]) for name in bound}
            hopeless = surely_false(condition.tree, {**open, **known})
            self._keep(~np.broadcast_to(hopeless, first.shape)[row])

    def reduced_to(self, names: Sequence[str]) -> _Candidates:
        """Return the same candidates with only some of the names, in small types."""
        return _Candidates(self.key, {name: narrow(self.names[name]) for name in names}, self.fault)

    def _compute(self, tree: Node) -> tuple[list[Any], Integers]:
        """Return the values of `tree` on distinct rows of its names (None: it fails), and the index of each row's."""
        columns = [self.names[name] for name in sorted(tree.names)]
        first, row = merge(columns, len(self.key))
        return computed(tree, [column[first] for column in columns]), row

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        if keep.all():
            return
        self.key, self.fault = self.key[keep], self.fault[keep]
        self.names = {name: column[keep] for name, column in self.names.items()}


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
