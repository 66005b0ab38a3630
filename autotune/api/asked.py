"""What every function of the API takes alike, as a program has it at hand: sizes, choices, a device, a database."""

from __future__ import annotations

import operator
import os
import threading
from collections.abc import Mapping
from numbers import Real
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


def one_size(size: object, named: Mapping[str, object]) -> dict[str, int]:
    """Return sizes given as a mapping and by name, as one; each may be given once. Raises UsageError."""
    found, also = sizes(size), sizes(named)
    for name in also.keys() & found.keys():
        if also[name] != found[name]:
            what = f"is given twice: {also[name]} by name, {found[name]} in size="
            raise UsageError(what, where=name, hint="leave one of them out")
    return {**found, **also}


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


def database(given: object) -> str | None:
    """Return the path or URL of a database; None, where none is given, for the default one. Raises UsageError."""
    found = os.fspath(given) if isinstance(given, os.PathLike) else given
    if found is None or isinstance(found, str):
        return found
    what = line(f"{given!r:.40} is no path of a database, nor a URL")
    raise UsageError(what, where="database", hint='write database="tuned.db"')


def timeout(given: object) -> float | None:
    """Return for how many seconds to wait; None for as long as it takes. Raises UsageError."""
    if given is None:
        return None
    if not isinstance(given, Real) or isinstance(given, bool) or given != given:
        raise UsageError(line(f"{given!r:.40} is no number of seconds"), where="timeout", hint="write wait(60)")
    return min(float(given), threading.TIMEOUT_MAX)


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
