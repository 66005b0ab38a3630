"""What a study offers and takes by default, read from its text: sizes, choices, parameters.

Standard library only, as library.py is: a look-up asks these.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotune.errors import StudyError
from autotune.identity import Value, require_names, require_values

if TYPE_CHECKING:
    from autotune.study.library import StudyText


def default_size(text: StudyText) -> dict[str, int]:
    """Return the sizes of a study with their defaults."""
    sizes = text.table.get("sizes", {})
    if not isinstance(sizes, Mapping) or not all(type(v) is int or isinstance(v, Mapping) for v in sizes.values()):
        raise StudyError("needs whole numbers", where=f"{text.file}: sizes", hint="write M = 1024")
    require_names(sizes, f"{text.file}: sizes")
    return {name: value if type(value) is int else _size_of(value, name, text) for name, value in sizes.items()}


def _size_of(entry: Any, name: str, text: StudyText) -> int:
    from autotune.study import reads

    return reads.size_read(entry, name, text.file)


def offered_choices(text: StudyText) -> dict[str, Sequence[Value]]:
    """Return what each choice of a study offers; the first is the default."""
    choices, where = text.table.get("choices", {}), f"{text.file}: choices"
    if not isinstance(choices, Mapping) or not all(isinstance(v, list) and v for v in choices.values()):
        raise StudyError("needs lists of values", where=where, hint='write T = ["float"]')
    require_names(choices, where)
    for name, values in choices.items():
        require_values(values, f"{where}.{name}")
    return dict(choices)


def default_choices(text: StudyText) -> dict[str, Value]:
    """Return each choice of a study at its first value, the default."""
    return {name: values[0] for name, values in offered_choices(text).items()}


def default_configuration(text: StudyText) -> dict[str, Value]:
    """Return each parameter of a study at its default (the first value where none is named)."""
    values = parameter_values(text)
    stated = {name: entry for name, entry in text.table["parameters"].items() if isinstance(entry, Mapping)}
    return {name: stated.get(name, {}).get("default", listed[0]) for name, listed in values.items()}


def parameter_values(text: StudyText) -> dict[str, Sequence[Value]]:
    """Return the listed values of each parameter of a study."""
    parameters, where = text.table.get("parameters"), f"{text.file}: parameters"
    tables = parameters if isinstance(parameters, Mapping) else {"": None}
    values: dict[str, Any] = {
        name: entry.get("values") if isinstance(entry, Mapping) else entry for name, entry in tables.items()
    }
    if not values or not all(isinstance(listed, list | tuple) and listed for listed in values.values()):
        raise StudyError("needs values", where=where, hint="write values = [8, 16]")
    require_names(values, where)
    for name, listed in values.items():
        require_values(listed, f"{where}.{name}")
    return values
