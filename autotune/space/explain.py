"""Constraints for a reader, and why a value is in no valid configuration."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import ExpressionError
from autotune.expression import Expression
from autotune.model import Value


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


def explain(constraint: Constraint, constants: Mapping[str, Any], fixed: Mapping[str, Value] | None = None) -> str:
    """A constraint with its reason, its text as far as `fixed` values leave it open, and the constants in it."""
    text = _open_part(constraint.require.text, fixed or {})
    names = {node.id for node in ast.walk(ast.parse(f"({text}\n)", mode="eval")) if isinstance(node, ast.Name)}
    shown = [f"{name}={_shown(constants[name])}" for name in sorted(names & set(constants)) if name != "extensions"]
    return f"{constraint.reason} ({'; '.join([' '.join(text.split()), *([', '.join(shown)] if shown else [])])})"


def explain_all(
    constraints: Sequence[Constraint], constants: Mapping[str, Any], fixed: Mapping[str, Value] | None = None
) -> str:
    """Several constraints that together are the reason."""
    return " and ".join(explain(constraint, constants, fixed) for constraint in constraints)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)


def _open_part(text: str, fixed: Mapping[str, Value]) -> str:
    """Leave out what `fixed` values decide: the false parts of an `or`, the other branch of an `if`."""
    source = f"({text}\n)"
    node: ast.expr = ast.parse(source, mode="eval").body
    match node:
        case ast.IfExp(test=test) if (decided := _decided(source, test, fixed)) is not None:
            return _open_part(_segment(source, node.body if decided else node.orelse), fixed)
        case ast.BoolOp(op=ast.Or(), values=values):
            rest = [value for value in values if _decided(source, value, fixed) is not False]
            return " or ".join(_segment(source, value) for value in rest) if rest else text
    return text


def _segment(source: str, node: ast.expr) -> str:
    return ast.get_source_segment(source, node) or ast.unparse(node)


def _decided(source: str, node: ast.expr, fixed: Mapping[str, Value]) -> bool | None:
    part = Expression.parse(_segment(source, node))
    if not part.names <= set(fixed):
        return None
    try:
        return bool(part.evaluate(fixed))
    except ExpressionError:
        return None
