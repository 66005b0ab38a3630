"""The divisors in a draft's expressions that are zero or negative for some of the proposed values."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, product

from autotune.errors import UsageError
from autotune.expression import Expression

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
