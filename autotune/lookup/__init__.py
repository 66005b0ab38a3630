"""Looks up the best stored configuration and says how it matches the question.

Standard library only for what is stored exactly as asked, of a study without computed defines and build options.
Anything else is evaluated by the study's expressions, which loads problem.py.

    question.py      the problems that may answer, nearest first, and what differs
    ranking.py       the configurations stored for one problem, fastest first
    architecture.py  which devices are alike
    reader.py        the database, read only
    answer.py        Best and Match
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from autotune.errors import UsageError
from autotune.identity import Choices, Size
from autotune.lookup.answer import Best, Match
from autotune.lookup.question import DEVICES, Question
from autotune.lookup.reader import open_reader
from autotune.store.location import locate
from autotune.study import StudyText, default_choices, default_size, problem_key
from autotune.text import did_you_mean

if TYPE_CHECKING:
    from autotune.model import DeviceInfo

__all__ = ["Best", "Match", "best", "stored_devices"]


def best(
    text: StudyText,
    size: Size,
    choices: Choices,
    fingerprint: str,
    *,
    database: str | None = None,
    device: DeviceInfo | None = None,
    rated: bool = False,
) -> Best:
    """Return the best stored configuration of a study at a size, with choices, on a device model.

    `device` is the device itself where it was looked at: only then is its driver compared. Where nothing
    stored can answer, the study's default configuration is returned and the match says `default`. `rated` also
    fills in the operations per run, which loads problem.py. Raises StoreError, StudyError, SpaceError, DeviceError,
    and UsageError where a size or a choice is not exactly the study's.
    """
    _require_offered("size", size, default_size(text))
    _require_offered("choice", choices, default_choices(text))
    location = locate(database)
    key = problem_key(text, size, choices, fingerprint)
    with open_reader(location) as reader:
        question = Question(text, key, reader, device, str(location), rated)
        return question.built(question.exact() or question.nearest() or question.default())


def stored_devices(database: str | None = None) -> list[tuple[str, str]]:
    """Return fingerprint and name of every device in the database, oldest first, each pair once."""
    with open_reader(locate(database)) as reader:
        return list(dict.fromkeys((fingerprint, name) for fingerprint, name, _ in reader.rows(DEVICES, {})))


def _require_offered(what: str, given: Mapping[str, object], known: Mapping[str, object]) -> None:
    for name in given:
        if name not in known:
            raise UsageError(f"no {what} named {name!r}{did_you_mean(name, known)}", hint=f"known: {', '.join(known)}")
    missing = [name for name in known if name not in given]
    if missing:
        raise UsageError(f"no value for the {what} {missing[0]!r}", hint=f"give all of {', '.join(known)}")
