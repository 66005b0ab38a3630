"""Answers a question that a process asks again from memory, while neither the study nor the database has changed.

Each file that was read is remembered with its stamp (time of its last change, size, number of the file), and so is each
file that was looked for and not there. A stamp is not trusted if it is so young that a further change would not show in
it.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from autotune.identity import Choices, Size
from autotune.lookup.answer import Best, best
from autotune.lookup.asking import Meant, device_meant
from autotune.store import locate, log_of
from autotune.study import YOUNG_NS, StudyText, default_choices, default_size, find_study, watched

if TYPE_CHECKING:
    from autotune.model import DeviceInfo

_MOST = 4096
"""How many answers are kept, and how many studies."""

_Key = TypeVar("_Key")
_Kept = TypeVar("_Kept")
_Stamp = tuple[int, int, int] | None
_Stamps = tuple[tuple[str, _Stamp], ...]


class _Read(NamedTuple):
    """A study as it was read, and what it was read from."""

    text: StudyText
    stamps: _Stamps


class _Answer(NamedTuple):
    """An answer, with the text and the state of the database that it comes from."""

    text: StudyText
    stamps: _Stamps
    best: Best


_studies: dict[tuple[str, str], _Read] = {}
_answers: dict[Any, _Answer] = {}
_here: dict[str | None, Meant] = {}
_lock = threading.Lock()


def best_again(
    study: str | StudyText, device: str | None, size: Size | None, choices: Choices | None, database: str | None
) -> Best:
    """Return what `answer.best` does with `whole`, for words as `autotune best` takes them.

    The devices of this machine are asked for once in a process.
    """
    text = _text(study) if isinstance(study, str) else study
    location = locate(database)
    place = location.path and os.path.join(working_folder(), location.path)  # noqa: PTH118  paths cost more than this
    try:
        key = (id(text), device, place, tuple((size or {}).items()), tuple((choices or {}).items()))
        known = _answers.get(key) if place else None
    except TypeError:  # not a value that a size or choice can have: the look-up says so
        key, known = None, None
    if known is not None and known.text is text and _are(known.stamps):
        return own(known.best)
    files = (place, log_of(place)) if place else ()  # if a link leads elsewhere now, the first has another stamp
    before = _stamped(files, time.time_ns()) if files else None
    meant = _here.get(device) or device_meant(device, database, _find)
    if meant.info is not None:
        _here[device] = meant
    whole_size, whole_choices = {**default_size(text), **(size or {})}, {**default_choices(text), **(choices or {})}
    found = best(
        text,
        whole_size,
        whole_choices,
        meant.fingerprint,
        database=database,
        device=meant.info,
        whole=True,
    )
    if before is not None and key is not None and _are(before):
        _keep(_answers, key, _Answer(text, before, found))
    return own(found)


def _keep(known: dict[_Key, _Kept], key: _Key, value: _Kept) -> None:
    """Remember what was read or found; where too much is remembered, all of that is forgotten first."""
    with _lock:
        if len(known) >= _MOST:
            known.clear()
        known[key] = value


def _find(selector: str | None) -> DeviceInfo:
    """Find a device in a process that a driver may take down, unless this program uses drivers itself."""
    from autotune import pool

    if "pyopencl" not in sys.modules:
        pool.list_when_asked(at_once=True)  # while this process imports what reads the answer
    from autotune import devices

    return devices.find_device(selector)


def own(found: Best) -> Best:
    """Return a copy of an answer whose tables the caller may change."""
    measured_size = None if found.measured_size is None else {**found.measured_size}
    return found._replace(
        configuration={**found.configuration},
        size={**found.size},
        choices={**found.choices},
        measured_size=measured_size,
    )


def working_folder() -> str:
    """Return the folder in which relative paths begin, or "" if it was removed, as may happen to a service."""
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:
        return ""


def _text(study: str) -> StudyText:
    """Return a study; read it anew if anything that it was read from has changed."""
    folder = working_folder()
    known = _studies.get((study, folder))
    if known is not None and _are(known.stamps):
        return known.text
    began_ns = time.time_ns()
    with watched() as names:
        text = find_study(study)
    reference = text.table.get("reference")
    code = isinstance(reference, dict) and any(name in reference for name in ("python", "kernel"))
    files = [os.path.join(folder, name) for name in list(names)]  # noqa: PTH118
    stamps = None if code else _stamped(dict.fromkeys(files), began_ns)
    if stamps is not None:
        _keep(_studies, (study, folder), _Read(text, stamps))
    return text


def _stamp(file: str) -> _Stamp:
    try:
        found = os.stat(file)  # noqa: PTH116
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _stamped(files: Iterable[str], began_ns: int) -> _Stamps | None:
    """Return the stamps of some files and folders, or None if one was too young to be trusted when reading began."""
    found = tuple((file, _stamp(file)) for file in files)
    latest = began_ns - YOUNG_NS
    return None if any(stamp is not None and stamp[0] > latest for _, stamp in found) else found


def _are(stamps: _Stamps) -> bool:
    return all(_stamp(file) == stamp for file, stamp in stamps)
