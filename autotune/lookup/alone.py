"""The best of a stored problem from its records alone, where its study is not at hand.

What was searched and timed here was valid by the study when it was tried, and needs no study to be told. What came by
an import does, a trial or the re-timing of one: anybody may have written it.
"""

from __future__ import annotations

from typing import NamedTuple

from autotune.errors import AutotuneError
from autotune.identity import ProblemKey, name_fault, value_fault
from autotune.lookup.answer import Best, Match, found, table
from autotune.lookup.records import Records
from autotune.text import clean


class Alone(NamedTuple):
    """What `found` asks of a question, where there is no study."""

    key: ProblemKey
    records: Records
    database: str
    driver: str
    left_out: list[str]


def best_alone(records: Records, number: int, key: ProblemKey, driver: str) -> Best:
    """Return the best of a stored problem as it was measured, without build options: the study has a say in those.

    `driver` is that of the device; "" where it was not looked at. Its match is exact as far as the problem itself is
    asked for: whether the study has changed since is not known. Raises AutotuneError where nothing has passed, and
    where the fastest, or the time that ranks it, did not come of a search here: the next would be told for what it may
    not be.
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
