"""The valid configurations of a study: enumerated once, then counted, indexed, looked up, sampled.

The space is a decision diagram: one level per parameter, and a transition per value. A state stands for all that the
constraints still need to know about the parameters bound so far. Partial configurations that leave the same
conditions on the rest share a state, so neither 10^9 combinations nor 10^9 valid configurations are ever listed.

    build.py     constraints -> diagram, a parameter at a time
    bounds.py    rows for which no values of the open parameters can satisfy a constraint
    diagram.py   the diagram: row <-> configuration, neighbours; the order of its levels, equal rows merged
    reasons.py   which constraints leave no configuration, for people
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ExpressionError, SpaceError
from autotune.model import Configuration, Value
from autotune.space.build import EmptyError, FailedError, build
from autotune.space.diagram import Diagram, Indices
from autotune.space.reasons import Constraint, explained, forbidden_alike, needed, why_impossible

__all__ = ["MAX_LISTED", "Constraint", "Exclusion", "Space"]

MAX_LISTED = 20_000_000
"""The most rows that `indices()` lists at once."""

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Exclusion:
    """A parameter's value that is in no valid configuration; `str()` is the line for users."""

    name: str
    value: Value
    reason: str

    def __str__(self) -> str:
        return f"{self.name}={self.value}: {self.reason}"


@dataclass(frozen=True, eq=False)
class Space:
    """The valid configurations. Make one with `Space.build`.

    Each configuration has a row, 0 <= row < len(space). The columns of index arrays are the parameters in the order of
    `names`; their entries are positions in `values`. Rows are in lexicographic order of the value indices, with the
    parameters in the order in which they were bound (`bound`, `diagram.binding_order`). So the same parameters and
    constraints always give the same rows.
    """

    names: tuple[str, ...]
    values: tuple[tuple[Value, ...], ...]
    constraints: tuple[Constraint, ...]
    constants: Mapping[str, Any]
    diagram: Diagram

    @classmethod
    def build(
        cls,
        parameters: Mapping[str, Sequence[Value]],
        constraints: Sequence[Constraint],
        constants: Mapping[str, Any] | None = None,
    ) -> Space:
        """Enumerate the valid configurations; a name in `parameters` hides the same name in `constants`.

        A configuration is valid if no constraint is false. Raises SpaceError if there is none, if a parameter has no
        or equal values, or if the constraints leave too many partial configurations. Raises ExpressionError if a
        constraint has an unknown name, or cannot be computed for a configuration that no other constraint forbids.
        """
        values = {name: tuple(listed) for name, listed in parameters.items()}
        known = {name: value for name, value in (constants or {}).items() if name not in values}
        for name, listed in values.items():
            _check_values(name, listed)
        try:
            diagram = build(values, [constraint.require for constraint in constraints], known)
        except EmptyError:
            raise SpaceError(f"no configuration is valid: {why_impossible(values, constraints, known, {})}") from None
        except FailedError as error:
            configuration = {name: values[name][index] for name, index in error.indices.items()}
            require = constraints[error.number].require
            try:
                require.holds({**known, **configuration})
            except ExpressionError as told:
                words = [name for name in sorted(require.names) if isinstance(configuration.get(name), str)]
                calculated = words and " text " in str(told)
                hint = f"{words[0]} is text there: values without quotes are numbers" if calculated else ""
                told.hint = told.hint or hint or 'forbid what cannot be computed: [[constraints]] require = "..."'
                raise told from None
            raise
        return cls(tuple(values), tuple(values.values()), tuple(constraints), known, diagram)

    @property
    def combinations(self) -> int:
        """The number of configurations before constraints."""
        return math.prod(len(listed) for listed in self.values)

    @property
    def bound(self) -> tuple[str, ...]:
        """The parameters in the order of rows: the first varies slowest."""
        return tuple(self.names[level.column] for level in self.diagram.levels)

    def __len__(self) -> int:
        return int(self.diagram.levels[0].first[-1]) if self.diagram.levels else 1

    def configuration(self, row: int) -> dict[str, Value]:
        """Return the configuration of a row. Raises IndexError outside 0 <= row < len."""
        indices = self.indices(np.array([row], dtype=np.int64))[0]
        return {n: listed[i] for n, listed, i in zip(self.names, self.values, indices, strict=True)}

    def row(self, configuration: Configuration) -> int | None:
        """Return the row of a configuration; None if it is not valid, lacks a name or has another one.

        Values must have the type of the study's values: a stored 1.0 is not the study's 1, as for look-ups.
        """
        row = int(self.rows_of([configuration])[0])
        return row if row >= 0 else None

    def rows_of(self, configurations: Sequence[Configuration]) -> Rows:
        """Return the row of each configuration, shape (n,), as `row` does; -1 for configurations that have none.

        A hundred configurations take hardly longer than one.
        """
        indices = np.full((len(configurations), len(self.names)), -1, dtype=np.int16)
        for at, configuration in enumerate(configurations):
            if len(configuration) == len(self.names):
                with suppress(KeyError, TypeError):  # an unknown name or value
                    indices[at] = [
                        places[type(configuration[name]), configuration[name]]
                        for name, places in zip(self.names, self._places, strict=True)
                    ]
        return self.rows(indices)

    @cached_property
    def _places(self) -> list[dict[tuple[type, Value], int]]:
        """For each parameter, the index of each value, by its type and the value."""
        return [{(type(value), value): at for at, value in enumerate(listed)} for listed in self.values]

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Mapping) and self.row(configuration) is not None

    def indices(self, rows: NDArray[np.int64] | None = None) -> Indices:
        """Return the value indices of some rows (None: all), shape (n, parameters).

        Raises SpaceError if all are asked for and there are more than MAX_LISTED; IndexError outside the rows.
        """
        if rows is None:
            if len(self) > MAX_LISTED:
                raise SpaceError(
                    f"{len(self)} valid configurations are too many to list (at most {MAX_LISTED})",
                    hint="sample them, or restrict the space by constraints",
                )
            return self.diagram.indices(np.arange(len(self), dtype=np.int64))
        rows = np.asarray(rows, dtype=np.int64)
        if rows.size and (int(rows.min()) < 0 or int(rows.max()) >= len(self)):
            raise IndexError(f"rows {int(rows.min())} to {int(rows.max())} of {len(self)}")
        return self.diagram.indices(rows)

    def rows(self, indices: Indices) -> Rows:
        """Return the row of each index vector, shape (n, parameters); -1 for vectors that are not valid."""
        return self.diagram.rows(np.asarray(indices))

    def sample(self, rng: np.random.Generator, n: int) -> Rows:
        """Return min(n, len) distinct rows, uniformly drawn, in random order."""
        return rng.choice(len(self), min(n, len(self)), replace=False)

    def neighbours(
        self, row: int, distance: int = 1, most: int | None = None, rng: np.random.Generator | None = None
    ) -> Rows:
        """Return the valid rows that differ from `row` in 1 to `distance` parameters, ascending.

        With `most` and `rng`, no more than about so many, where there are more by lot.
        """
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self.diagram.neighbours(row, distance, most, rng)

    def nearest(self, configuration: Configuration) -> dict[str, Value]:
        """Return the valid configuration that differs from this one, valid or not, in the fewest values.

        All given values must be in the lists. Ties: the fewest steps along the lists in all, then the first row.
        """
        position = [listed.index(configuration[name]) for name, listed in zip(self.names, self.values, strict=True)]
        return self.configuration(self.nearest_row(np.array(position, dtype=np.int16)))

    def nearest_row(self, indices: Indices) -> int:
        """Return the row of `nearest` for value indices of shape (parameters,)."""
        return self.diagram.nearest(indices)

    def exclusions(self) -> list[Exclusion]:
        """Return the parameter values in no valid configuration, in order, each with the constraints that forbid it."""
        levels = sorted(self.diagram.levels, key=lambda level: level.column)
        known: list[Constraint] = []
        found = []
        for level in levels:
            name, listed = self.names[level.column], self.values[level.column]
            reasons = self._reasons(level.column, np.setdiff1d(np.arange(level.count), level.used()).tolist(), known)
            found += [Exclusion(name, listed[index], reason) for index, reason in sorted(reasons.items())]
        return found

    def _reasons(self, column: int, indices: Sequence[int], known: list[Constraint]) -> dict[int, str]:
        """Return why each of these values of a parameter is in no configuration.

        This is the first constraint that alone forbids the value, or a set of constraints. One search also explains all
        values forbidden alike; its constraints are added to `known`.
        """
        every, name = dict(zip(self.names, self.values, strict=True)), self.names[column]
        reasons: dict[int, str] = {}
        for index in indices:
            if index in reasons:
                continue
            fixed = {name: self.values[column][index]}
            found = needed({**every, name: (fixed[name],)}, self.constraints, self.constants, fixed, known)
            alike = forbidden_alike(every, found, self.constants, name) if len(indices) > 1 else set()
            for other in {index} | (alike & set(indices)) - reasons.keys():
                reasons[other] = explained(found, self.constants, {name: self.values[column][other]})
        return reasons


def _check_values(name: str, listed: tuple[Value, ...]) -> None:
    if not listed:
        raise SpaceError(f"parameter {name} has no values")
    if len(set(listed)) < len(listed):
        raise SpaceError(f"parameter {name} has a value twice: {', '.join(map(str, listed))}")
    if len(listed) > np.iinfo(np.int16).max:
        raise SpaceError(f"parameter {name} has {len(listed)} values; {np.iinfo(np.int16).max} are possible")
