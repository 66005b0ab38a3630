"""Looks up the best stored configuration and says how it matches the question.

Standard library only for what is stored exactly as asked. Anything else is evaluated by the study's expressions,
which loads the rooms for it.

    asking.py    `autotune best`: from words to an answer
    answer.py    the answer, where it is stored exactly as asked
    nearest.py   the nearest of what is stored, and what differs
    records.py   the database, read only
    formats/     the answer as text

The names below are imported when first used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.lookup.answer import Best as Best
    from autotune.lookup.answer import Match as Match
    from autotune.lookup.answer import best as best
    from autotune.lookup.answer import stored_devices as stored_devices

_NAMES = ("Best", "Match", "best", "stored_devices")


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from autotune.lookup import answer

    return getattr(answer, name)
