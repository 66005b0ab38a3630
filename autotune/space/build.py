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

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.errors import SpaceError
from autotune.expression.bounds import Bounds, surely_false
from autotune.expression.columns import column_of
from autotune.expression.nodes import Name, Node, compute, decide
from autotune.expression.operators import Column
from autotune.expression.partial import reduce
from autotune.model import Value
from autotune.space.diagram import Diagram, Integers
from autotune.space.merge import merge

CHUNK = 1 << 17  # candidates computed at once
MAX_TRANSITIONS = 20_000_000


@dataclass(frozen=True)
class Condition:
    """A constraint as far as it is not decided yet: its number among the constraints, and what is left."""

    number: int
    tree: Node


class EmptyError(Exception):
    """No configuration is valid; `number` is the constraint that dropped most of the last candidates."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


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
    fault: Integers


@dataclass
class _Survivors:
    """The candidates of a level that remain, in pieces."""

    key: list[Integers] = field(default_factory=list)
    kept: dict[str, list[Column]] = field(default_factory=dict)
    fault: list[Integers] = field(default_factory=list)
    dropped: Counter[int] = field(default_factory=Counter)


class Builder:
    """Builds the diagram of parameters (with their values) under conditions over them."""

    def __init__(self, values: Mapping[str, Sequence[Value]], conditions: Sequence[Condition]) -> None:
        self._values = values
        self._arrays = {name: column_of(listed) for name, listed in values.items()}
        self._open = {name: Bounds.of_values(listed) for name, listed in values.items()}
        self._conditions = [c for c in conditions if c.tree.names]
        self._states = _States(1, {}, self._decided(conditions))
        self._unsafe: set[Node] = set()
        self._parts = 0

    @staticmethod
    def _decided(conditions: Sequence[Condition]) -> Integers:
        """The fault of the root: conditions on constants alone hold, fail or leave nothing."""
        fault = np.zeros(1, dtype=np.int64)
        for condition in conditions:
            if not condition.tree.names:
                true, failed = decide(condition.tree, {})
                if failed[0]:
                    fault[0] = fault[0] or condition.number + 1
                elif not true[0]:
                    raise EmptyError(condition.number)
        return fault

    def build(self, order: Sequence[str]) -> Diagram:
        """Bind the parameters in this order. EmptyError, FailedError; SpaceError where it grows too large."""
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
            raise EmptyError(max(survivors.dropped, key=lambda number: (survivors.dropped[number], -number)))
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
            rows = _Candidates(self, name, key, survivors.dropped)
            rows.check(finished)
            rows.compute(parts, self._unsafe)
            rows.prune(touched)
            rows.collect(survivors)
            total += len(rows.key)
            if total > MAX_TRANSITIONS:
                raise SpaceError(
                    f"the constraints leave more than {MAX_TRANSITIONS} partial configurations up to {name}",
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

    def fault_of(self, name: str, key: Integers) -> Integers:
        """The faults of the states that candidates come from."""
        return self._states.fault[key // len(self._values[name])]

    @property
    def open(self) -> Mapping[str, Bounds]:
        """The bounds of the parameters not bound yet."""
        return self._open


class _Candidates:
    """A chunk of the candidates of a level: states times values, and what is known of each."""

    def __init__(self, builder: Builder, name: str, key: Integers, dropped: Counter[int]) -> None:
        self._builder = builder
        self._dropped = dropped
        self.key = key
        self.names = builder.names_of(name, key)
        self.fault = builder.fault_of(name, key)

    def check(self, finished: Sequence[Condition]) -> None:
        """Drop what finished conditions forbid; note what they fail on."""
        for condition in finished:
            true, failed = decide(condition.tree, {name: self.names[name] for name in condition.tree.names})
            self.fault = np.where(failed & (self.fault == 0), condition.number + 1, self.fault)
            self._keep(true | failed, condition.number)

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
                self._keep(~np.broadcast_to(hopeless, self.key.shape), condition.number)

    def collect(self, survivors: _Survivors) -> None:
        """Add what is left to the survivors."""
        if not len(self.key):
            return
        survivors.key.append(self.key)
        survivors.fault.append(self.fault)
        for name, pieces in survivors.kept.items():
            pieces.append(self.names[name])

    def _keep(self, keep: NDArray[np.bool_], number: int) -> None:
        if keep.all():
            return
        self._dropped[number] += int(len(keep) - keep.sum())
        self.key, self.fault = self.key[keep], self.fault[keep]
        self.names = {name: column[keep] for name, column in self.names.items()}
