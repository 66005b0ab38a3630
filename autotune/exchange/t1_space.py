"""The space of a T1 description: its sizes, parameters and conditions, and the expressions over them.

Its values and conditions are Python: they are read through an allow-list and computed within limits, never run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from autotune.errors import AutotuneError, UsageError
from autotune.exchange.document import listed, table
from autotune.exchange.python import Spelt, listed_values
from autotune.expression import Expression, read
from autotune.identity import name_fault, value_fault, word_fault
from autotune.text import LARGEST_SIZE, line

AXES = "XYZ"


class Space:
    """The space as a study's tables. `lose` gets a line for each thing that is not carried over.

    `sizes` are those of the problem's axes, `values` those of each parameter that `parameters` has read.
    """

    def __init__(self, space: Mapping[str, Any], given: object, lose: Callable[[str], None]) -> None:
        self._space, self._lose = space, lose
        self.sizes: dict[str, int] = {}
        self.values: dict[str, list[Any]] = {}
        for axis, value in zip(AXES, given if isinstance(given, list) else [given], strict=False):
            if type(value) is int and 1 <= value <= LARGEST_SIZE:
                self.sizes[f"SIZE_{axis}"] = value
            else:
                self._lose(f"ProblemSize {axis}: {value!r:.40} is not a whole number of at least 1")

    def parameters(self) -> dict[str, Any]:
        """Return the parameters with their values and defaults. Raises UsageError for what cannot be a parameter."""
        found: dict[str, Any] = {}
        for number, entry in enumerate(listed(self._space.get("TuningParameters"), "TuningParameters"), 1):
            where = f"TuningParameters.{number}"
            entry = table(entry, where)
            name = entry.get("Name")
            if not isinstance(name, str) or name_fault(name):
                raise UsageError(line(f"{name!r:.60} can be no name of a parameter"), where=f"{where}.Name")
            if name in found:
                raise UsageError(f"{name} is there twice", where=where)
            values = self._listed_values(entry.get("Values"), f"{where} ({name})")
            self.values[name] = values
            found[name] = {"values": values}
            default = _plain(_first(entry.get("Default")))
            if default in values and type(default) is type(values[values.index(default)]):
                found[name]["default"] = default
            elif default is not None:
                self._lose(f"{name}: Default {default!r:.40} is none of its values")
        if not found:
            raise UsageError("has no parameter", where="TuningParameters")
        several = {name: part for name, part in found.items() if len(part["values"]) > 1}
        if all(part.get("default", part["values"][0]) == part["values"][0] for part in several.values()):
            self._lose("Default: nobody chose one, each is the first value or none: no result is compared with it")
            for part in found.values():
                part.pop("default", None)
        return found

    def constraints(self) -> list[dict[str, str]]:
        """Return the conditions that can be expressed in our language."""
        found = []
        for number, entry in enumerate(listed(self._space.get("Conditions", []), "Conditions"), 1):
            text = str(table(entry, f"Conditions.{number}").get("Expression", ""))
            spelt = self.expression(text, f"Conditions.{number}")
            if spelt is not None:
                found.append({"require": spelt, "reason": text[:200]})
        return found

    def expression(self, text: object, where: str) -> str | None:
        """Return an expression in our language; None, and a line for `lose`, if it cannot be expressed."""
        try:
            tree = read(str(text).strip(), "")
            spelt = ast.unparse(ast.fix_missing_locations(Spelt(self.sizes, self.values).visit(tree)))
            unknown = Expression.parse(spelt).names - self.sizes.keys() - self.values.keys()
        except (AutotuneError, ValueError, RecursionError) as error:
            self._lose(f"{where}: {error}")
            return None
        if unknown:
            self._lose(f"{where}: {text} names {', '.join(sorted(unknown))}, which is neither a parameter nor a size")
            return None
        return spelt

    def _listed_values(self, text: object, where: str) -> list[Any]:
        if isinstance(text, list):
            values = text
        elif isinstance(text, str):
            try:
                values = listed_values(text, where)
            except AutotuneError as error:
                raise UsageError(line(f"{text!r:.80} is not a list of values: {error.what}"), where=where) from None
            except (ArithmeticError, ValueError, TypeError) as error:
                raise UsageError(line(f"{text!r:.80} is not a list of values: {error}"), where=where) from None
        else:
            raise UsageError(f"{text!r:.40} is not a list of values", where=f"{where}.Values")
        for value in map(_plain, values):
            if fault := value_fault(value) or word_fault(value):
                raise UsageError(line(fault), where=f"{where}.Values")
        plain = list(dict.fromkeys(map(_plain, values)))
        if len(plain) != len(values):
            self._lose(f"{where}: values that are there twice are there once")
        if not plain:
            raise UsageError("has no value", where=f"{where}.Values")
        return plain


def _plain(value: Any) -> Any:
    """Return a flag as a number, as the preprocessor treats it."""
    return int(value) if isinstance(value, bool) else value


def _first(default: Any) -> Any:
    """Return the first of several, or None if there is none."""
    return next(iter(default), None) if isinstance(default, list) else default
