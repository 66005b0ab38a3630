"""Constraints -> diagram: binds one parameter at a time and keeps what the constraints still need to know.

After each parameter, the parts of a constraint whose names are all bound are computed and take the place
of those names: of `MWG % (MDIMC * VWM) == 0`, once MDIMC and VWM are bound, only their product is kept.
Partial configurations that agree in all that is kept are one state. A constraint whose names are all
bound drops what it forbids; before that, interval arithmetic over the values still open drops what
cannot come to satisfy it. So states, not configurations, bound time and memory.

Related: Willemsen et al., "Efficient construction of large search spaces for auto-tuning" (2025), which
enumerates with a constraint solver; decision diagrams, Bryant (1986) and Andersen et al. (2007).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import SpaceError
from autotune.expression import unknown_name
from autotune.expression.bounds import Bounds, surely_false
from autotune.expression.columns import column_of, plain
from autotune.expression.nodes import Name, Node, compute, decide
from autotune.expression.operators import Column
from autotune.expression.partial import put_in, reduce
from autotune.model import Value
from autotune.space.constraint import Constraint
from autotune.space.diagram import Diagram, Integers
from autotune.space.merge import merge, narrow
from autotune.space.order import binding_order

CHUNK = 1 << 17  # candidates computed at once
MAX_TRANSITIONS = 10_000_000  # of one parameter: about 1 GB at the peak


@dataclass(frozen=True)
class Condition:
    """A constraint as far as it is not decided yet: its number among the constraints, and what is left."""

    number: int
    tree: Node


class EmptyError(Exception):
    """No configuration is valid."""


class FailedError(Exception):
    """A configuration that no constraint forbids, and a constraint that cannot be computed for it."""

    def __init__(self, number: int, indices: Mapping[str, int]) -> None:
        super().__init__(number)
        self.number = number
        self.indices = indices


class _Restart(Exception):
    """A part of a constraint fails for some partial configurations: it must wait for the whole."""


@dataclass
class _States:
    """The distinct states between two levels: `kept` columns by name, and the constraint that failed + 1."""

    count: int
    kept: dict[str, Column]
    fault: NDArray[np.int32]


@dataclass
class _Survivors:
    """The candidates of a level that remain, in pieces."""

    key: list[Integers] = field(default_factory=list)
    kept: dict[str, list[Column]] = field(default_factory=dict)
    fault: list[NDArray[np.int32]] = field(default_factory=list)


def build(
    values: Mapping[str, Sequence[Value]],
    constraints: Sequence[Constraint],
    constants: Mapping[str, Any],
    max_transitions: int = MAX_TRANSITIONS,
) -> Diagram:
    """Return the diagram of the valid configurations.

    EmptyError where there is none; FailedError; ExpressionError for an unknown name; SpaceError where a
    level would have more than `max_transitions`.
    """
    conditions = []
    for number, constraint in enumerate(constraints):
        require = constraint.require
        for name in sorted(require.names - values.keys() - constants.keys()):
            raise unknown_name(require.text, name, [*values, *constants], where=require.where)
        known = {name: plain(constants[name]) for name in require.names - values.keys()}
        require.check(known)
        conditions.append(Condition(number, put_in(require.tree, known)))
    sizes = {name: len(listed) for name, listed in values.items()}
    order = binding_order(sizes, [_scope(condition.tree) for condition in conditions])
    return _Builder(values, conditions, max_transitions).build(order)


def _scope(tree: Node) -> list[str]:
    """The names of a tree in the order of its text."""
    if isinstance(tree, Name):
        return [tree.name]
    return list(dict.fromkeys(name for part in tree.parts for name in _scope(part)))


class _Builder:
    """Binds one parameter after another."""

    def __init__(
        self, values: Mapping[str, Sequence[Value]], conditions: Sequence[Condition], max_transitions: int
    ) -> None:
        self._values = values
        self._max_transitions = max_transitions
        self._arrays = {name: column_of(listed) for name, listed in values.items()}
        self._open = {name: Bounds.of_values(listed) for name, listed in values.items()}
        self._conditions = [c for c in conditions if c.tree.names]
        self._states = _States(1, {}, self._decided(conditions))
        self._unsafe: set[Node] = set()
        self._parts = 0

    @staticmethod
    def _decided(conditions: Sequence[Condition]) -> NDArray[np.int32]:
        """The fault of the root: conditions on constants alone hold, fail or leave nothing."""
        fault = np.zeros(1, dtype=np.int32)
        for condition in conditions:
            if not condition.tree.names:
                true, failed = decide(condition.tree, {})
                if failed[0]:
                    fault[0] = fault[0] or condition.number + 1
                elif not true[0]:
                    raise EmptyError
        return fault

    def build(self, order: Sequence[str]) -> Diagram:
        """Bind the parameters in this order."""
        columns = [(list(self._values).index(name), len(self._values[name])) for name in order]
        keys, targets = [], []
        for name in order:
            key, target = self._bind(name)
            keys.append(key)
            targets.append(target)
        if self._states.fault.any():
            self._fail(order, keys, targets)
        return Diagram.link(columns, keys, targets)

    def _bind(self, name: str) -> tuple[Integers, Integers]:
        del self._open[name]
        while True:
            try:
                survivors, conditions = self._extend(name)
                break
            except _Restart:
                continue
        if not survivors.key:
            raise EmptyError
        key = np.concatenate(survivors.key)
        kept = {each: np.concatenate(pieces) for each, pieces in survivors.kept.items()}
        fault = np.concatenate(survivors.fault)
        first, target = merge([*kept.values(), fault], len(key))
        self._states = _States(len(first), {n: column[first] for n, column in kept.items()}, fault[first])
        self._conditions = conditions
        return key, target

    def _extend(self, name: str) -> tuple[_Survivors, list[Condition]]:
        known = frozenset(self._states.kept) | {name}
        finished = [c for c in self._conditions if c.tree.names <= known]
        parts: dict[Node, Name] = {}
        rest = [self._shorten(c, name, known, parts) for c in self._conditions if not c.tree.names <= known]
        touched = [c for c in rest if c.tree.names & {name, *(part.name for part in parts.values())}]
        needed = frozenset().union(*(c.tree.names for c in rest)) - set(self._open)
        survivors = _Survivors(kept={each: [] for each in sorted(needed)})
        count, total = len(self._values[name]), 0
        for begin in range(0, self._states.count * count, CHUNK):
            key = np.arange(begin, min(begin + CHUNK, self._states.count * count), dtype=np.int64)
            rows = _Candidates(self, name, key)
            rows.check(finished)
            rows.compute(parts, self._unsafe)
            rows.prune(touched)
            rows.collect(survivors)
            total += len(rows.key)
            if total > self._max_transitions:
                raise SpaceError(
                    f"the constraints leave more than {self._max_transitions} partial configurations up to {name}",
                    hint="give it fewer values, or a constraint of its own",
                )
        return survivors, rest

    def _shorten(self, condition: Condition, name: str, known: frozenset[str], parts: dict[Node, Name]) -> Condition:
        """Replace what can be computed by names of new columns, listed in `parts`."""
        if name not in condition.tree.names:
            return condition

        def replacement(node: Node) -> Node | None:
            if isinstance(node, Name):
                return node
            if node in self._unsafe or not node.names:  # without names: a constant part that fails
                return None
            if node not in parts:
                self._parts += 1
                parts[node] = Name(f"#{self._parts}")
            return parts[node]

        return Condition(condition.number, reduce(condition.tree, known, replacement))

    def _fail(self, order: Sequence[str], keys: Sequence[Integers], targets: Sequence[Integers]) -> None:
        """Raise FailedError with a configuration that leads to a failed state."""
        state = int(np.argmax(self._states.fault > 0))
        number = int(self._states.fault[state]) - 1
        indices = {}
        for name, key, target in zip(reversed(order), reversed(keys), reversed(targets), strict=True):
            state, indices[name] = divmod(int(key[np.argmax(target == state)]), len(self._values[name]))
        raise FailedError(number, indices)

    def names_of(self, name: str, key: Integers) -> dict[str, Column]:
        """The columns of all names known at the candidates `key` of a level."""
        state, value = np.divmod(key, len(self._values[name]))
        return {**{each: column[state] for each, column in self._states.kept.items()}, name: self._arrays[name][value]}

    def fault_of(self, name: str, key: Integers) -> NDArray[np.int32]:
        """The faults of the states that candidates come from."""
        return self._states.fault[key // len(self._values[name])]

    @property
    def open(self) -> Mapping[str, Bounds]:
        """The bounds of the parameters not bound yet."""
        return self._open


class _Candidates:
    """A chunk of the candidates of a level: states times values, and what is known of each."""

    def __init__(self, builder: _Builder, name: str, key: Integers) -> None:
        self._builder = builder
        self.key = key
        self.names = builder.names_of(name, key)
        self.fault = builder.fault_of(name, key)

    def check(self, finished: Sequence[Condition]) -> None:
        """Drop what finished conditions forbid; note what they fail on."""
        for condition in finished:
            true, failed = decide(condition.tree, {name: self.names[name] for name in condition.tree.names})
            if failed.any():
                self.fault = np.where(failed & (self.fault == 0), np.int32(condition.number + 1), self.fault)
            self._keep(true | failed)

    def compute(self, parts: Mapping[Node, Name], unsafe: set[Node]) -> None:
        """Add the columns of new parts; a part that fails is marked unsafe, and the level starts again."""
        for part, name in parts.items():
            column, failed = compute(part, {each: self.names[each] for each in part.names})
            if failed.any():
                unsafe.add(part)
                raise _Restart
            self.names[name.name] = column

    def prune(self, touched: Sequence[Condition]) -> None:
        """Drop what no values of the open parameters can bring to satisfy a condition."""
        for condition in touched:
            names = condition.tree.names
            known = {each: Bounds.of_column(column) for each, column in self.names.items() if each in names}
            hopeless = surely_false(condition.tree, {**self._builder.open, **known})
            if hopeless.any():
                self._keep(~np.broadcast_to(hopeless, self.key.shape))

    def collect(self, survivors: _Survivors) -> None:
        """Add what is left to the survivors."""
        if not len(self.key):
            return
        survivors.key.append(self.key)
        survivors.fault.append(self.fault)
        for name, pieces in survivors.kept.items():
            pieces.append(narrow(self.names[name]))

    def _keep(self, keep: NDArray[np.bool_]) -> None:
        if keep.all():
            return
        self.key, self.fault = self.key[keep], self.fault[keep]
        self.names = {name: column[keep] for name, column in self.names.items()}
