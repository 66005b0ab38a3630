"""Which answers of a worker are valid: those that bench/messages.py declares, for as many plans as it was asked about.

A kernel that writes beyond its buffers may have changed anything in its worker. So each message of a worker is checked
once, when it arrives. A worker that sends nonsense counts as dead, and its kernel is to blame, as for any crash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import is_dataclass
from functools import cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from autotune.bench import (
    EndToEnd,
    Inspect,
    Inspected,
    Job,
    Keep,
    Kept,
    Onward,
    Phase,
    Probe,
    Ready,
    Report,
    Retime,
    Setup,
    Sound,
    Turn,
    Use,
    Visit,
    Visited,
)
from autotune.model import Measurement

ANSWERS = {
    Setup: Ready | Report,
    Probe: Sound | Report,
    Job: Report,
    Retime: list[Measurement | Report] | Report | Onward,
    Visit: Onward,
    Use: EndToEnd | Report,
    Keep: Kept | Report,
    Inspect: Inspected | Report,
}
"""Answers by the type of the request. The answer to a DeviceInfo is None, once the worker runs; a device's worker sends
None again once its device is open."""


_MOST = 2**63
"""Whole numbers are stored in 64 bits."""


def is_answer(asked: Any, said: Any, *, may_ask: bool) -> bool:
    """Say whether `said` is a valid answer to `asked`. If `may_ask`, the worker may also ask for its turn."""
    plans = len(asked.plans) if isinstance(asked, Retime | Visit) else 1
    if isinstance(said, Phase):
        return _fits(said, Phase) and said.place < plans
    if isinstance(said, Turn):
        return may_ask and isinstance(asked, Job | Visit)
    if not _fits(said, ANSWERS.get(type(asked), Report | None)):
        return False
    if isinstance(said, Onward):
        none = () if isinstance(asked, Visit) else None
        is_due = isinstance(asked, Visit) or not asked.visited
        return is_due and (said.visited == none or len(said.visited) == plans) and all(map(_is_timed, said.visited))
    return said.place < plans if isinstance(said, Report) else not isinstance(said, list) or len(said) == plans


def _is_timed(one: Visited) -> bool:
    return all(one.visits)  # each visit took a sample


def _fits(value: Any, hint: Any) -> bool:
    return _check(hint)(value)


@cache
def _check(hint: Any) -> Callable[[Any], bool]:
    """Return a function that says whether a value and all its parts have the declared type.

    Whole numbers must be counts, 0 or more.
    """
    origin, parts = get_origin(hint), [_check(part) for part in get_args(hint) if part is not ...]
    if isinstance(hint, UnionType):
        return lambda value: any(fits(value) for fits in parts)
    if is_dataclass(hint):
        fields = [(name, _field(name, of)) for name, of in get_type_hints(hint).items()]
        return lambda value: type(value) is hint and all(fits(getattr(value, name)) for name, fits in fields)
    if hint is int:
        return lambda value: isinstance(value, Integral) and 0 <= int(value) < _MOST
    if hint is float:  # a whole number of any sign is accepted too
        return lambda value: isinstance(value, Real)
    if hint in (tuple[int, ...], Sequence[int]):  # there may be thousands of samples; workers send them as tuples
        return lambda value: isinstance(value, tuple) and (_are_plain(value) or all(map(parts[0], value)))
    if origin in (tuple, list):
        return lambda value: isinstance(value, origin) and all(map(parts[0], value))
    if origin in (Mapping, dict):
        return lambda value: (
            isinstance(value, dict) and all(map(parts[0], value)) and all(map(parts[1], value.values()))
        )
    return lambda value: isinstance(value, hint)


def _are_plain(numbers: tuple[Any, ...]) -> bool:
    return not numbers or (set(map(type, numbers)) == {int} and min(numbers) >= 0 and max(numbers) < _MOST)


def _field(name: str, hint: Any) -> Callable[[Any], bool]:
    fits = _check(hint)
    if hint is float and name.endswith(("_s", "_ns")):
        return lambda value: fits(value) and 0 <= value < math.inf
    return fits
