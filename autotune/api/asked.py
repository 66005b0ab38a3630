"""Converts and checks what a program gives: sizes, choices, a device, a database, and how to search."""

from __future__ import annotations

import math
import operator
import os
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from numbers import Real
from typing import TYPE_CHECKING, Any, SupportsIndex

from autotune.errors import AutotuneError, UsageError
from autotune.identity import Value
from autotune.text import LARGEST_SIZE, line

if TYPE_CHECKING:
    from autotune.tuner import Budget

AnyValue = Value | SupportsIndex
"""A value from a program: a whole number may be NumPy's."""

AnySize = Mapping[str, SupportsIndex]
"""Sizes from a program."""

AnyValues = Mapping[str, AnyValue]
"""Choices or a configuration from a program."""

_OPTIONS = {"--db": "database", "--on": "on"}
_TYPED = {
    "give --db ": "give database= ", "write --on ": "write on=", "choose with -d: ": "choose with device=: ",
    "with --device (": "with device= (", "or --device": "or device=", "smaller --size": "smaller size=",
    "; --size sets": "; size= sets", "by --run-limit": "by run_limit=", "with --run-limit 10m": "with run_limit=600",
    "with --allow-python": "with allow_python=True", "--fix NAME=VALUE": 'fix={"NAME": VALUE}',
}  # fmt: skip
"""Words of errors for the command line, and the words for a program instead."""

_SELECTED = re.compile(r"(?<!\S)-d ([\w:-]+)")

_SIZE, _CHOICES = '{"N": 1024}', '{"T": "float"}'


@contextmanager
def told_as_arguments() -> Iterator[None]:
    """In errors that are passed on, replace options of the command line by arguments of functions."""
    try:
        yield
    except AutotuneError as error:
        error.where = _OPTIONS.get(error.where, error.where)
        for typed, written in _TYPED.items():
            error.hint = error.hint.replace(typed, written)
        if "autotune " not in error.hint:  # a command to type stays as it is
            error.hint = _SELECTED.sub(r'device="\1"', error.hint)
        raise


def sizes(given: object) -> dict[str, int]:
    """Return sizes as plain integers; NumPy's and other integers are accepted. Raises UsageError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise unfit("size", given, "mapping of names to sizes", _SIZE)
    return {_name(name, "size", "size", _SIZE): _whole(name, value) for name, value in given.items()}


def one_size(size: object, named: Mapping[str, object]) -> dict[str, int]:
    """Return sizes given as a mapping and by name in one mapping. Raises UsageError if two values for one differ."""
    found, also = sizes(size), sizes(named)
    for name in also.keys() & found.keys():
        if also[name] != found[name]:
            what = f"is given twice: {also[name]} by name, {found[name]} in size="
            raise UsageError(what, where=name, hint="leave one of them out")
    return {**found, **also}


def choices(given: object) -> dict[str, Any]:
    """Return choices with whole numbers as plain integers; the study checks the values. Raises UsageError."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise unfit("choices", given, "mapping of names to values", _CHOICES)
    return {_name(name, "choices", "choice", _CHOICES): plain(value) for name, value in given.items()}


def plain(value: Any) -> Any:
    """Return a whole number as a plain integer, any other value as it is."""
    if isinstance(value, str | int | float):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return value


def selector(device: object, also: str = "") -> str | None:
    """Return the selector of a device, or None (the best device) if none is given. Raises UsageError.

    `also` is added to the hint: what else is accepted.
    """
    if device is None or isinstance(device, str):
        return device
    written = str(device) if isinstance(device, int) and not isinstance(device, bool) else "0"
    raise unfit("device", device, "selector of a device", f'"{written}"{also}')


def database(given: object) -> str | None:
    """Return the path or URL of a database, or None (the default one) if none is given. Raises UsageError."""
    found = os.fspath(given) if isinstance(given, os.PathLike) else given
    if found is None or isinstance(found, str):
        return found
    raise unfit("database", given, "path or a URL of a database", '"tuned.db"')


def timeout(given: object) -> float | None:
    """Return how many seconds to wait, or None without a limit. Raises UsageError."""
    if given is None:
        return None
    if not isinstance(given, Real) or isinstance(given, bool) or given != given:
        raise UsageError(line(f"{given!r:.40} is not a number of seconds"), where="timeout", hint="write wait(60)")
    number: Any = given  # mypy cannot compare a Real
    return float(max(0, min(number, threading.TIMEOUT_MAX)))


def fixed(given: object) -> dict[str, list[Any]]:
    """Return the list of values that each fixed parameter keeps; the study checks them. Raises UsageError."""
    if given is None:
        return {}
    example = '{"WG": 64}, or fix={"WG": [64, 128]}'
    if not isinstance(given, Mapping):
        raise unfit("fix", given, "mapping of names to values", example)
    found = {}
    for name, value in given.items():
        one = plain(value)
        several = [one] if isinstance(one, str | int | float) else _listed(one)
        if not isinstance(name, str) or not several:
            what = line(f"{name!r:.40}: {value!r:.40} is not a value to keep")
            raise UsageError(what, where="fix", hint=f"write fix={example}")
        found[name] = several
    return found


def starts(given: object) -> list[dict[str, Any]]:
    """Return the configurations to try early; the space checks them. Raises UsageError."""
    found = None if isinstance(given, Mapping) else _listed(given)
    if found is None or not all(isinstance(one, Mapping) and all(isinstance(n, str) for n in one) for one in found):
        raise unfit("start", given, "list of configurations", '[{"WG": 64}]')
    return [{name: plain(value) for name, value in one.items()} for one in found]


def flag(name: str, given: object) -> bool:
    """Return True or False. Raises UsageError for anything else, since a text such as `"no"` would count as true."""
    import numpy as np  # here, because a look-up starts without NumPy and has no such argument

    if not isinstance(given, bool | np.bool_):
        what = line(f"{given!r:.40} is neither True nor False")
        raise UsageError(what, where=name, hint=f"write {name}=True to turn it on, else leave it out")
    return bool(given)


def seconds(name: str, given: object, *, endless: bool = False) -> float | None:
    """Return a time in seconds as a plain number, infinite only if it may be `endless`; None stays None.

    Raises UsageError.
    """
    if given is None:
        return None
    with suppress(OverflowError):
        found = float(given) if isinstance(given, Real) and not isinstance(given, bool) else 0.0
        if 0 < found < math.inf or (endless and found == math.inf):
            return found
    raise unfit(name, given, "number of seconds above 0", "300")


def budget(given: object) -> Budget:
    """Return a budget with plain numbers, and without seconds if they are infinite. Raises UsageError."""
    from dataclasses import replace

    from autotune.tuner import Budget

    if not isinstance(given, Budget):
        raise unfit("budget", given, "budget", "autotune.Budget(trials=100)")
    gain = given.least_gain
    share = gain is None or (isinstance(gain, int | float) and not isinstance(gain, bool) and 0 < gain < 1)
    of_kind("least_gain", gain, share, "share between 0 and 1", "0.01")
    limit = seconds("seconds", given.seconds, endless=True)
    return replace(
        given,
        seconds=None if limit == math.inf else limit,
        trials=whole("trials", given.trials, least=1, example=100),
        until_stale=whole("until_stale", given.until_stale, least=1, example=50),
    )


def whole(name: str, given: object, *, least: int, most: int | None = None, example: int) -> int | None:
    """Return a whole number as a plain integer; None stays None. Raises UsageError."""
    found = plain(given)
    if found is None:
        return None
    if type(found) is int and found >= least and (most is None or found <= most):
        return found
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise unfit(name, given, f"whole number {bounds}", str(example))


def of_kind(name: str, given: object, fits: bool, what: str, example: str) -> None:
    """Raise UsageError unless the value `fits`. Its message says that the value is not a `what`."""
    if not fits:
        raise unfit(name, given, what, example)


def named(study: object) -> str:
    """Return the name or path of a study. Raises UsageError for what is neither."""
    if isinstance(study, str | os.PathLike):
        return str(study)
    what = line(f"{study!r:.40} is neither a name nor a path of a study")
    raise UsageError(what, where="study", hint='give "./NAME.toml", or autotune.Study(...)')


def unfit(name: str, given: object, what: str, example: str) -> UsageError:
    """Return the error for a value that is not a `what`."""
    article = "an" if what[0] in "aeiou" else "a"
    return UsageError(line(f"{given!r:.40} is not {article} {what}"), where=name, hint=f"write {name}={example}")


def _listed(given: object) -> list[Any] | None:
    """Return the plain entries of a list, a tuple or an array, or None for anything else."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        return None
    return [plain(value) for value in given]


def _name(name: object, where: str, of: str, example: str) -> str:
    if not isinstance(name, str):
        raise unfit(where, name, f"name of a {of}", example)
    return name


def _whole(name: str, value: object) -> int:
    try:
        found = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        found = 0
    if not 1 <= found <= LARGEST_SIZE:
        bounds = "of at least 1" if found < 1 else f"from 1 to {LARGEST_SIZE}"
        what = line(f"{value!r:.40} is not a whole number {bounds}")
        choice = f'; a choice is choices={{"{name}": {value!r:.40}}}' if isinstance(value, str) else ""
        raise UsageError(what, where=name, hint=line(f"write {name}=1024{choice}"))
    return found
