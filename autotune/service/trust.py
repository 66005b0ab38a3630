"""What a server said, checked before it becomes a `-D`, a line of a header or a variable of a shell."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from autotune.errors import AutotuneError, SetupError, UsageError, WorkerError
from autotune.identity import STUDY_NAME, macro_fault, name_fault, value_fault
from autotune.lookup import Best, Launched, Match, launched
from autotune.store import UNSOUND
from autotune.text import LARGEST_SIZE, line

MATCH, NOTES, FLOPS = "autotune-match", "autotune-notes", "autotune-flops"
"""Headers of an answer: how it matches, what to say beside it (a list as JSON in ASCII), operations of one run."""


def line_of(text: object) -> str:
    """Return what a server said as one line of visible characters, of limited length."""
    return line(str(text))[:2000]


def sent_text(asked_by: object, created: object, search: object) -> str:
    """Return whose uploaded text is used for the name of a study, and since which search."""
    return f"the text that {line_of(asked_by)} sent on {line_of(created)[:10]} (search {line_of(search)})"


@contextmanager
def believed(where: str) -> Iterator[None]:
    """Raise UsageError if a server's answer makes no sense: it is another program, or of another version.

    Use it only around the reading of answers: errors of callbacks must pass unchanged.
    """
    try:
        yield
    except UNSOUND as error:
        said = f"no {error}" if isinstance(error, KeyError) else str(error)
        what = f"its answer is invalid: {line(said)[:200]}"
        raise UsageError(what, where=where, hint="is it an autotune server of this version?") from None


def search_id(told: Mapping[str, Any], where: str) -> str:
    """Return the id of a search from an answer. Raises UsageError if there is none."""
    with believed(where):
        return _matching(told["id"], "[0-9a-z]{1,64}")


def failure_of(ended: Mapping[str, Any], where: str) -> AutotuneError:
    """Return the error by which a search failed or was stopped, of the kind that it would have here.

    Raises UsageError for an answer that no server of autotune gives.
    """
    with believed(where):
        kind = _KINDS.get(ended.get("exit_code"), AutotuneError)  # an older server does not send it
        return kind(line_of(ended["reason"]), where=where)


_KINDS: dict[Any, type[AutotuneError]] = {kind.exit_code: kind for kind in (UsageError, SetupError, WorkerError)}


def best_from(body: bytes, headers: Mapping[str, str], where: str) -> tuple[Best, list[str]]:
    """Return the best from an answer of /v1/best, and the lines to say beside it.

    Raises UsageError for an answer that no server of autotune gives.
    """
    with believed(where):
        told = json.loads(body)
        best = _best(told, headers.get(FLOPS))
        notes = [line_of(note) for note in json.loads(headers.get(NOTES, "[]"))][:100]
    return best._replace(database=where), notes


def _best(told: Mapping[str, Any], flops: str | None) -> Best:
    size, interval = _size(told["size"]), told["interval_ns"]
    measured_size = None if told["measured_size"] is None else _size(told["measured_size"])
    return Best(
        study=_matching(told["study"], STUDY_NAME),
        configuration=_values(told["configuration"]),
        match=Match(told["match"]),
        notes=tuple(line_of(note) for note in told["notes"]),
        device=_matching(told["device"], "[a-z0-9-]{1,200}"),
        size=size,
        choices=_values(told["choices"]),
        time_ns=None if told["time_ns"] is None else _number(told["time_ns"]),
        interval_ns=None if interval is None else (_number(interval[0]), _number(interval[1])),
        runs=int(told.get("runs", 0)),
        measured_on=line_of(told["measured_on"] or ""),
        device_name=line_of(told["device_name"] or ""),
        measured_size=measured_size,
        driver=line_of(told["driver"] or ""),
        measured=line_of(told["measured"] or ""),
        ties=int(told["ties"]),
        trials=int(told["trials"]),
        options=tuple(_option(option) for option in told["options"]),
        flops=None if flops is None else _number(float(flops)),
        launches=tuple(_launch(**launch) for launch in told.get("launches", ())),
    )


def _values(told: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in told.items():
        if fault := name_fault(name) or value_fault(value):
            raise ValueError(f"{name!r:.60} {fault}")
    return dict(told)


def _size(told: Mapping[str, Any]) -> dict[str, int]:
    for name, value in told.items():
        if (fault := name_fault(name)) or type(value) is not int or not 1 <= value <= LARGEST_SIZE:
            raise ValueError(f"{name!r:.60} {fault or 'is not a size'}")
    return dict(told)


def _number(told: object) -> float:
    if isinstance(told, bool) or not isinstance(told, int | float) or not math.isfinite(told) or told < 0:
        raise ValueError(f"{told!r:.60} is not a time")
    return told


def _launch(**told: Any) -> Launched:
    return launched(_matching(told["kernel"], "[A-Za-z_][A-Za-z0-9_]*"), told["global"], told["local"], told["offset"])


def _option(told: object) -> str:
    if not isinstance(told, str) or not told.isprintable() or len(told) > 4096:
        raise ValueError(f"{told!r:.60} is not a build option")
    if told.startswith("-D"):
        name, _, value = told[2:].partition("=")
        if fault := macro_fault(name) or value_fault(value):
            raise ValueError(f"{told!r:.60} {fault}")
    return told


def _matching(told: object, pattern: str) -> str:
    if not isinstance(told, str) or not re.fullmatch(pattern, told):
        raise ValueError(f"{told!r:.60} is not a name")
    return told
