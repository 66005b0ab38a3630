"""Trials as they begin, end and are timed again: one durable transaction for all that ended together."""

from __future__ import annotations

import json
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

from sqlalchemy import Connection, delete, update

from autotune.identity import digest
from autotune.model import Configuration, Measurement, Outcome, Trial, with_retiming
from autotune.store import queries, standings
from autotune.store.access import Access
from autotune.store.fields import trial_columns
from autotune.store.records import now, ordered, pages
from autotune.store.schema import trials


class NoSuchTrialError(RuntimeError):
    """A trial that was not begun or has not passed: whoever says so is mistaken, and the database is not."""


class Attempts(Access):
    """The trials of searches. Every method is one transaction and may raise StoreError."""

    def begin(self, search_id: int, configurations: Sequence[Configuration]) -> list[int]:
        """Put attempts on record before anything can go wrong; return the trials' numbers.

        They outlast this process, and the machine once one of them or a later one is finished.
        """
        rows = [
            trial_columns(Trial(configuration, Outcome.PENDING))
            | {"uuid": uuid.uuid4().hex, "search_id": search_id, "started": now()}
            for configuration in configurations
        ]
        return self._written(
            lambda connection: [queries.inserted(connection, trials, row) for row in rows],
            lambda connection: [queries.once(connection, trials, row) for row in rows],
            durable=False,
        )

    def withdraw(self, *trial_ids: int) -> None:
        """Take attempts off the record that have not come to run. Leaves finished trials alone."""

        def step(connection: Connection) -> None:
            for some in pages(trial_ids):
                connection.execute(delete(trials).where(trials.c.id.in_(some), queries.unfinished()))

        if trial_ids:
            self._written(step)

    def finish(self, ended: Sequence[tuple[int, Trial]]) -> None:
        """Record how trials ended, by their numbers; all of them, or none.

        Driver and instants that a trial does not tell are filled in here. Raises NoSuchTrialError where one was not
        begun or has been finished before.
        """
        rows = {number: _columns(trial) for number, trial in ended}
        names, instant = {number: uuid.uuid4().hex for number in rows}, now()

        def step(connection: Connection, due: dict[int, Trial]) -> None:
            begun = queries.begun(connection, due)
            if missing := due.keys() - begun.keys():
                raise NoSuchTrialError(f"trial {min(missing)} was not begun or has been finished before")
            used = queries.devices_used(connection, {row.search_id for row in begun.values()})
            moved: dict[int, list[str]] = defaultdict(list)
            finished: dict[int, Counter[int]] = defaultdict(Counter)
            for number, trial in due.items():
                device_id, driver = queries.device_used(used.get(begun[number].search_id, []), trial.device_index)
                rows[number] |= {"device_id": device_id, "driver": rows[number]["driver"] or driver}
                moved[begun[number].problem_id].append(begun[number].configuration_hash)
                finished[begun[number].problem_id][begun[number].search_id] += 1
            queries.finish(connection, {number: rows[number] for number in due})
            for number, trial in due.items():
                if trial.retimed is not None and trial.retimed.samples_ns:
                    driver = rows[number]["driver"]
                    known = {"uuid": names[number], "taken": trial.retimed.taken or instant}
                    queries.retime(connection, number, driver, trial.retimed, **known)
            for problem, configurations in moved.items():
                standings.follow(connection, problem, configurations, finished[problem])

        def again(connection: Connection) -> None:
            due = {
                number: trial for number, trial in ended if not queries.is_finished(connection, number, rows[number])
            }
            if due:
                step(connection, due)

        if ended:
            self._written(partial(step, due=dict(ended)), again)

    def retime(self, search_id: int, taken: Sequence[tuple[Configuration, Measurement]]) -> str:
        """Add the timings of configurations that were timed in turns, all or none; return the instant they share.

        Each is added to the latest verified trial of its configuration of the same problem. Earlier re-timings stay;
        the latest counts. The runs it was verified in are added up in the trial's environment, which then says how the
        device was throttled meanwhile. Raises NoSuchTrialError, and ValueError where there is no sample.
        """
        if not all(measurement.samples_ns for _, measurement in taken):
            raise ValueError("a re-timing needs samples")
        instant = now()
        known = [{"uuid": uuid.uuid4().hex, "taken": instant} for _ in taken]

        def step(connection: Connection) -> None:
            for (configuration, measurement), names in zip(taken, known, strict=True):
                _retime(connection, search_id, configuration, measurement, names)

        self._written(step)
        return instant


def _retime(
    connection: Connection, search: int, configuration: Configuration, measurement: Measurement, names: dict[str, str]
) -> None:
    trial = connection.execute(queries.verified(search, digest(configuration))).first()
    if trial is None:
        raise NoSuchTrialError(f"no verified trial of {dict(configuration)}")
    if not queries.retime(connection, trial.id, trial.driver, measurement, **names):
        return
    standings.follow(connection, *queries.place(connection, trial.id))
    if measurement.verified_runs:
        stood = ordered(with_retiming(json.loads(trial.environment), measurement))
        connection.execute(update(trials).where(trials.c.id == trial.id).values(environment=stood))


def _columns(trial: Trial) -> dict[str, Any]:
    """Return what is filled in of a trial that has ended."""
    kept = {"configuration", "configuration_hash"} | ({"started"} if trial.started is None else set())
    columns = {name: value for name, value in trial_columns(trial).items() if name not in kept}
    columns["finished"] = columns["finished"] or now()
    return columns
