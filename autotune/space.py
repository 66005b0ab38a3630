"""The valid configurations of a study: enumerated once, then counted, indexed, sampled, looked up.

Parameters that share a constraint, directly or through others, form a component. The valid value
combinations of each component are enumerated (`enumerate.py`); the space is the product of the
components, which is never written out. So 10^9 valid configurations cost no more than their components.

Row order: components stand in the order of their first parameter, the first varies slowest; within a
component rows are in lexicographic order of their value indices, its first parameter slowest. The same
parameters and constraints always give the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune import enumerate as enumeration
from autotune.enumerate import Component, Constraint, Exclusion
from autotune.errors import SpaceError
from autotune.model import Configuration, Value

MAX_TABLE_ROWS = 20_000_000

Rows = NDArray[np.int64]
Indices = NDArray[np.int16]


@dataclass(frozen=True)
class Space:
    """The valid configurations of some parameters under some constraints. Make one with `Space.build`.

    A configuration has a row, 0 <= row < len(space); the columns of index arrays are the parameters in
    the order of `names`, their entries positions in `values`.
    """

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    constraints: tuple[Constraint, ...]
    constants: Mapping[str, Any]
    components: tuple[Component, ...]

    @classmethod
    def build(
        cls,
        parameters: Mapping[str, Sequence[Value]],
        constraints: Sequence[Constraint],
        constants: Mapping[str, Any] | None = None,
    ) -> Space:
        """Enumerate the valid configurations; SpaceError where there are none, or a value stands twice."""
        values = tuple(tuple(listed) for listed in parameters.values())
        names = tuple(parameters)
        known = dict(constants or {})
        components = enumeration.components(names, values, tuple(constraints), known)
        return cls(names, values, tuple(constraints), known, components)

    @property
    def combinations(self) -> int:
        """The number of configurations before constraints."""
        return math.prod(len(listed) for listed in self.values)

    def __len__(self) -> int:
        return math.prod(len(component) for component in self.components)

    def configuration(self, row: int) -> dict[str, Value]:
        """Return the configuration of a row; IndexError outside 0..len-1."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        indices = self.indices(np.array([row], dtype=np.int64))[0]
        return {n: listed[i] for n, listed, i in zip(self.names, self.values, indices, strict=True)}

    def row(self, configuration: Configuration) -> int | None:
        """Return the row of a configuration; None where it is not valid, lacks a name or has another one."""
        if set(configuration) != set(self.names):
            return None
        try:
            position = [
                enumeration.position(listed, configuration[name])
                for name, listed in zip(self.names, self.values, strict=True)
            ]
        except ValueError:
            return None
        row = int(self.rows(np.array([position], dtype=np.int16))[0])
        return row if row >= 0 else None

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Mapping) and self.row(configuration) is not None

    def indices(self, rows: NDArray[np.int64] | None = None) -> Indices:
        """Return the value indices of some rows (None: all), shape (n, parameters).

        SpaceError where all are asked for and there are more than 20 million.
        """
        if rows is None:
            if len(self) > MAX_TABLE_ROWS:
                raise SpaceError(
                    f"{len(self)} configurations are too many to list (at most {MAX_TABLE_ROWS})",
                    hint="sample the space, or restrict it by constraints",
                )
            rows = np.arange(len(self), dtype=np.int64)
        result = np.empty((len(rows), len(self.names)), dtype=np.int16)
        rest = np.asarray(rows, dtype=np.int64)
        for component in reversed(self.components):
            rest, local = np.divmod(rest, len(component))
            result[:, component.columns] = component.table[local]
        return result

    def rows(self, indices: NDArray[np.int16]) -> Rows:
        """Return the row of each index vector, shape (n, parameters); -1 where it is not valid."""
        indices = np.asarray(indices)
        result = np.zeros(len(indices), dtype=np.int64)
        valid = np.ones(len(indices), dtype=np.bool_)
        for component in self.components:
            local = component.find(indices[:, component.columns])
            valid &= local >= 0
            result = result * len(component) + local
        return np.where(valid, result, -1)

    def sample(self, rng: np.random.Generator, n: int) -> Rows:
        """Return min(n, len) distinct rows, uniform, in random order."""
        size = len(self)
        if n >= size:
            return rng.permutation(size)
        return rng.choice(size, n, replace=False)

    def neighbours(self, row: int, distance: int = 1) -> Rows:
        """Return the valid rows that differ from `row` in 1 to `distance` parameters, ascending."""
        here = self.indices(np.array([row], dtype=np.int64))[0]
        found = [(np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64))]  # offsets from here, distances
        weight = 1
        rest = row
        for component in reversed(self.components):
            rest, local = divmod(rest, len(component))
            apart = (component.table != here[list(component.columns)]).sum(axis=1)
            near = np.flatnonzero(apart <= distance)
            offsets, distances = found[0]
            total = distances[:, None] + apart[near][None, :]
            keep = total <= distance
            moved = offsets[:, None] + ((near - local) * weight)[None, :]
            found = [(moved[keep], total[keep])]
            weight *= len(component)
        offsets = found[0][0]
        return np.sort(row + offsets[offsets != 0])

    def exclusions(self) -> list[Exclusion]:
        """Return the parameter values in no valid configuration, each with the reason where one is known."""
        return enumeration.exclusions(self.names, self.values, self.constraints, self.constants, self.components)


__all__ = ["Constraint", "Exclusion", "Space"]
