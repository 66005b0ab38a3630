"""The names that the expressions of a study may use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from operator import attrgetter
from typing import Any

from autotune.errors import StudyError
from autotune.expression import Expression
from autotune.model import DeviceInfo
from autotune.text import did_you_mean

GAP = "TODO"
"""What a draft contains where its author must write something."""

MACROS = ("choices", "parameters", "defines")
"""The tables of a study whose names are macros in its kernel."""

UNWRITTEN = f"has a {GAP}: replace it"

DEVICE_FACTS: Mapping[str, Callable[[DeviceInfo], Any]] = {
    "local_memory": attrgetter("local_memory"),  # bytes
    "max_work_group_size": attrgetter("max_work_group_size"),
    "compute_units": attrgetter("compute_units"),
    "vendor": attrgetter("vendor_name"),
    "device_kind": attrgetter("kind"),
    "compute_capability": lambda device: float(device.compute_capability or 0),
    "extensions": attrgetter("extensions"),
    "constant_memory": attrgetter("constant_memory"),  # bytes
    "sub_group_size": attrgetter("sub_group_size"),  # work-items; 0 if the driver does not tell
}
"""Facts of a device that expressions may use: their names there, and what they are."""


_MOST_DEFINED = 256


class Scope:
    """The names that may be used at one place of a study; parses expressions there. Its errors are StudyErrors.

    `definitions` maps computed names to their expressions. A computed name may be used if all names in its expression
    may. A name that is known already keeps its meaning.
    """

    def __init__(
        self,
        known: Iterable[str],
        definitions: Mapping[str, Expression] | None = None,
        structs: Mapping[str, str] | None = None,
    ) -> None:
        self.known = frozenset(known)
        self.structs = structs or {}
        """Names that may stand for a type: the text of each struct."""
        self._all = definitions or {}
        self.definitions = {
            name: expression
            for name, expression in self._all.items()
            if name not in self.known and expression.names <= self.known
        }

    def with_names(self, names: Iterable[str]) -> Scope:
        """Return a scope with these names added."""
        return Scope(self.known | set(names), self._all, self.structs)

    def require(self, name: str, where: str) -> None:
        """Raise StudyError if a name may not be used here."""
        if name not in self.known:
            if name == GAP:
                raise StudyError(UNWRITTEN, where=where)
            raise StudyError(
                f"names {name!r}, which cannot be used here{did_you_mean(name, sorted(self.known))}",
                where=where,
                hint="known here: " + ", ".join(sorted(self.known)),
            )

    def expression(self, text: str | int | float, where: str) -> Expression:
        """Parse an expression of known names; computed names are replaced by their expressions."""
        expression = Expression.parse(text, where=where)
        for name in sorted(expression.names - self.definitions.keys()):
            self.require(name, where)
        return expression.with_parts(self.definitions)

    def expressions(self, texts: Iterable[str | int | float], where: str) -> tuple[Expression, ...]:
        """Parse several expressions."""
        return tuple(self.expression(text, where) for text in texts)


def definitions(texts: Mapping[str, str | int | float], known: Iterable[str]) -> dict[str, Expression]:
    """Return the expressions of `[defines]`; the names of other defines in them are replaced by their expressions.

    Raises StudyError for a cycle, and for more than 256 names: the cost of each grows with the names it uses.
    """
    if len(texts) > _MOST_DEFINED:
        raise StudyError(f"has {len(texts)} names, more than {_MOST_DEFINED}", where="defines")
    own = {name: Expression.parse(text, where=f"defines.{name}") for name, text in texts.items()}
    apart = frozenset(known)
    needs = {name: (expression.names & own.keys()) - apart for name, expression in own.items()}
    found: dict[str, Expression] = {}
    for name in in_order(needs, "defines.{}"):
        found[name] = own[name].with_parts({other: found[other] for other in needs[name]})
    return found


def in_order(needs: Mapping[str, Collection[str]], place: str) -> list[str]:
    """Return names in an order in which each comes after the names that it needs.

    Raises StudyError for a cycle; it names `place`, with the first name of the cycle for `{}`.
    """
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        circle = error.args[1]
        what = f"is computed from itself: {' <- '.join(circle)}"
        raise StudyError(what, where=place.format(circle[0])) from None


def word_of_python(name: str) -> str:
    """Return a hint for an argument whose name is a keyword, so that no expression or Python function can use it."""
    return f"{name!r} is a word of Python: call the argument {name}_, launches go by position"
