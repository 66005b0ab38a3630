"""An Optuna database: a study for each problem, so that optuna-dashboard shows it and the parameters' importance.

A trial that was stopped early is pruned at its bound, and a failed trial has failed: Optuna can express both.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import text
from autotune.errors import UsageError
from autotune.exchange.recording import Recording, first_ns
from autotune.model import Outcome, Trial
from autotune.samplers import quiet_optuna
from autotune.store import Location, clear_errors

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class _Unsynced(sqlite3.Connection):
    """Leaves it to the system when the new file reaches the disk: Optuna commits several times for each trial."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA synchronous=OFF")
        self.execute("PRAGMA journal_mode=MEMORY")


def save(recordings: Sequence[Recording], path: Path) -> Counter[str]:
    """Write a new SQLite database at a path that does not exist: completely, or not at all. Raises UsageError."""
    import optuna

    part = path.with_name(f"{path.name}.part")
    try:
        part.touch(exist_ok=False)
    except OSError as error:
        raise UsageError(f"cannot be written: {error.strerror}", where=str(part)) from error
    try:
        with clear_errors(Location(str(path))):  # errors of making the tables, which Optuna does not convert
            _fill(part, recordings)
        part.rename(path)
    except optuna.exceptions.StorageInternalError as error:
        raise UsageError("cannot be written: is the disk full?", where=str(path)) from error
    finally:
        part.unlink(missing_ok=True)
    return Counter()


def _fill(path: Path, recordings: Sequence[Recording]) -> None:
    import optuna

    with ExitStack() as stack:

        def connect() -> sqlite3.Connection:  # by its path: in a URL, `?`, `%` and `{` have a meaning
            return stack.enter_context(closing(sqlite3.connect(path, factory=_Unsynced)))

        storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"creator": connect})
        stack.callback(storage.engine.dispose)
        stack.callback(storage.remove_session)
        for recording in recordings:
            key = recording.key
            name = f"{key.study} {key.device} {text.pairs(key.size)} {text.pairs(key.choices)}".strip()
            with quiet_optuna():
                study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
            for told in ("study", "device", "kernel_hash"):
                study.set_user_attr(told, getattr(key, told))
            study.add_trials([_frozen(trial, recording) for trial in (*recording.imported, *recording.own)])


def _frozen(trial: Trial, recording: Recording) -> FrozenTrial:
    """Return a trial as an Optuna trial."""
    import optuna

    first, state = first_ns(trial), optuna.trial.TrialState.FAIL
    if trial.outcome is Outcome.STOPPED:
        state = optuna.trial.TrialState.PRUNED
    elif trial.outcome is Outcome.OK and math.isfinite(first):  # an imported trial that passed may lack a time
        state = optuna.trial.TrialState.COMPLETE
    told = {"outcome": trial.outcome.value, "reason": trial.reason, "driver": trial.driver}
    told |= {} if trial.retimed is None else {"retimed": text.time(trial.retimed.median_ns)}
    told |= {"origin": trial.origin["format"]} if trial.origin is not None else {}
    bound = trial.outcome is Outcome.STOPPED and math.isfinite(trial.time_ns)
    frozen = optuna.trial.create_trial(
        state=state,
        value=first if state is optuna.trial.TrialState.COMPLETE else None,
        params=dict(trial.configuration),
        distributions={
            name: optuna.distributions.CategoricalDistribution(list(values))
            for name, values in recording.parameters.items()
        },
        user_attrs={name: text.line(value) for name, value in told.items() if value},
        intermediate_values={0: trial.time_ns} if bound else {},
    )
    if trial.started is not None and trial.finished is not None:
        frozen.datetime_start, frozen.datetime_complete = _local(trial.started), _local(trial.finished)
    return frozen


def _local(moment: datetime) -> datetime:
    """Return an instant as Optuna stores it: local time without a time zone."""
    return moment.astimezone().replace(tzinfo=None)
