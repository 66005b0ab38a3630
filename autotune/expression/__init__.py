"""The small safe language of constraints and sizes: parsed by `ast`, checked, compiled; its text is never run.

It has arithmetic, (chained) comparisons, `and`, `or`, `not`, `a if c else b`, `x in (1, 2)`, text in quotes,
the functions in `FUNCTIONS` and `has_extension("cl_khr_fp16")`. `and`, `or` and `not` give truth values;
they, `if` and chained comparisons do not compute what they do not need.

    syntax.py   text -> tree, by an allow-list and with limits; the array language shares `read`
    tree.py     the meaning of the tree, as a Python function of scalars; known values put into the tree
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

from autotune.errors import ExpressionError
from autotune.expression.syntax import EXTENSIONS, MAX_LENGTH, MAX_NESTING, MAX_NODES, parse, read, replaced, unsuffixed
from autotune.expression.tree import (
    FUNCTIONS,
    Compiled,
    FaultError,
    Node,
    bounded,
    compiled,
    fault,
    operand,
    put_in,
    reduced,
)

__all__ = [
    "FUNCTIONS", "MAX_LENGTH", "MAX_NESTING", "MAX_NODES", "Expression", "Node", "compiled", "is_beyond", "operand",
    "put_in", "read", "reduced", "unknown_name", "unsuffixed",
]  # fmt: skip


@dataclass(frozen=True)
class Expression:
    """One expression; equal and hashable by its text. Make one with `Expression.parse`.

    `where`: the place of its text, for messages, such as `sgemm.toml: constraints[2]`.
    """

    text: str
    where: str = field(compare=False, repr=False)
    tree: Node = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        self.__dict__["tree"] = parse(self.text, self.where)

    def __reduce__(self) -> tuple[Callable[..., Expression], tuple[str, str]]:
        return Expression, (self.text, self.where)

    @property
    def names(self) -> frozenset[str]:
        """The free names, including `extensions` if `has_extension` is used."""
        return self.tree.names

    @classmethod
    def parse(cls, text: str | int | float, *, where: str = "") -> Expression:
        """Return the expression of a text, or of a number.

        Raises ExpressionError, placed at `where`, if it is not part of the language, is too long, too deep or
        has a constant part that cannot be computed (`9**9**9`, `1 / 0`).
        """
        return _expression(text.strip() if isinstance(text, str) else repr(text), where)

    def with_parts(self, parts: Mapping[str, Expression]) -> Expression:
        """Return it with names replaced by expressions. Raises ExpressionError if the result exceeds the limits."""
        if not self.names & parts.keys():
            return self
        return Expression(
            # Only the parts that are used are read: else many chained expressions would read all parts for each.
            replaced(self.text, {name: parts[name].text for name in self.names & parts.keys()}, self.where),
            self.where,
        )

    @cached_property
    def _function(self) -> Compiled:
        return compiled(self.tree)

    def evaluate(self, names: Mapping[str, Any]) -> int | float | bool | str:
        """Return the value for `names`. Raises ExpressionError: an unknown name, a zero divisor, beyond limits."""
        value = self._computed(names, lambda value: value)
        return str(value) if isinstance(value, str) else value

    def holds(self, names: Mapping[str, Any]) -> bool:
        """Return whether the value of `evaluate` is true (a number: non-zero). Raises ExpressionError also for text."""
        return bool(self._computed(names, bool))

    def usable(self, names: Mapping[str, Any]) -> dict[str, Any]:
        """Return the free names' values in `names`, NumPy's as Python's. Raises ExpressionError for unusable values."""
        known = {name: operand(names[name]) for name in sorted(self.names & names.keys())}
        for name, value in known.items():
            unusable = _unusable(name, value)
            if unusable:
                raise self._error(unusable, known)
        return known

    def _computed(self, names: Mapping[str, Any], form: Callable[[Any], Any]) -> Any:
        for name in sorted(self.names - names.keys()):
            raise unknown_name(self.text, name, names, where=self.where)
        known = self.usable(names)
        try:
            return form(self._function(*known.values()))
        except ArithmeticError as error:
            raise self._error(fault(error), known) from None

    def _error(self, fault: str, names: Mapping[str, Any]) -> ExpressionError:
        shown = ", ".join(f"{n}={v!r}" for n, v in names.items() if not isinstance(v, tuple))
        what = f"`{self.text}` {fault}"
        return ExpressionError(f"{what} ({shown})" if shown else what, where=self.where)


@lru_cache(maxsize=1024)
def _expression(text: str, where: str) -> Expression:
    """Return the cached expression of a text: a server, and a search of several sizes, read a study many times."""
    return Expression(text, where)


def unknown_name(text: str, name: str, known: Iterable[str], *, where: str) -> ExpressionError:
    """Return the error for an undefined name that `text` uses, with the names that may be meant."""
    listed = sorted(known)
    by_capitals = {each.upper(): each for each in listed}
    close = difflib.get_close_matches(name.upper(), by_capitals, n=3, cutoff=0.5)
    if close:
        hint = f"did you mean {' or '.join(by_capitals[each] for each in close)}?"
    else:
        hint = f"known are {', '.join(listed) or 'none'}"
    return ExpressionError(f"`{text}` uses {name}, which is not defined", where=where, hint=hint)


def _unusable(name: str, value: Any) -> str:
    """Return why a name's value cannot be used; "" for numbers within the limits, text, and the tuple `extensions`."""
    if isinstance(value, str) or (isinstance(value, tuple) and name == EXTENSIONS):
        return ""
    if isinstance(value, tuple):
        return f"uses the list {name} as a value"
    if not isinstance(value, int | float):
        return f"uses {name}, which is neither a number nor text"
    return f"uses {name}, which is out of bounds" if is_beyond(value) else ""


def is_beyond(value: Any) -> bool:
    """Return whether a value is a number that no expression takes: a whole one beyond +-2**62, or no finite float."""
    if not isinstance(value, int | float):
        return False
    try:
        bounded(value)
    except FaultError:
        return True
    return False
