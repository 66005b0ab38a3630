"""Expression: a text of the language, ready to be evaluated on scalars and on columns."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import ExpressionError
from autotune.expression import columns, nodes
from autotune.expression.scalars import FaultError, truth
from autotune.expression.syntax import parse


class Expression:
    """One expression; immutable, equal and hashable by its text. Make one with `Expression.parse`."""

    __slots__ = ("names", "text", "tree", "where")

    text: str
    where: str
    """Where the text stands, for messages: `sgemm.toml: constraints[2]`."""
    names: frozenset[str]
    """The free names; `extensions` among them where `has_extension` is used."""
    tree: nodes.Node

    def __init__(self, text: str, where: str, tree: nodes.Node) -> None:
        for attribute, value in (("text", text), ("where", where), ("tree", tree), ("names", tree.names)):
            object.__setattr__(self, attribute, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"an expression does not change ({name})")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text!r})"

    def __reduce__(self) -> tuple[Callable[..., Expression], tuple[str, str]]:
        return _parse, (self.text, self.where)

    @classmethod
    def parse(cls, text: str | int | float, *, where: str = "") -> Expression:
        """Return the expression of a text, or of a number.

        ExpressionError, placed at `where`, for what is not part of the language, is too long, too deep or
        has a constant part that cannot be computed (`9**9**9`, `1 / 0`).
        """
        return _parse(text if isinstance(text, str) else repr(text), where)

    def evaluate(self, names: Mapping[str, Any]) -> int | float | bool | str:
        """Return the value for scalar `names`; ExpressionError for an unknown name, a zero divisor, a bound."""
        known = {name: columns.plain(self._look_up(names, name)) for name in self.names}
        self.check(known)
        try:
            return self.tree.scalar(known)
        except FaultError as fault:
            raise self._error(fault, known) from None

    def check(self, names: Mapping[str, Any]) -> None:
        """ExpressionError where one of these scalars is no number within bounds, no text and no tuple."""
        try:
            for name, value in names.items():
                columns.check(name, value)
        except FaultError as fault:
            raise self._error(fault, names) from None

    def mask(self, names: Mapping[str, Any]) -> NDArray[np.bool_]:
        """Return for each row whether the expression is true (a number: non-zero), shape (rows,).

        `names` gives scalars and 1-D arrays of equal length; without any array there is one row. Row by
        row the same as `evaluate`, with its ExpressionError for the first row that has one.
        """
        true, failed = self.decide(names)
        if failed.any():
            self._raise_for_row(names, int(np.argmax(failed)))
        return true

    def decide(self, names: Mapping[str, Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Like `mask`, without raising for rows: the rows that are true, and those that cannot be computed."""
        return nodes.decide(self.tree, {name: self._look_up(names, name) for name in self.names})

    def _look_up(self, names: Mapping[str, Any], name: str) -> Any:
        try:
            return names[name]
        except KeyError:
            raise unknown_name(self.text, name, names, where=self.where) from None

    def _raise_for_row(self, names: Mapping[str, Any], row: int) -> None:
        known = {name: columns.plain(columns.at_row(names[name], row)) for name in self.names}
        value = self.evaluate(known)
        try:
            truth(value)
        except FaultError as fault:
            raise self._error(fault, known) from None
        raise AssertionError(f"{self!r}: the two forms of an operator differ for {known}")

    def _error(self, fault: FaultError, names: Mapping[str, Any]) -> ExpressionError:
        shown = ", ".join(f"{n}={v!r}" for n, v in sorted(names.items()) if not isinstance(v, tuple))
        what = f"`{self.text}` {fault}"
        return ExpressionError(f"{what} ({shown})" if shown else what, where=self.where)


def unknown_name(text: str, name: str, known: Iterable[str], *, where: str = "") -> ExpressionError:
    """Return the error for a name that `text` uses and nobody defines, with the names it may have meant."""
    listed = sorted(known)
    by_capitals = {each.upper(): each for each in listed}
    close = difflib.get_close_matches(name.upper(), by_capitals, n=3, cutoff=0.5)
    if close:
        hint = f"did you mean {' or '.join(by_capitals[each] for each in close)}?"
    else:
        hint = f"known are {', '.join(listed) or 'none'}"
    return ExpressionError(f"`{text}` uses {name}, which is not defined", where=where, hint=hint)


def _parse(text: str, where: str) -> Expression:
    text = text.strip()
    return Expression(text, where, parse(text, where))
