"""Store trials when they begin, end and are timed again: one durable transaction for all that ended together."""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sqlalchemy import Connection, bindparam, delete, select, update

from autotune.errors import StoreError, placed
from autotune.identity import digest
from autotune.model import Configuration, Measurement, Outcome, Trial, with_retiming
from autotune.store import queries, standings
from autotune.store.access import Access
from autotune.store.database import LACKS
from autotune.store.fields import FIELDS, measurement_columns, trial_columns
from autotune.store.location import IMPORTED
from autotune.store.records import now, ordered, pages
from autotune.store.schema import devices, retimings, search_devices, searches, trials
from autotune.text import pairs


class NoSuchTrialError(StoreError):
    """A trial that was not begun or has not passed: the caller is wrong, or its row was deleted meanwhile."""


class Attempts(Access):
    """The trials of searches. Every method is one transaction and may raise StoreError."""

    def begin(self, search_id: int, configurations: Sequence[Configuration]) -> list[int]:
        """Store attempts before anything can go wrong; return the trials' numbers.

        They survive a crash of this process, and one of the machine once any of them or a later one is finished.
        """
        started = datetime.now(UTC)
        rows = [
            {"uuid": uuid.uuid4().hex, "search_id": search_id, **trial_columns(trial)}
            for trial in (Trial(each, Outcome.PENDING, started=started) for each in configurations)
        ]
        return self._written(
            lambda connection: [queries.inserted(connection, trials, row) for row in rows],
            lambda connection: [
                queries.number(connection, trials, str(row["uuid"])) or queries.inserted(connection, trials, row)
                for row in rows
            ],
            durable=False,
        )

    def withdraw(self, *trial_ids: int) -> None:
        """Delete attempts that did not run. Finished trials stay."""

        def step(connection: Connection) -> None:
            for some in pages(trial_ids):
                connection.execute(delete(trials).where(trials.c.id.in_(some), queries.unfinished()))

        if trial_ids:
            self._written(step)

    def finish(self, ended: Sequence[tuple[int, Trial]]) -> None:
        """Store how trials ended, by their numbers; all of them, or none.

        A missing driver or instant of a trial is filled in here. Raises NoSuchTrialError if a trial was not begun or
        has been finished before.
        """
        names, instant = {number: uuid.uuid4().hex for number, _ in ended}, now()
        rows = {number: trial_columns(trial, _AT_THE_END) for number, trial in ended}
        for columns in rows.values():
            columns["finished"] = columns["finished"] or instant

        def step(connection: Connection, due: dict[int, Trial]) -> None:
            # A lost trial may still end: another machine may have wrongly taken its search for dead. A server that
            # took over without this trial may have given its number to another one.
            found = {row.id: row for row in connection.execute(_BEGUN, {"numbers": list(due)})}
            begun = {key: row for key, row in found.items() if row.configuration_hash == digest(due[key].configuration)}
            if missing := due.keys() - begun.keys():
                what = f"trial {min(missing)} was not begun, has been finished before, or was deleted meanwhile"
                raise NoSuchTrialError(what, where=self.where, hint=LACKS)
            used = _devices_used(connection, {row.search_id for row in begun.values()})
            moved: dict[int, list[str]] = defaultdict(list)
            finished: dict[int, Counter[int]] = defaultdict(Counter)
            for number, trial in due.items():
                attempt, columns = begun[number], rows[number]
                own = used.get((attempt.search_id, trial.device_index)) or used.get((attempt.search_id, None))
                columns["device_id"], driver = own or (None, "")
                columns["driver"] = columns["driver"] or driver
                columns["started"] = columns["started"] or attempt.started
                moved[attempt.problem_id].append(attempt.configuration_hash)
                finished[attempt.problem_id][attempt.search_id] += 1
            connection.execute(_FINISH, [{**rows[number], "number_": number} for number in due])
            for number, trial in due.items():
                if trial.retimed is not None and trial.retimed.samples_ns:
                    driver, taken = rows[number]["driver"], trial.retimed.taken or instant
                    _add_retiming(connection, number, driver, trial.retimed, names[number], taken)
            for problem, configurations in moved.items():
                standings.follow(connection, problem, configurations, finished[problem])

        def again(connection: Connection) -> None:
            due = {number: trial for number, trial in ended if not _is_finished(connection, number, rows[number])}
            if due:
                step(connection, due)

        if ended:
            self._written(partial(step, due=dict(ended)), again)

    def retime(self, search_id: int, taken: Sequence[tuple[Configuration, Measurement]]) -> str:
        """Add the re-timings of configurations that were timed in turns, all or none; return their common instant.

        Each is added to the latest verified trial of its configuration in the same problem. Earlier re-timings stay;
        the latest counts. Its verified runs are added to those in the trial's environment, which then also tells how
        the device was throttled meanwhile. Raises NoSuchTrialError, and ValueError if there is no sample.
        """
        if not all(measurement.samples_ns for _, measurement in taken):
            raise ValueError("a re-timing needs samples")
        names, instant = [uuid.uuid4().hex for _ in taken], now()

        def step(connection: Connection) -> None:
            for (configuration, measurement), name in zip(taken, names, strict=True):
                _retime(connection, search_id, configuration, measurement, name, instant)

        with placed(self.where, NoSuchTrialError):
            self._written(step)
        return instant


def _retime(
    connection: Connection,
    search: int,
    configuration: Configuration,
    measurement: Measurement,
    name: str,
    instant: str,
) -> None:
    """Add a re-timing with the uuid `name` to the latest verified trial of a configuration in a search's problem.

    Only trials under the search's drivers count, and none of a later generation.
    """
    problem_id = select(searches.c.problem_id).where(searches.c.id == search).scalar_subquery()
    own = select(searches.c.generation).where(searches.c.id == search).scalar_subquery()
    drivers = select(devices.c.driver).join(search_devices, search_devices.c.device_id == devices.c.id)
    query = (
        select(trials.c.id, trials.c.driver, trials.c.environment, searches.c.problem_id, trials.c.configuration_hash)
        .join(searches, searches.c.id == trials.c.search_id)
        .where(
            searches.c.problem_id == problem_id,
            searches.c.generation <= own,
            searches.c.sampler != IMPORTED,
            trials.c.driver.in_(drivers.where(search_devices.c.search_id == search)),
            trials.c.configuration_hash == digest(configuration),
            trials.c.outcome == Outcome.OK.value,
        )
        .order_by(trials.c.id.desc())
        .limit(1)
    )
    trial = connection.execute(query).first()
    if trial is None:
        raise NoSuchTrialError(f"no verified trial of {pairs(configuration)}", hint=LACKS)
    if not _add_retiming(connection, trial.id, trial.driver, measurement, name, instant):
        return
    standings.follow(connection, trial.problem_id, [trial.configuration_hash])
    if measurement.verified_runs:
        stood = ordered(with_retiming(json.loads(trial.environment), measurement))
        connection.execute(update(trials).where(trials.c.id == trial.id).values(environment=stood))


def _add_retiming(
    connection: Connection, trial_id: int, driver: str, measurement: Measurement, name: str, instant: str
) -> bool:
    """Add a re-timing with the uuid `name` to a trial, once; return whether it is new."""
    if queries.number(connection, retimings, name) is not None:
        return False
    columns = {"uuid": name, "trial_id": trial_id, "driver": driver, "taken": instant}
    queries.inserted(connection, retimings, columns | measurement_columns(measurement))
    return True


_BEGUN = (
    select(trials.c.id, trials.c.search_id, trials.c.started, searches.c.problem_id, trials.c.configuration_hash)
    .join(searches, searches.c.id == trials.c.search_id)
    .where(trials.c.id.in_(bindparam("numbers", expanding=True)), queries.unfinished())
)
_DEVICES_USED = (
    select(search_devices.c.search_id, devices.c.id, devices.c.driver, devices.c.facts)
    .join(devices, devices.c.id == search_devices.c.device_id)
    .where(search_devices.c.search_id.in_(bindparam("searches", expanding=True)))
    .order_by(devices.c.id)
)
_AT_THE_END = [field for field in FIELDS if field.name not in ("configuration", "configuration_hash")]
_FINISH = update(trials).where(trials.c.id == bindparam("number_"))


def _devices_used(connection: Connection, search_ids: Iterable[int]) -> dict[tuple[int, int | None], tuple[int, str]]:
    """Return number and driver of searches' devices, by search and device index; None as index: its first device."""
    found: dict[tuple[int, int | None], tuple[int, str]] = {}
    for row in connection.execute(_DEVICES_USED, {"searches": list(search_ids)}):
        for index in (None, json.loads(row.facts).get("index")):
            found.setdefault((row.search_id, index), (row.id, row.driver))
    return found


def _is_finished(connection: Connection, trial_id: int, columns: Mapping[str, Any]) -> bool:
    """Return whether a stored trial has exactly the end and the outcome in these columns."""
    told = {name: columns[name] for name in ("outcome", "finished")}
    query = select(trials.c.id).where(trials.c.id == trial_id, queries.same(trials, told))
    return connection.execute(query).first() is not None
