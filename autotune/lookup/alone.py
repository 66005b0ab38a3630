"""The best of a stored problem from its records alone, for use if its study is not at hand.

A configuration that was searched and timed here was valid by the study at that time, so it can be shown without the
study. An imported trial, or an imported re-timing, needs the study: anybody may have written it.
"""

from __future__ import annotations

from typing import NamedTuple

from autotune.errors import AutotuneError
from autotune.identity import ProblemKey, name_fault, value_fault
from autotune.lookup.answer import Best, Match, found, table
from autotune.lookup.records import Records
from autotune.text import clean


class Alone(NamedTuple):
    """The part of a question that `found` uses, without a study."""

    key: ProblemKey
    records: Records
    database: str
    driver: str
    left_out: list[str]


def best_alone(records: Records, number: int, key: ProblemKey, driver: str) -> Best:
    """Return the best of a stored problem as it was measured, without build options, which need the study.

    `driver` is the device's, or "" if the device was not looked at. The match is exact as far as the problem itself is
    asked for: whether the study has changed since is not known. Raises AutotuneError if no configuration has passed, or
    if the fastest, or the time that ranks it, comes from an import: the next in rank would be shown as the best, which
    it may not be.
    """
    driver = clean(driver)
    ranking = records.ranking(number, driver)
    if not ranking.entries:
        raise AutotuneError("no configuration has passed")
    told = records.told(number, ranking.entries[0])
    configuration = table(told.configuration)
    strange = any(name_fault(name) or value_fault(value) for name, value in configuration.items())
    if strange or "space" not in table(told.environment):
        raise AutotuneError("the fastest was not searched and timed here, and is told only with its study")
    return found(Alone(key, records, "", driver, []), number, key, Match.EXACT, configuration, told, ranking)
