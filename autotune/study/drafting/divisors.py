"""Constraints of a draft: divisors that are not zero, and work-groups that are whole rows of items."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.expression import Expression
from autotune.study.drafting.axes import extent_of
from autotune.study.drafting.findings import Guard
from autotune.study.drafting.groups import by_default
from autotune.study.drafting.syntax import names_in
from autotune.study.drafting.terms import Sum, remainder

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal

_DIVIDING = (ast.FloorDiv, ast.Mod, ast.Div)
_ROUNDING = ("ceil_div", "round_up")
"""Functions that divide by their second argument."""

_MOST = 10_000
"""The most configurations to try."""


def zero_for_some(texts: Iterable[str], values: Mapping[str, Sequence[int]]) -> list[str]:
    """Return the divisors in expressions that are zero or less for some of the `values` of their names, each once."""
    found = dict.fromkeys(divisor for text in texts for divisor in _divisors(text))
    return [divisor for divisor in found if _vanishes(divisor, values)]


def _divisors(text: str) -> Iterator[str]:
    try:
        nodes = ast.walk(ast.parse(text, mode="eval"))
    except SyntaxError:  # the guess of a macro's text
        return
    for node in nodes:
        if isinstance(node, ast.BinOp) and isinstance(node.op, _DIVIDING):
            yield ast.unparse(node.right)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in _ROUNDING and len(node.args) == 2:
            yield ast.unparse(node.args[1])


def _vanishes(divisor: str, values: Mapping[str, Sequence[int]]) -> bool:
    try:
        expression = Expression.parse(divisor)
        names = sorted(expression.names)
        if not names or not values.keys() >= {*names}:
            return False
        rows = islice(product(*(values[name] for name in names)), _MOST)
        return any(float(expression.evaluate(dict(zip(names, row, strict=True)))) <= 0 for row in rows)
    except UsageError:  # it divides by zero itself: that inner divisor is tested on its own
        return False


def whole_rows(of: Proposal) -> list[tuple[str, str]]:
    """Return constraints, with reasons, that keep the items of a row in one group, if local memory is theirs.

    A row has the items with the same `id / 64`, and each is one of them by `id % 64`.
    """
    found, numbers = dict[str, str](), {**of.parameters, **of.extra}
    for entry, shapes in of.tuned.items():
        reading = shapes.reading
        shared = bool(reading.arrays) or any(one.address == "local" for one in of.sketch.signatures[entry])
        for axis, extent in enumerate(of.locals[entry]) if shared else ():
            item = Sum.of(f"gid#{axis}")
            rows = {by for value, by in reading.quotients.values() if value == item}
            for by in sorted(rows, key=str):
                whole = int(by_default(extent, numbers)) % max(int(by_default(str(by), numbers)), 1) == 0
                known = by.names <= of.parameters.keys() and names_in(extent)
                if whole and known and Guard(remainder(item, by), by) in reading.guards:
                    required = f"{extent_of(extent)} % {extent_of(str(by))} == 0"
                    found[required] = f"{by} items of {entry} share local memory"
    return [*found.items()]
