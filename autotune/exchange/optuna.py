"""An Optuna database: a study for each problem, so that optuna-dashboard shows it, the parameters' importance too.

What was stopped early is pruned at its bound, and a failure has failed: Optuna can say both.
"""

from __future__ import annotations

import math
import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import text
from autotune.exchange.recording import Recording
from autotune.model import Outcome, Trial

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


class _Unsynced(sqlite3.Connection):
    """Leaves it to the system when the new file reaches the disk: Optuna commits several times for each trial."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.execute("PRAGMA synchronous=OFF")
        self.execute("PRAGMA journal_mode=MEMORY")


def save(recordings: Sequence[Recording], path: Path) -> Counter[str]:
    """Write a new SQLite database at a path where nothing is."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    arguments = {"connect_args": {"factory": _Unsynced}}
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}", engine_kwargs=arguments)
    try:
        for recording in recordings:
            key = recording.key
            name = f"{key.study} {key.device} {text.pairs(key.size)} {text.pairs(key.choices)}".strip()
            study = optuna.create_study(storage=storage, study_name=name, direction="minimize")
            for told in ("study", "device", "kernel_hash"):
                study.set_user_attr(told, getattr(key, told))
            study.add_trials([_frozen(trial, recording) for trial in (*recording.imported, *recording.own)])
    finally:
        storage.remove_session()
        storage.engine.dispose()
    return Counter()


def _frozen(trial: Trial, recording: Recording) -> FrozenTrial:
    """Return a trial as Optuna has it."""
    import optuna

    states = {Outcome.OK: optuna.trial.TrialState.COMPLETE, Outcome.STOPPED: optuna.trial.TrialState.PRUNED}
    told = {"outcome": trial.outcome.value, "reason": trial.reason, "driver": trial.driver}
    told |= {"origin": trial.origin["format"]} if trial.origin is not None else {}
    bound = trial.outcome is Outcome.STOPPED and math.isfinite(trial.time_ns)
    frozen = optuna.trial.create_trial(
        state=states.get(trial.outcome, optuna.trial.TrialState.FAIL),
        value=trial.time_ns if trial.outcome is Outcome.OK else None,
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
    """Return an instant as Optuna has it: local time that does not say so."""
    return moment.astimezone().replace(tzinfo=None)
