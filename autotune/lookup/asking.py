"""`autotune best`: from the words of the command line to an answer. Standard library only where it can be.

A fingerprint, or a part of a stored device's name, is answered from the database alone. An index, or no device at all,
means a device of this machine. Then OpenCL is asked, which takes longer, and the device's driver is compared.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from autotune.errors import AutotuneError, DeviceError, SetupError
from autotune.lookup.answer import LEFT_ASIDE, Best, Match, best_in, stored_devices
from autotune.lookup.formats import FORMATS, flags
from autotune.lookup.records import Records, open_records
from autotune.store import locate, shown
from autotune.study import StudyText, default_size, find_study, offered_choices
from autotune.text import command, parse_choices, parse_size, require_known, say, say_error, typed

if TYPE_CHECKING:
    from autotune.model import DeviceInfo

DEFAULT_STUDY = "sgemm"

_FINGERPRINT = r"[a-z0-9]+(-[a-z0-9]+)*-\d+cu(-\d+g)?"
_OPTIONS = {
    "-d": "device",
    "--device": "device",
    "--db": "database",
    "--format": "format",
    "--size": "sizes",
    "--choice": "choices",
}


Ask = Callable[["str | None"], "DeviceInfo"]
"""Finds a device of this machine by a selector, None for the best. Raises DeviceError, SetupError."""


class Asked(NamedTuple):
    """What was typed to ask about a problem, as after `autotune best`."""

    study: str = DEFAULT_STUDY
    device: str | None = None
    sizes: tuple[str, ...] = ()
    choices: tuple[str, ...] = ()
    database: str | None = None
    format: str = "table"


class Meant(NamedTuple):
    """A device model to answer for. `info` is set if OpenCL was asked, `notes` if the model was not the obvious one."""

    fingerprint: str
    info: DeviceInfo | None = None
    notes: tuple[str, ...] = ()


def parse(words: Sequence[str]) -> Asked | None:
    """Return what the words ask, or None for what Typer must explain: help, unknown options, a clash."""
    given: dict[str, list[str]] = {name: [] for name in (*_OPTIONS.values(), "study", "json")}
    rest = iter(words)
    if not all(map(str.strip, words)):
        return None
    for word in rest:
        name, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if word == "--json":
            given["json"].append("json")
        elif name in _OPTIONS:
            argument = value if equals else next(rest, None)
            if not argument:
                return None
            given[_OPTIONS[name]].append(argument)
        elif word.startswith("-"):
            return None
        else:
            given["study"].append(word)
    differ = given["json"] and given["format"] and given["format"][-1] != "json"
    if len(given["study"]) > 1 or differ or not all(text.strip(", ") for text in given["sizes"]):
        return None
    return Asked(
        study=[DEFAULT_STUDY, *given["study"]][-1],
        device=[None, *given["device"]][-1],
        sizes=tuple(given["sizes"]),
        choices=tuple(given["choices"]),
        database=[None, *given["database"]][-1],
        format=["table", *given["format"], *given["json"]][-1],
    )


def run(asked: Asked, ask: Ask | None = None) -> int:
    """Answer on stdout, say what to know about it on stderr, and return the exit code; `ask` as in `best_of`."""
    try:
        require_known("format", [asked.format], FORMATS, where="--format")
        found, lines = best_of(asked, find_study(asked.study), ask)
        # Not through `render`: each further call and file makes a look-up slower (benchmarks/trace.py).
        text: str = __import__(f"autotune.lookup.formats.{asked.format}", fromlist=["render"]).render(found)
    except AutotuneError as error:
        say_error(error)
        return error.exit_code
    for said in lines:
        say(said)
    sys.stdout.write(text)
    return 0


def best_of(asked: Asked, text: StudyText, ask: Ask | None, label: str = "") -> tuple[Best, list[str]]:
    """Return the best of a study whose text is at hand, and the lines to say beside it. Raises AutotuneError.

    `ask` replaces asking OpenCL for a device of this machine. `label` replaces the database's path in the lines. Give
    it if the reader of the lines is on another machine: the lines then name no command.
    """
    size = parse_size(asked.sizes, default_size(text))
    choices = parse_choices(asked.choices, offered_choices(text))
    location, whole = locate(asked.database), FORMATS[asked.format]
    asks_here = asked.device is None or _is_index(asked.device)
    device = device_meant(asked.device, asked.database, ask) if asks_here else None
    with open_records(location) as records:
        device = device or _meant(str(asked.device), records, ask)
        found = best_in(records, label or str(location), text, size, choices, device.fingerprint, device.info, whole)
    return found, [*_beside(asked, text, found, commands=not label), *device.notes]


def _beside(asked: Asked, text: StudyText, found: Best, *, commands: bool) -> Iterator[str]:
    """Yield warnings and notes: how the match falls short and, if `commands`, the command that improves it."""
    if text.shadows is not None:
        yield f"warning: {text.file} is used, not the bundled study of the same name"
    if found.match is not Match.EXACT:
        yield f"warning: no exact match for {found.study} on {found.device}; this is: {found.match}"
    for note in found.notes:
        goes_on = commands and note == LEFT_ASIDE and found.match is Match.EXACT
        yield f"note: {note}" + (f"; {_search_command(asked, found)} goes on" if goes_on else "")
    if asked.format == "defines" and (besides := flags(found)):
        yield f"note: measured with these further build options: {' '.join(besides)}"
    if commands and found.match is not Match.EXACT:
        yield f"to measure it: {_search_command(asked, found)}"


def _search_command(asked: Asked, found: Best) -> str:
    return command(
        "search",
        asked.study,
        device=asked.device,
        size=found.size if asked.sizes else None,
        choices=found.choices if asked.choices else None,
        database=None if asked.database is None else shown(asked.database),
    )


def device_meant(selector: str | None, database: str | None, ask: Ask | None = None) -> Meant:
    """Return the device model that is meant. Raises DeviceError, SetupError."""
    if selector is None:
        return _device_here(database, ask)
    if _is_index(selector):
        return _asked(selector, ask)
    with open_records(locate(database)) as records:
        return _meant(selector, records, ask)


def _is_index(selector: str) -> bool:
    """Return whether a selector is a device's number on a machine, not a part of a name."""
    return selector.isdecimal() and len(selector) <= 3


def _meant(selector: str, records: Records, ask: Ask | None) -> Meant:
    """Return the stored device model that a text names, else the one that it describes, else this machine's."""
    part = selector.strip().lower()
    if not part:  # a script's variable may be unset; the empty text is part of every name
        raise DeviceError(f"no device {selector!r}", hint="name one, or leave it out for the best one here")
    stored = {fingerprint: name for fingerprint, name, _ in records.devices()}
    if selector in stored:
        return Meant(selector)
    found = [fingerprint for fingerprint, name in stored.items() if part in fingerprint or part in name.lower()]
    if len(found) == 1:
        return Meant(found[0])
    if found:
        raise DeviceError(f"{len(found)} stored devices match {selector!r}", hint=_choose(found))
    if re.fullmatch(_FINGERPRINT, selector):
        return Meant(selector)
    return _asked(selector, ask)


def _device_here(database: str | None, ask: Ask | None) -> Meant:
    """Return this machine's best device or, if it has none, the only device in the database."""
    try:
        return _asked(None, ask)
    except SetupError as error:
        stored = dict(stored_devices(database))
        if len(stored) > 1:
            raise DeviceError(f"{error.what}, and several are stored", hint=_choose(stored)) from None
        if not stored:
            raise
        (fingerprint,) = stored
        return Meant(fingerprint, None, (f"note: {error.what}: answered for {fingerprint}, the only one stored",))


def _asked(selector: str | None, ask: Ask | None) -> Meant:
    if ask is not None:
        info = ask(selector)
    else:
        from autotune.devices import find_device

        info = find_device(selector)
    return Meant(info.fingerprint, info)


def find_apart(selector: str | None) -> DeviceInfo:
    """Find a device in a fork of this process, because a driver may crash or hang when it is asked.

    This process must have no threads.
    """
    from autotune import pool

    pool.list_apart()
    from autotune.devices import find_device

    return find_device(selector)


def _choose(stored: Iterable[str]) -> str:
    return "choose one: " + ", ".join(typed(["-d", fingerprint]) for fingerprint in stored)
