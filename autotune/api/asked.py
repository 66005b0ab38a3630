"""What every function of the API takes alike, as a program has it at hand: sizes, choices, the selector of a device."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.text import line


def sizes(given: object) -> dict[str, int]:
    """Return sizes as plain integers; NumPy's and others are taken for what they are. Raises UsageError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(
            line(f"{given!r:.40} is no mapping of names to sizes"), where="size", hint='write size={"N": 1024}'
        )
    return {_name(name): _whole(name, value) for name, value in given.items()}


def choices(given: object) -> dict[str, Any]:
    """Return choices with whole numbers as plain integers; the study judges the values. Raises UsageError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        what = line(f"{given!r:.40} is no mapping of names to values")
        raise UsageError(what, where="choices", hint='write choices={"T": "float"}')
    return {name: plain(value) for name, value in given.items()}


def plain(value: Any) -> Any:
    """Return a whole number as a plain integer, all else as it is."""
    if isinstance(value, str | int | float):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return value


def selector(device: object, also: str = "") -> str | None:
    """Return the selector of a device; None, where none is given, for the best one. Raises UsageError.

    `also` says in the hint what else would do.
    """
    if device is None or isinstance(device, str):
        return device
    written = str(device) if isinstance(device, int) and not isinstance(device, bool) else "0"
    raise UsageError(
        line(f"{device!r:.40} is no selector of a device"), where="device", hint=f'write device="{written}"{also}'
    )


def _name(name: object) -> str:
    if not isinstance(name, str):
        raise UsageError(line(f"{name!r:.40} is no name of a size"), where="size", hint='write size={"N": 1024}')
    return name


def _whole(name: str, value: object) -> int:
    try:
        found = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = 0
    if found < 1:
        what = line(f"{value!r:.40} is no whole number of at least 1")
        raise UsageError(what, where=name, hint=f"write {name}=1024")
    return found
