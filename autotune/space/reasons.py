"""Why no configuration is valid, or none with some value: a minimal set of constraints that leave none."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from autotune.errors import ExpressionError, SpaceError
from autotune.expression import Expression
from autotune.model import Value
from autotune.space.build import EmptyError, FailedError, build
from autotune.space.diagram import Diagram

MAX_SHOWN = 4  # constraints in a reason
MAX_SOUGHT = 200_000  # transitions, while looking for a reason; a larger diagram counts as possible


@dataclass(frozen=True)
class Constraint:
    """A condition that valid configurations fulfil, and its reason, for people."""

    require: Expression
    reason: str


def why_impossible(
    values: Mapping[str, Sequence[Value]],
    constraints: Sequence[Constraint],
    constants: Mapping[str, Any],
    fixed: Mapping[str, Value],
    known: list[Constraint] | None = None,
) -> str:
    """Return why `constraints` leave no configuration of `values`, for people: what `needed` finds."""
    return explained(needed(values, constraints, constants, fixed, known), constants, fixed)


def needed(
    values: Mapping[str, Sequence[Value]],
    constraints: Sequence[Constraint],
    constants: Mapping[str, Any],
    fixed: Mapping[str, Value],
    known: list[Constraint] | None = None,
) -> list[Constraint]:
    """Return constraints that leave no configuration of `values`: the first that alone does, or a minimal set.

    They are added to `known`, constraints that were found for other values: often the same ones are the reason here.
    `fixed` holds the only value of a parameter, or is empty.
    """

    def possible(some: Sequence[Constraint]) -> bool:
        return _left(values, some, constants) is not _NOTHING

    # A constraint that does not name the fixed parameter treats its other values alike, so alone it leaves something.
    concerned = [each for each in constraints if not fixed or each.require.names & fixed.keys()]
    alone = next((constraint for constraint in concerned if not possible([constraint])), None)
    likely = [each for each in constraints if each in concerned or each in (known or ())]
    if alone:
        found = [alone]
    else:
        near = _near(likely, constraints, values.keys(), possible)
        # Constraints late in the list are kept first: those with few parameters say more to a reader.
        by_names = sorted(near, key=lambda each: len(each.require.names & values.keys()), reverse=True)
        found = sorted(_needed(by_names, possible), key=near.index)
    if known is not None:
        known += [each for each in found if each not in known]
    return found


def explained(needed: Sequence[Constraint], constants: Mapping[str, Any], fixed: Mapping[str, Value]) -> str:
    """Return the constraints for people, without the parts that a parameter's only value in `fixed` decides."""
    shown = " and ".join(_explained(constraint, constants, fixed) for constraint in needed[:MAX_SHOWN])
    return shown if len(needed) <= MAX_SHOWN else f"{shown} and {len(needed) - MAX_SHOWN} more constraints"


def forbidden_alike(
    values: Mapping[str, Sequence[Value]], needed: Sequence[Constraint], constants: Mapping[str, Any], name: str
) -> set[int]:
    """Return the places of a parameter's values for which these constraints are a minimal set that forbids them.

    One build tells this for all values, of which there may be thousands; empty if a diagram is too large.
    """

    def unused(some: Sequence[Constraint]) -> set[int]:
        left = _left(values, some, constants)
        column = [each for each in values if any(each in one.require.names for one in some)].index(name)
        used = [level.used().tolist() for level in left.levels if level.column == column] if left is not None else []
        return set(range(len(values[name]))).difference(*used) if left is not None else set()

    forbidden = unused(needed)
    for each in needed if len(needed) > 1 else ():
        without = [other for other in needed if other is not each]
        if any(name in other.require.names for other in without):
            forbidden -= unused(without)
    return forbidden


_NOTHING = Diagram(())
"""The result if no configuration is left."""


def _left(
    values: Mapping[str, Sequence[Value]], some: Sequence[Constraint], constants: Mapping[str, Any]
) -> Diagram | None:
    """Return the diagram that constraints leave of the parameters that they name, the others being free.

    None if it is too large, or a constraint cannot be computed.
    """
    named = frozenset().union(*(constraint.require.names for constraint in some))
    concerned = {name: listed for name, listed in values.items() if name in named}
    try:
        return build(concerned, [constraint.require for constraint in some], constants, MAX_SOUGHT)
    except EmptyError:
        return _NOTHING
    except (FailedError, SpaceError):
        return None


def _near(
    some: list[Constraint],
    constraints: Sequence[Constraint],
    parameters: Set[str],
    possible: Callable[[Sequence[Constraint]], bool],
) -> list[Constraint]:
    """Return `some` constraints, and step by step those that share parameters with them, until they leave nothing.

    A small set takes much less time to search than all constraints.
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
    """Return a minimal set of `constraints` that leaves nothing together with those `beside`; all of them do.

    By halves (Junker's QuickXplain): if three of a few dozen constraints matter, a dozen builds find them, not one for
    each. `grown`: whether `beside` has more constraints than the caller knew to be possible.
    """
    if grown and not possible(beside):
        return []
    if len(constraints) == 1:
        return list(constraints)
    early, late = constraints[: len(constraints) // 2], constraints[len(constraints) // 2 :]
    of_early = _needed(early, possible, [*beside, *late], grown=True)
    return [*of_early, *_needed(late, possible, [*beside, *of_early], grown=bool(of_early))]


def _explained(constraint: Constraint, constants: Mapping[str, Any], fixed: Mapping[str, Value]) -> str:
    """Return the reason, the part of the text that `fixed` values leave open, and the constants that it uses."""
    text = " ".join(_open_part(constraint.require.text, fixed).split())
    used = Expression.parse(text).names & constants.keys() - {"extensions"}
    detail = "; ".join([text, *([", ".join(f"{name}={constants[name]}" for name in sorted(used))] if used else [])])
    return f"{constraint.reason} ({detail})" if constraint.reason and not _is_itself(constraint) else detail


def _is_itself(constraint: Constraint) -> bool:
    """Whether a constraint's reason is its own text, because it was given none."""
    try:
        return Expression.parse(constraint.reason).text == constraint.require.text
    except ExpressionError:
        return False


def _open_part(text: str, fixed: Mapping[str, Value]) -> str:
    """Return a text without what `fixed` values decide: the false parts of an `or`, the other branch of an `if`."""
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
