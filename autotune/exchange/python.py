"""Python in another tool's file: lists of values and conditions, read by an allow-list and computed within limits."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from autotune.expression import Expression, read

MOST_VALUES = 4096
_DEEPEST = 40


def listed_values(text: str, where: str) -> list[Any]:
    """Return the values that a Python text lists: `[1, 2] + [2**i for i in range(2, 8)]`.

    Raises ExpressionError, ValueError, TypeError or ArithmeticError for any other text, and for more than 4,096 values.
    """
    return _Values({}).listed(read(text.strip(), where))


class Spelt(ast.NodeTransformer):
    """Rewrites `ProblemSize[0]`, and `max(NAME)` over a parameter's values, in our language."""

    def __init__(self, sizes: Mapping[str, int], values: Mapping[str, list[Any]]) -> None:
        self._sizes, self._values = list(sizes), values

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        """Replace a subscript of the problem's size by the name of the size."""
        named = isinstance(node.value, ast.Name) and node.value.id.lower() in ("problemsize", "problem_size")
        place = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if named and isinstance(place, int) and 0 <= place < len(self._sizes):
            return ast.Name(self._sizes[place], ast.Load())
        return self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Replace a call by the largest or least value of a parameter, which is known."""
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max") and len(node.args) == 1:
            only = node.args[0]
            if isinstance(only, ast.Name) and only.id in self._values:
                numbers = [value for value in self._values[only.id] if isinstance(value, int | float)]
                if numbers:
                    return ast.Constant((min if node.func.id == "min" else max)(numbers))
        return self.generic_visit(node)


class _Values:
    """Computes a list of values: literals, `range`, `list`, sums of lists, comprehensions over one of them."""

    def __init__(self, names: Mapping[str, Any], depth: int = 0) -> None:
        if depth > _DEEPEST:
            raise ValueError("nested too deeply")
        self._names, self._depth = names, depth

    def listed(self, node: ast.AST) -> list[Any]:
        """Return the values of a list. Raises ValueError."""
        match node:
            case ast.List() | ast.Tuple():
                found = [self._one(part) for part in node.elts]
            case ast.Call(func=ast.Name(id="list" | "sorted"), args=[inner], keywords=[]):
                found = self.listed(inner)
                found = sorted(found) if node.func.id == "sorted" else found  # type: ignore[attr-defined]
            case ast.Call(func=ast.Name(id="range"), args=args, keywords=[]) if 1 <= len(args) <= 3:
                bounds = [self._one(part) for part in args]
                if not all(type(each) is int for each in bounds):
                    raise ValueError("a range of what are no whole numbers")
                steps = range(*bounds)
                if len(steps) > MOST_VALUES:
                    raise ValueError(f"more than {MOST_VALUES} values")
                found = list(steps)
            case ast.BinOp(op=ast.Add()):
                found = self.listed(node.left) + self.listed(node.right)
            case ast.ListComp(generators=[ast.comprehension(target=ast.Name(id=name), is_async=0) as each]):
                found = []
                for value in self.listed(each.iter):
                    bound = _Values({**self._names, name: value}, self._depth + 1)
                    if all(bound._one(test) for test in each.ifs):
                        found.append(bound._one(node.elt))
            case _:
                raise ValueError(f"{ast.unparse(node):.60} is not a list")
        if len(found) > MOST_VALUES:
            raise ValueError(f"more than {MOST_VALUES} values")
        return found

    def _one(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
            return node.value
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._names[node.id]
        return Expression.parse(ast.unparse(node)).evaluate(self._names)
