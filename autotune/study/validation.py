"""Checks a study's tables against schema.py, and rewords pydantic's errors for readers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from autotune.errors import StudyError
from autotune.study import schema
from autotune.study.scope import GAP, UNWRITTEN
from autotune.text import did_you_mean, line

_MOST_LINES = 20
"""How many of a file's errors are shown: a list may hold thousands of the same."""


def validate(table: Mapping[str, Any], where: str) -> schema.StudyTable:
    """Return the validated table. Raises StudyError: the first error in one line, the first few as its detail."""
    try:
        return schema.StudyTable.model_validate(table)
    except ValidationError as error:
        # Unknown keys come first: if another key is missing, a misspelt one is the cause.
        found = sorted(error.errors(include_url=False), key=lambda item: item["type"] != "extra_forbidden")
        lines = _lines([{**item, "loc": _keys(item["loc"], table)} for item in found])
        more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
        shown = lines if len(lines) <= _MOST_LINES else [*lines[:_MOST_LINES], "..."]
        detail = "\n".join(shown) if more else ""
        hint = "docs/studies-reference.md has every key"
        if lines[0] == "reference: missing":
            hint = f"write [reference] with one of {schema.REFERENCES}"
        raise StudyError(lines[0] + more, where=where, hint=hint, detail=detail) from error


def _lines(items: Sequence[Any]) -> list[str]:
    """Return one line for each key with errors: a union has an error for each of its branches."""
    places: dict[tuple[str | int, ...], list[Any]] = {}
    for item in items:
        places.setdefault(item["loc"], []).append(item)
    return list(dict.fromkeys(line(_merged(path, alike)) for path, alike in places.items()))


def _merged(path: Sequence[str | int], items: Sequence[Any]) -> str:
    """Return one line for all errors of a key: what its union accepts, or the error of the branch that fits."""
    if len(items) == 1:
        return _told(items[0])
    if isinstance(items[0]["input"], bool):
        return (
            f"{_place(path[:-1] if isinstance(path[-1], int) else path)}: true and false are not values; write 1 and 0"
        )
    fitting = [item for item in items if not item["type"].endswith("_type")]
    if fitting:
        return _told(fitting[0])
    wanted = dict.fromkeys(_PLAINLY.get(item["type"], item["msg"]).removeprefix("needs ") for item in items)
    return f"{_place(path)}: needs {' or '.join(wanted)}, {_got(path, items[0]['input'])}"


def _got(path: Sequence[str | int], found: object) -> str:
    """Return what was found; for a value from Python that no file can hold, also what to write instead."""
    if path[:1] == ("reference",) and (callable(found) or isinstance(found, list)):
        kind = "a function" if callable(found) else "a list"
        return f"got {kind}: arrays come from a file, in Python from reference=lambda: {{NAME: array}}"
    if callable(found):
        return "got a function: write its expression as text"
    return f"got {found!r:.60}"


def _place(path: Sequence[str | int]) -> str:
    return ".".join(str(part + 1) if isinstance(part, int) else f"{part:.80}" or '""' for part in path)


def _told(item: Any) -> str:
    """One pydantic error as `table.key: what is wrong`."""
    path = item["loc"]
    place = _place(path)
    if GAP in path:
        return f"{place}: {UNWRITTEN}"
    if item["type"] == "extra_forbidden":
        if len(path) > 1 and path[-1] in _OF_THE_FILE:  # TOML counts it to the table above it
            return f"{place}: not a key of this table; {path[-1]} belongs above the file's first [table]"
        meant = did_you_mean(str(path[-1]), known := _keys_beside(path))
        few = f"; there are {' and '.join(known)}" if len(known) == _FEW and not meant else ""
        if path[:-1] == ("reference",) and not meant and not isinstance(item["input"], int | float):
            few = f': the expression of an output belongs into numpy = {{ {path[-1]:.40} = "..." }}'
            few += ", an array into a file; in Python write reference=lambda: {NAME: array}"
        return f"{place}: unknown key{meant}{few}"
    if item["type"] == "missing":
        return f"{place}: missing{' above the first [table]' if place == 'name' else ''}"
    found, message = item["input"], item["msg"].removeprefix("Value error, ")
    message = _PLAINLY.get(item["type"], message.replace(" after validation", ""))
    message = f"{message[0].lower()}{message[1:]}"
    if item["type"] == "list_type" and isinstance(found, Mapping) and path[-1] in _REPEATED:
        keys = ".".join(part for part in path if isinstance(part, str))
        return f"{place}: is one table of a list; write [[{keys}]], with double brackets"
    if message == "needs a table" and isinstance(found, list) and path[:-1] == ("parameters",):
        message += f", as {path[-1]} = {{ values = {found!r:.40} }} is one"
    if message == "needs a table" and isinstance(found, str) and path[:1] == ("constraints",):
        message += f", as {{ require = {found!r:.40} }} is one"
    if item["type"] == "list_type":
        message = _list_wanted(path, found)
    if isinstance(found, Mapping):  # of a whole table: the message names the key
        return f"{place}: {message}" if path else message
    if item["type"] == "literal_error" and isinstance(found, str):
        known = re.findall(r"'([^']*)'", item["ctx"]["expected"])
        return f"{place}: {message}, got {found!r:.60}{did_you_mean(found, known)}"
    return f"{place}: {message}, {_got(path, found)}" if path else message


def _list_wanted(path: Sequence[str | int], found: object) -> str:
    """Return which list a place needs: one of what was found there, as far as that can be told."""
    if path[-2:-1] == ("swap",):
        return 'needs lists of names, such as [["now", "next"]]'
    if path[0] == "size_lists":
        return "needs a list of sizes, such as [{ N = 1024 }, { N = 2048 }]"
    if isinstance(found, int | float):
        return f"needs a list, such as [{found}]"
    if isinstance(found, str) and re.fullmatch(r"[^\\\"()\n]{1,60}", found):
        parts = [part.strip() for part in found.split(",")]
        return f"needs a list, such as [{', '.join(part if part.isdecimal() else json.dumps(part) for part in parts)}]"
    return "needs a list, such as " + ("[1, 2, 4]" if path[-1] == "values" else '["N"]')


_PLAINLY = {
    "string_type": "needs text in quotes",
    "int_type": "needs a whole number",
    "float_type": "needs a number",
    "bool_type": "needs true or false",
    "dict_type": "needs a table",
    "model_type": "needs a table",
    "model_attributes_type": "needs a table",
}
"""Plain words for pydantic's errors, by their types."""


_FEW = 2
"""If a table has just so many keys, as `[tolerance]` has, all are listed when one is unknown."""

_REPEATED = ("constraints", "launch", "options", "turn")
"""Lists of tables."""

_OF_THE_FILE = ("name", "about", "kernel")

_BRANCHES = frozenset(
    {"bool", "int", "float", "str", "constrained-str", "function-after", "list", "one of them", "several", "a table"}
)


def _keys(path: Sequence[str | int], table: object) -> tuple[str | int, ...]:
    """Return the keys of a place without pydantic's names of branches of unions, which mean nothing to a reader.

    Such a name stays if it is a key of the file.
    """
    keys = list[str | int]()
    for part in path:
        is_key = isinstance(table, Mapping) and part in table
        if is_key or isinstance(part, int) or part.partition("[")[0] not in _BRANCHES:
            keys.append(part)
            holds = is_key or (isinstance(table, Sequence) and isinstance(part, int) and part < len(table))
            table = table[part] if holds else None  # type: ignore[index]
    return tuple(keys)


def _keys_beside(path: Sequence[str | int]) -> list[str]:
    """Return the keys allowed where an unknown key stands, for a suggestion."""
    tables: dict[str, type[schema.Table]] = {
        "parameters": schema.ParameterTable, "constraints": schema.ConstraintTable, "requires": schema.RequiresTable,
        "options": schema.OptionTable, "arguments": schema.ArgumentTable, "launch": schema.LaunchTable,
        "turn": schema.LaunchTable, "reference": schema.ReferenceTable, "tolerance": schema.ToleranceTable,
        "work": schema.WorkTable, "timing": schema.TimingTable, "sizes": schema.SizeTable, "data": schema.DataTable,
        "fields": schema.DataTable, "sampler": schema.SamplerTable, "file": schema.FileTable,
    }  # fmt: skip
    around = [part for part in path[:-1] if isinstance(part, str) and part in tables]
    table = tables[around[-1]] if around else schema.StudyTable
    return [field.alias or name for name, field in table.model_fields.items()]
