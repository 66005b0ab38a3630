"""The valid configurations of a study: enumerated once, then counted, indexed, looked up, sampled.

The space is a decision diagram: one level per parameter, a state for everything that the constraints
still want to know of the parameters above it, a transition per value. Partial configurations that leave
the same conditions on the rest share a state, so neither 10^9 combinations nor 10^9 valid configurations
are ever written out.

    build.py     constraints -> diagram, a parameter at a time
    bounds.py    what no values of the parameters still open can bring to satisfy a constraint
    diagram.py   the diagram: row <-> configuration, neighbours; the order of its levels, equal rows merged
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ExpressionError, SpaceError
from autotune.expression import Expression
from autotune.model import Configuration, Value
from autotune.space.build import EmptyError, FailedError, build
from autotune.space.diagram import Diagram, Indices

__all__ = ["MAX_LISTED", "Constraint", "Exclusion", "Space"]

MAX_LISTED = 20_000_000
"""The most rows that `indices()` lists at once."""

MAX_SHOWN = 4  # constraints in a reason
MAX_SOUGHT = 200_000  # transitions, to look for a reason; a larger diagram counts as possible

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Constraint:
    """What must hold for a configuration to be valid, and the reason, for people."""

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


@dataclass(frozen=True, eq=False)
class Space:
    """The valid configurations. Make one with `Space.build`, or with `Space.of_indices` from a list.

    A configuration has a row, 0 <= row < len(space). Columns of index arrays are the parameters in the order
    of `names`, their entries positions in `values`. Rows are in lexicographic order of the value indices, the
    parameters taken in the order in which they were bound (`bound`, `diagram.binding_order`): the same parameters and
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
        """Enumerate the valid configurations; names of `parameters` go before those of `constants`.

        A configuration is valid if no constraint is false. SpaceError where there is none, where a
        parameter has no or equal values, where the constraints leave too much open; ExpressionError where a
        constraint has an unknown name, or cannot be computed for a configuration that no other forbids.
        """
        values = {name: tuple(listed) for name, listed in parameters.items()}
        known = {name: value for name, value in (constants or {}).items() if name not in values}
        for name, listed in values.items():
            _check_values(name, listed)
        try:
            diagram = build(values, [constraint.require for constraint in constraints], known)
        except EmptyError:
            raise SpaceError(f"no configuration is valid: {_why_impossible(values, constraints, known, {})}") from None
        except FailedError as error:
            configuration = {name: values[name][index] for name, index in error.indices.items()}
            constraints[error.number].require.holds({**known, **configuration})
            raise
        return cls(tuple(values), tuple(values.values()), tuple(constraints), known, diagram)

    @classmethod
    def of_indices(cls, parameters: Mapping[str, Sequence[Value]], indices: Indices) -> Space:
        """The space of exactly these configurations, given as value indices, shape (n, parameters), distinct."""
        names, values = tuple(parameters), tuple(tuple(listed) for listed in parameters.values())
        table = indices[np.lexsort(indices.T[::-1])].astype(np.int64)
        if not len(table):
            raise SpaceError("no configuration is valid: none is listed")
        keys, targets = [], []
        state = np.zeros(len(table), dtype=np.int64)
        for column, listed in enumerate(values):
            key, state = np.unique(state * len(listed) + table[:, column], return_inverse=True)
            keys.append(key)
            targets.append(np.arange(len(key), dtype=np.int64))
        columns = [(column, len(listed)) for column, listed in enumerate(values)]
        return cls(names, values, (), {}, Diagram.link(columns, keys, targets))

    @property
    def combinations(self) -> int:
        """The number of configurations before constraints."""
        return math.prod(len(listed) for listed in self.values)

    @property
    def bound(self) -> tuple[str, ...]:
        """The parameters in the order of rows: the first varies slowest."""
        return tuple(self.names[level.column] for level in self.diagram.levels)

    def __len__(self) -> int:
        return len(self.diagram)

    def configuration(self, row: int) -> dict[str, Value]:
        """Return the configuration of a row; IndexError outside 0 <= row < len."""
        indices = self.indices(np.array([row], dtype=np.int64))[0]
        return {n: listed[i] for n, listed, i in zip(self.names, self.values, indices, strict=True)}

    def row(self, configuration: Configuration) -> int | None:
        """Return the row of a configuration; None where it is not valid, lacks a name or has another one."""
        if set(configuration) != set(self.names):
            return None
        try:
            position = [listed.index(configuration[n]) for n, listed in zip(self.names, self.values, strict=True)]
        except ValueError:
            return None
        row = int(self.rows(np.array([position], dtype=np.int16))[0])
        return row if row >= 0 else None

    def __contains__(self, configuration: object) -> bool:
        return isinstance(configuration, Mapping) and self.row(configuration) is not None

    def indices(self, rows: NDArray[np.int64] | None = None) -> Indices:
        """Return the value indices of some rows (None: all), shape (n, parameters).

        SpaceError where all are asked for and there are more than MAX_LISTED; IndexError outside the rows.
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
        """Return the row of each index vector, shape (n, parameters); -1 where it is not valid."""
        return self.diagram.rows(np.asarray(indices))

    def sample(self, rng: np.random.Generator, n: int) -> Rows:
        """Return min(n, len) distinct rows, uniformly drawn, in random order."""
        return rng.choice(len(self), min(n, len(self)), replace=False)

    def neighbours(self, row: int, distance: int = 1) -> Rows:
        """Return the valid rows that differ from `row` in 1 to `distance` parameters, ascending."""
        if not 0 <= row < len(self):
            raise IndexError(f"row {row} of {len(self)}")
        return self.diagram.neighbours(row, distance)

    def exclusions(self) -> list[Exclusion]:
        """Return the parameter values in no valid configuration, in order, each with the constraints that forbid it."""
        levels = sorted(self.diagram.levels, key=lambda level: level.column)
        known: list[Constraint] = []
        return [
            Exclusion(
                self.names[level.column], self.values[level.column][index], self._reason(level.column, index, known)
            )
            for level in levels
            for index in np.setdiff1d(np.arange(level.count), self.diagram.used(level)).tolist()
        ]

    def _reason(self, column: int, index: int, known: list[Constraint]) -> str:
        """The first constraint that alone forbids a value; else a set that together does. It is added to `known`."""
        name, value = self.names[column], self.values[column][index]
        values = {**dict(zip(self.names, self.values, strict=True)), name: (value,)}
        return _why_impossible(values, self.constraints, self.constants, {name: value}, known)


def _check_values(name: str, listed: tuple[Value, ...]) -> None:
    if not listed:
        raise SpaceError(f"parameter {name} has no values")
    if len(set(listed)) < len(listed):
        raise SpaceError(f"parameter {name} has a value twice: {', '.join(map(str, listed))}")
    if len(listed) > np.iinfo(np.int16).max:
        raise SpaceError(f"parameter {name} has {len(listed)} values; {np.iinfo(np.int16).max} are possible")


def _why_impossible(
    values: Mapping[str, Sequence[Value]],
    constraints: Sequence[Constraint],
    constants: Mapping[str, Any],
    fixed: Mapping[str, Value],
    known: list[Constraint] | None = None,
) -> str:
    """Return why `constraints` leave nothing of `values`: the first that alone does, or a set of which none can go.

    What it finds is added to `known`, constraints that were found for other values: often they are those of this, too.
    Where `fixed` holds the only value of a parameter, the text shown leaves out what it decides.
    """

    def possible(some: Sequence[Constraint]) -> bool:
        named = frozenset().union(*(constraint.require.names for constraint in some))
        concerned = {name: listed for name, listed in values.items() if name in named}  # the others are free
        try:
            build(concerned, [constraint.require for constraint in some], constants, MAX_SOUGHT)
        except EmptyError:
            return False
        except (FailedError, SpaceError):
            return True
        return True

    # What does not name the fixed parameter allows its other values, so it is possible alone.
    concerned = [each for each in constraints if not fixed or each.require.names & fixed.keys()]
    alone = next((constraint for constraint in concerned if not possible([constraint])), None)
    likely = [each for each in constraints if each in concerned or each in (known or ())]
    needed = [alone] if alone else _needed(_near(likely, constraints, values.keys(), possible), possible)
    if known is not None:
        known += needed
    shown = " and ".join(_explained(constraint, constants, fixed) for constraint in needed[:MAX_SHOWN])
    return shown if len(needed) <= MAX_SHOWN else f"{shown} and {len(needed) - MAX_SHOWN} more constraints"


def _near(
    some: list[Constraint],
    constraints: Sequence[Constraint],
    parameters: Set[str],
    possible: Callable[[Sequence[Constraint]], bool],
) -> list[Constraint]:
    """Return `some` constraints and those around them that share parameters, as far out as it takes to leave nothing.

    A small set is looked through in a small part of the time of all.
    """
    while len(some) < len(constraints) and possible(some):
        named = parameters & frozenset().union(*(each.require.names for each in some))
        more = [each for each in constraints if each.require.names & named]
        if len(more) <= len(some):
            return list(constraints)
        some = more
    return some


def _needed(
    constraints: Sequence[Constraint],
    possible: Callable[[Sequence[Constraint]], bool],
    beside: Sequence[Constraint] = (),
    *,
    grown: bool = False,
) -> list[Constraint]:
    """Return, of `constraints` that with those `beside` leave nothing, a set of which none can go.

    By halves (Junker's QuickXplain): of a few dozen constraints of which three matter, a dozen builds tell them, not
    one for each. `grown`: there are more beside than the caller knew to be possible.
    """
    if grown and not possible(beside):
        return []
    if len(constraints) == 1:
        return list(constraints)
    early, late = constraints[: len(constraints) // 2], constraints[len(constraints) // 2 :]
    of_early = _needed(early, possible, [*beside, *late], grown=True)
    return [*of_early, *_needed(late, possible, [*beside, *of_early], grown=bool(of_early))]


def _explained(constraint: Constraint, constants: Mapping[str, Any], fixed: Mapping[str, Value]) -> str:
    """Return the reason, the text as far as `fixed` values leave it open, and the constants that it uses."""
    text = " ".join(_open_part(constraint.require.text, fixed).split())
    used = Expression.parse(text).names & constants.keys() - {"extensions"}
    detail = "; ".join([text, *([", ".join(f"{name}={constants[name]}" for name in sorted(used))] if used else [])])
    return f"{constraint.reason} ({detail})" if constraint.reason else detail


def _open_part(text: str, fixed: Mapping[str, Value]) -> str:
    """Leave out what `fixed` values decide: the false parts of an `or`, the other branch of an `if`."""
    source = f"({text}\n)"
    match ast.parse(source, mode="eval").body:
        case ast.IfExp(test=test, body=body, orelse=other) if (decided := _decided(source, test, fixed)) is not None:
            return _open_part(_segment(source, body if decided else other), fixed)
        case ast.BoolOp(op=ast.Or(), values=parts):
            rest = [part for part in parts if _decided(source, part, fixed) is not False]
            return " or ".join(_segment(source, part) for part in rest) if rest else text
    return text


def _segment(source: str, node: ast.expr) -> str:
    return ast.get_source_segment(source, node) or ast.unparse(node)


def _decided(source: str, node: ast.expr, fixed: Mapping[str, Value]) -> bool | None:
    part = Expression.parse(_segment(source, node))
    if not part.names <= fixed.keys():
        return None
    try:
        return bool(part.evaluate(fixed))
    except ExpressionError:
        return None
