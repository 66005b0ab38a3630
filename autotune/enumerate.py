"""Enumerates the valid value combinations of parameters that constraints link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import SpaceError
from autotune.expression import Expression, unknown_name
from autotune.model import Value

CHUNK = 1 << 17


@dataclass(frozen=True)
class Constraint:
    """What must hold for a configuration to be valid, and why."""

    require: Expression
    reason: str


@dataclass(frozen=True)
class Exclusion:
    """A parameter's value that is in no valid configuration; `str()` is the line for a reader."""

    name: str
    value: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}: {self.reason}"


@dataclass(frozen=True)
class Component:
    """Parameters linked by constraints: their columns in the space, and the table of valid value indices.

    `table` has the shape (rows, columns), int16, in lexicographic order; `keys` are its rows in mixed
    radix, ascending.
    """

    columns: tuple[int, ...]
    table: NDArray[np.int16]
    weights: NDArray[np.int64]
    keys: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.keys)

    def find(self, indices: NDArray[np.int16]) -> NDArray[np.int64]:
        """Return the row of each index vector, shape (n, columns); -1 where there is none."""
        keys = indices.astype(np.int64) @ self.weights
        at = np.searchsorted(self.keys, keys)
        at[at == len(self.keys)] = 0
        return np.where(self.keys[at] == keys, at, -1)


def position(listed: Sequence[Value], value: Any) -> int:
    """The position of a value among the listed ones; text never equals a number. ValueError: not there."""
    return list(listed).index(value)


def components(
    names: tuple[str, ...],
    values: tuple[tuple[Value, ...], ...],
    constraints: tuple[Constraint, ...],
    constants: Mapping[str, Any],
) -> tuple[Component, ...]:
    """Return the components in the order of their first parameter."""
    for constraint in constraints:
        for name in sorted(constraint.require.names):
            if name not in constants and name not in names:
                raise unknown_name(constraint.require.text, name, [*names, *constants], where=constraint.require.where)
    groups: list[set[int]] = [{column} for column in range(len(names))]
    for constraint in constraints:
        used = {names.index(name) for name in constraint.require.names if name in names}
        if not used:
            if not constraint.require.mask(constants)[0]:
                raise SpaceError(f"no configuration is valid: {explain(constraint, constants)}")
            continue
        touched = [group for group in groups if group & used]
        groups = [group for group in groups if not group & used] + [set().union(*touched)]
    result = []
    for group in sorted(groups, key=min):
        columns = tuple(sorted(group))
        own = [c for c in constraints if any(names[column] in c.require.names for column in columns)]
        result.append(_component(columns, names, values, own, constants))
    return tuple(result)


def _component(
    columns: tuple[int, ...],
    names: tuple[str, ...],
    values: tuple[tuple[Value, ...], ...],
    constraints: Sequence[Constraint],
    constants: Mapping[str, Any],
) -> Component:
    radices = [len(values[column]) for column in columns]
    weights = np.cumprod([1, *radices[:0:-1]], dtype=np.int64)[::-1].copy()
    table = np.zeros((1, 0), dtype=np.int16)
    bound: set[str] = set()
    for column in columns:
        count = len(values[column])
        bound.add(names[column])
        ready = [
            c
            for c in constraints
            if names[column] in c.require.names and c.require.names & set(names) <= bound
        ]
        parts = []
        step = max(1, CHUNK // count)
        for start in range(0, len(table), step):
            part = table[start : start + step]
            part = np.hstack(
                [np.repeat(part, count, axis=0), np.tile(np.arange(count, dtype=np.int16), len(part))[:, None]]
            )
            for constraint in ready:
                columns_of = {
                    names[c]: np.array(values[c])[part[:, k]]
                    for k, c in enumerate(columns[: part.shape[1]])
                    if names[c] in constraint.require.names
                }
                part = part[constraint.require.mask({**constants, **columns_of})]
            parts.append(part)
        table = np.concatenate(parts)
        if not len(table):
            raise SpaceError(f"no configuration is valid: {explain(ready[-1], constants)}")
    return Component(columns, table, weights, table.astype(np.int64) @ weights)


def explain(constraint: Constraint, constants: Mapping[str, Any]) -> str:
    """A constraint for a reader: its reason, its text, the constants it uses."""
    used = [f"{n}={constants[n]}" for n in sorted(constraint.require.names) if n in constants and n != "extensions"]
    detail = "; ".join([constraint.require.text, ", ".join(used)] if used else [constraint.require.text])
    return f"{constraint.reason} ({detail})"


def exclusions(
    names: tuple[str, ...],
    values: tuple[tuple[Value, ...], ...],
    constraints: tuple[Constraint, ...],
    constants: Mapping[str, Any],
    components: tuple[Component, ...],
) -> list[Exclusion]:
    """Return the values that no valid combination uses."""
    found = []
    for component in components:
        for k, column in enumerate(component.columns):
            for index in np.setdiff1d(np.arange(len(values[column])), component.table[:, k]):
                value = values[column][int(index)]
                reason = _reason(names[column], value, constraints, constants)
                found.append((column, Exclusion(names[column], value, reason)))
    return [exclusion for _, exclusion in sorted(found, key=lambda pair: pair[0])]


def _reason(name: str, value: Value, constraints: Sequence[Constraint], constants: Mapping[str, Any]) -> str:
    for constraint in constraints:
        if name in constraint.require.names and constraint.require.names <= {name, *constants}:
            if not constraint.require.mask({**constants, name: value})[0]:
                return explain(constraint, constants)
    return "no valid configuration uses it"
