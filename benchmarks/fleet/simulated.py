"""A cluster that only answers: the part of Dask's client that a fleet uses, with devices whose trials are recorded."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune.cluster import tasks
from autotune.cluster.travel import facts_of, versions
from autotune.model import Configuration, DeviceInfo, Measurement, Outcome, Trial
from autotune.study import Problem, Study
from benchmarks.recording import Recording

DEVICE = DeviceInfo(
    index=0, name="Simulated", vendor="Tests", platform="Simulated", driver="1", kind="accelerator", opencl_version="",
    compute_units=1, memory=2**30, local_memory=2**15, max_work_group_size=256,
    max_work_item_sizes=(256, 256, 256), clock=1000,
)  # fmt: skip


def problem_of(recording: Recording) -> Problem:
    """Return a problem whose space is that of a recording; it is never built."""
    space = recording.space
    parameters = {name: {"values": list(values)} for name, values in zip(space.names, space.values, strict=True)}
    study = Study(
        name="recorded",
        source="kernel void recorded(global float *c) { c[get_global_id(0)] = 0; }",
        sizes={"N": 64},
        parameters=parameters,
        arguments={"c": {"type": "float", "shape": ["N"], "access": "out"}},
        launch=[{"entry": "recorded", "global": ["N"], "arguments": ["c"]}],
        reference={"numpy": {"c": "zeros(N)"}},
    )
    problem = Problem(study, device=DEVICE)
    problem.__dict__["space"] = space
    return problem


class Answer:
    """Replaces Dask's future."""

    def __init__(self) -> None:
        self.status = "pending"
        self._known: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.on_release: Callable[[], None] | None = None

    def __await__(self) -> Any:
        return self._known.__await__()

    def set(self, answer: Any) -> None:
        if not self._known.done():
            self.status = "finished"
            self._known.set_result(answer)

    def cancel(self) -> None:
        if not self._known.done():
            self.status = "cancelled"
            self._known.set_exception(RuntimeError("cancelled"))
            self._known.exception()  # avoids a warning if nothing waits for it

    def release(self) -> None:
        if self.on_release is not None:
            self.on_release()


class Cluster:
    """Simulated devices, each with places for trials; a device runs one trial at a time.

    `trial_s`: seconds of a trial on its device; `answer` makes the trial of a configuration.
    """

    def __init__(
        self, devices: int, trial_s: float, answer: Callable[[Configuration], Trial], places: int = 3, seed: int = 1
    ) -> None:
        facts = {"versions": versions(), "host": "simulated", "device": facts_of(DEVICE)}
        self.status = "running"
        self.scheduler = self
        self.workers = {f"sim://{number}": {"autotune": facts} for number in range(devices)}
        self.busy_s = 0.0
        self._trial_s = trial_s
        self._answer = answer
        self._places = places
        self._draw = random.Random(seed)
        self._free: deque[str] = deque()
        self._waiting: deque[tuple[Answer, Mapping[str, Any]]] = deque()
        self._until = dict.fromkeys(self.workers, 0.0)

    async def connect(self) -> Cluster:
        """Return the client, as its constructor does."""
        return self

    async def identity(self, n_workers: int) -> Mapping[str, Any]:
        """Describe the workers, as the scheduler does."""
        return {"workers": self.workers}

    async def close(self) -> None:
        """Close, as the client does."""

    def submit(self, task: Any, request: bytes, *, key: str, workers: Sequence[str] = (), **_: Any) -> Answer:
        """Answer a task of a fleet, as the client does."""
        asked, answer = pickle.loads(request), Answer()
        if task is tasks.claim:
            self._free.extend(workers * self._places)
            answer.set({"slots": self._places})
        elif task is tasks.retime:
            times = [self._timed(configuration) for configuration in asked["configurations"]]
            answer.set({"times": times, "worker": next(iter(workers), next(iter(self.workers)))})
        else:
            self._waiting.append((answer, asked))
            self._start()
        return answer

    async def run(self, task: Any, request: bytes, **_: Any) -> Mapping[str, Any]:
        """Answer that nothing has begun."""
        return {}

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting and self._free:
            (answer, asked), worker = self._waiting.popleft(), self._free.popleft()
            takes_s = self._trial_s * self._draw.uniform(0.5, 1.5)
            self._until[worker] = max(loop.time(), self._until[worker]) + takes_s
            self.busy_s += takes_s
            loop.call_at(self._until[worker], self._end, worker, answer, asked["configuration"])

    def _end(self, worker: str, answer: Answer, configuration: Configuration) -> None:
        answer.set({"trial": self._answer(configuration), "usage": {"time": 1.0}, "worker": worker})
        self._free.append(worker)
        self._start()

    def _timed(self, configuration: Configuration) -> Measurement | Trial:
        trial = self._answer(configuration)
        return trial if trial.outcome is not Outcome.OK else trial.measurement or Measurement((1,))


def recorded(recording: Recording) -> Callable[[Configuration], Trial]:
    """Return a function that makes the trial of a configuration, as large as one of a real device."""

    def answer(configuration: Configuration) -> Trial:
        row = recording.space.row(configuration)
        assert row is not None
        trial = recording.trial(row)
        if trial.measurement is None:
            return replace(trial, driver="1", reason="recorded as failed")
        sample = trial.measurement.samples_ns[0]
        return replace(trial, driver="1", measurement=Measurement((sample,) * 20), environment={"host": "simulated"})

    return answer


def invented() -> Callable[[Configuration], Trial]:
    """Return a function that makes a trial of any configuration."""

    def answer(configuration: Configuration) -> Trial:
        sample = 1000 + sum(hash(value) % 1000 for value in configuration.values())
        return Trial(configuration, Outcome.OK, measurement=Measurement((sample,) * 20), driver="1")

    return answer
