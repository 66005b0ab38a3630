"""Build options of a configuration as C: one string for those without sizes, formats and values for the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from autotune.errors import StudyError
from autotune.expression import put_in
from autotune.lookup.artefacts.catalogue import Entry
from autotune.lookup.artefacts.ctext import NoCError, string, whole
from autotune.study import Option, filled

WHOLE = "%lld"


class Computed(NamedTuple):
    """An option that depends on a size: a format of printf, which begins with a blank, and its values in C.

    `of` are the expressions in C that must have a value.
    """

    form: str
    values: tuple[str, ...]
    longest: int  # bytes, once formatted
    of: tuple[str, ...]


def options(
    entry: Entry, known: Mapping[str, Any], names: Mapping[str, str], prefix: str
) -> tuple[str, tuple[Computed, ...]]:
    """Return the options that depend on no size, and those that depend on one.

    `names` are the sizes in C, `known` the values of all other names. Raises NoCError for what C cannot express in the
    same way, StudyError if an option holds what no string of C can.
    """
    study, here = entry.problem.study, {**entry.problem.constants, **entry.best.configuration}
    given = [option for option in study.options if option.when.holds(here)]
    defined = entry.plan.options[: len(entry.plan.options) - len(given)]
    trees = {name: put_in(formula.tree, known) for name, formula in study.defines.items()}
    sized = {name: whole(tree, names, prefix) for name, tree in trees.items() if tree.names}
    computed = [_computed(f"-D{name}={WHOLE}", [value]) for name, value in sized.items()]
    fixed = [one for one in defined if one[2:].partition("=")[0] not in sized]
    for option in study.options:
        if (found := _sized(option, known, names, prefix, study.name)) is not None:
            computed.append(found)
        elif option in given:
            fixed.append(filled(option.flag, here))
    return joined(fixed, study.name), tuple(computed)


def _sized(
    option: Option, known: Mapping[str, Any], names: Mapping[str, str], prefix: str, study: str
) -> Computed | None:
    """Return an option that depends on a size; None for any other option, or one that is never given."""
    used, when = [name for name in option.names if name in names], put_in(option.when.tree, known)
    if when.names and used:
        raise NoCError("an option that names a size, given at some sizes")
    if when.names:
        text, given = string(" " + joined([filled(option.flag, known)], study)), whole(when, names, prefix)
        return Computed("%s", (f'({given} ? {text} : "")',), len(text), (given,))
    if not used or not when.value:
        return None
    shown = {name: WHOLE if name in names else _literal(str(known[name])) for name in option.names}
    return _computed(joined([filled(_literal(option.flag), shown)], study), [names[name] for name in used])


def _computed(form: str, values: list[str]) -> Computed:
    longest = 1 + len(form.encode()) + len(values) * (len(str(-(2**63))) - len(WHOLE))
    return Computed(" " + form, tuple(f"(long long)({value})" for value in values), longest, tuple(values))


def _literal(text: str) -> str:
    return text.replace("%", "%%")


def joined(options: Iterable[str], study: str) -> str:
    """Return build options as the one string for clBuildProgram. Raises StudyError for one that this would split."""
    options = list(options)
    for option in options:
        if not option.isprintable() or any(mark in option for mark in "\"'\\"):
            raise StudyError(f"the option {option!r:.60} cannot stand in one string of options", where=study)
    return " ".join(f'"{option}"' if " " in option else option for option in options)
