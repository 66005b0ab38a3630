"""Measures given configurations here and now, in turns with each other; nothing is proposed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace

from autotune.errors import AutotuneError
from autotune.model import Configuration, Identity, Trial, identity
from autotune.pool import DeviceEvaluator, Evaluator, Stopped
from autotune.tuner.finale import finalists
from autotune.tuner.loop import POLL_S, RETIME_S, Ledger
from autotune.tuner.recall import ours, recall
from autotune.tuner.request import Request
from autotune.tuner.start import environment


def measure(
    request: Request,
    configurations: Sequence[Configuration],
    stop: threading.Event | None = None,
    *,
    anew: bool = False,
    budget_s: float = RETIME_S,
    evaluator: Evaluator | None = None,
) -> dict[Identity, Trial]:
    """Put each configuration through a trial, unless it has passed one (or all `anew`); time all that pass in turns.

    Return the latest trial of each by its `identity`, re-timed in turns with all others that passed: samples at the
    same index of their re-timings were taken at about the same moment. Everything is stored as a search stores it.
    Trials that were timed in turns before and are nearly as fast as the best are timed too, so that the ranking still
    compares times that were taken together. `request` gives the problem, device and database. Raises Stopped if `stop`
    is set; trials that have ended by then are stored.
    """
    from autotune.store import Store

    stop = stop or threading.Event()
    problem = request.problem
    wanted = {identity(configuration): configuration for configuration in configurations}
    with Store.open(request.database) as store, ExitStack() as opened:
        # Slow configurations are measured to the end: a search would stop them early, but here their times are wanted.
        settings = replace(request.settings, stops_slow=False)
        runs = evaluator or opened.enter_context(DeviceEvaluator(problem, request.devices, settings, stop))
        stored = store.trials(problem.key)
        number = store.start_search(
            problem.key, request.devices, sampler="measure", seed=None, environment=environment(problem)
        )
        history = ours(problem, stored)
        ledger, reason = Ledger(store, number, problem, recall(problem, history), history), "error"
        try:
            _try_all(ledger, runs, wanted, stop, anew=anew)
            _time_all(ledger, runs, wanted, stop, budget_s)
            reason = f"{len(wanted)} measured"
        except (Stopped, KeyboardInterrupt):
            ledger.abandon(runs)
            reason = "interrupted"
            raise
        except BaseException:
            with suppress(AutotuneError):  # the first error is the one to report
                ledger.abandon(runs)
            raise
        finally:
            store.end_search(number, reason)
    latest = {identity(trial.configuration): trial for trial in ledger.trials}
    return {name: latest[name] for name in wanted if name in latest}


def _try_all(
    ledger: Ledger, runs: Evaluator, wanted: dict[Identity, Configuration], stop: threading.Event, *, anew: bool
) -> None:
    """Put configurations that have not passed here through a trial; stop none of them for being slow."""
    passed = {identity(trial.configuration) for trial in ledger.passed()}
    waiting = [configuration for name, configuration in wanted.items() if anew or name not in passed]
    while waiting or ledger.in_flight:
        while waiting and len(ledger.in_flight) < runs.capacity:
            configuration = waiting.pop(0)
            ledger.begin(configuration)
            runs.submit(configuration)
        if stop.is_set():
            raise Stopped
        with suppress(TimeoutError):
            ledger.end(runs.collect(POLL_S))


def _time_all(
    ledger: Ledger, runs: Evaluator, wanted: dict[Identity, Configuration], stop: threading.Event, budget_s: float
) -> None:
    """Time the configurations that passed, in turns, together with the rivals that the ranking compares them with."""
    passed = ledger.passed()
    rivals = [trial for trial in finalists(passed, budget_s) if trial.retimed is not None]
    asked = [trial for trial in passed if identity(trial.configuration) in wanted]
    chosen = list({identity(trial.configuration): trial for trial in (*asked, *rivals)}.values())
    if not chosen:
        return
    runs.best_ns = min(trial.paced_ns for trial in chosen)
    answers = runs.retime([trial.configuration for trial in chosen], budget_s, stop)
    ledger.retime(chosen, answers)
