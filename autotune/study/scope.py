"""The names that may stand in the expressions of a study."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from autotune.errors import StudyError
from autotune.expression import Expression
from autotune.text import did_you_mean

GAP = "TODO"
"""What a draft has where its author is to write."""

UNWRITTEN = f"has a {GAP}: replace it"

DEVICE_FACTS = (
    "local_memory", "max_work_group_size", "compute_units", "vendor", "device_kind", "compute_capability", "extensions",
    "constant_memory", "sub_group_size",
)  # fmt: skip
"""Names of device facts in expressions: bytes, work-items, count, one word, `gpu` or `cpu`, NVIDIA's number, names,
bytes, work-items (0 where the driver does not tell)."""


_MOST_DEFINED = 256


class Scope:
    """The names that may stand somewhere in a study; reads expressions there. Its errors are StudyErrors.

    `definitions` are the computed names, with the expressions that they stand for; those that name what may not stand
    here may not either, and a name that is known already keeps its meaning.
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
        """Return a scope of more names."""
        return Scope(self.known | set(names), self._all, self.structs)

    def require(self, name: str, where: str) -> None:
        """Raise StudyError for a name that may not stand here."""
        if name not in self.known:
            if name == GAP:
                raise StudyError(UNWRITTEN, where=where)
            raise StudyError(
                f"names {name!r}, which cannot be used here{did_you_mean(name, sorted(self.known))}",
                where=where,
                hint="known here: " + ", ".join(sorted(self.known)),
            )

    def expression(self, text: str | int | float, where: str) -> Expression:
        """Return an expression of known names only; computed ones are put in."""
        expression = Expression.parse(text, where=where)
        for name in sorted(expression.names - self.definitions.keys()):
            self.require(name, where)
        return expression.with_parts(self.definitions)

    def expressions(self, texts: Iterable[str | int | float], where: str) -> tuple[Expression, ...]:
        """Return several."""
        return tuple(self.expression(text, where) for text in texts)


def definitions(texts: Mapping[str, str | int | float], known: Iterable[str]) -> dict[str, Expression]:
    """Return the expressions of `[defines]`, each with those in it that it names.

    Raises StudyError for a circle, and for more than 256: what each costs grows with what it names.
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
    """Return names in an order in which each comes after those that it needs.

    Raises StudyError for a circle, at the `place` of its first name, `{}`.
    """
    try:
        return list(TopologicalSorter(needs).static_order())
    except CycleError as error:
        circle = error.args[1]
        what = f"is computed from itself: {' <- '.join(circle)}"
        raise StudyError(what, where=place.format(circle[0])) from None


def word_of_python(name: str) -> str:
    """Say what to do about an argument that neither an expression nor a function of Python can name."""
    return f"{name!r} is a word of Python: call the argument {name}_, launches go by position"
