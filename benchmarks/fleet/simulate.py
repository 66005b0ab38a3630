"""How many devices one search can drive: its real code with devices that only answer."""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from autotune import tuner
from autotune.cluster import Address, ClusterEvaluator
from autotune.tuner import Budget, Request
from benchmarks.fleet.simulated import Cluster, invented, problem_of, recorded
from benchmarks.recording import Recording, ordered_space

NOWHERE = Address("tcp", "127.0.0.1", 1)

Row = tuple[str, int, float, int, str, str, str]


def simulate(recording: Recording, devices: int, trial_s: float, trials: int, sampler: str, places: int = 3) -> Row:
    """Search once.

    Return sampler, devices, seconds of a trial, trials, trials a second in the second half, milliseconds of this
    process's CPU for each trial, and the share of their time that the devices work, in percent.
    """
    problem = problem_of(recording)
    cluster = Cluster(devices, trial_s, recorded(recording), places)
    with (
        tempfile.TemporaryDirectory() as folder,
        ClusterEvaluator(problem, NOWHERE, client=cluster.connect, say=lambda _: None) as evaluator,
    ):
        while evaluator.devices < devices:
            time.sleep(0.01)
        request = Request(
            problem, database=str(Path(folder) / "a.db"), sampler=sampler, seed=1, budget=Budget(trials=trials)
        )
        ended: list[float] = []
        cpu_s = time.process_time()
        result = tuner.run(request, evaluator=evaluator, on_progress=lambda _: ended.append(time.monotonic()))
        cpu_s = time.process_time() - cpu_s
    assert result.trials == trials, result.reason
    done = ended[:trials]
    half = len(done) // 2
    rate = (len(done) - half) / max(1e-9, done[-1] - done[half - 1])
    share = min(1.0, rate * trial_s / devices)
    return sampler, devices, trial_s, trials, f"{rate:.0f}", f"{1000 * cpu_s / trials:.1f}", f"{100 * share:.2g}"


def space_of(count: int) -> Recording:
    """Return a space of at least `count` configurations, with times that a sampler can learn from."""
    side = max(2, int(np.ceil(count ** (1 / 4))))
    table = np.stack(np.meshgrid(*[np.arange(1, side + 1)] * 4, indexing="ij"), -1).reshape(-1, 4).astype(np.int16)
    times = 1e5 * (1 + ((table - side / 3) ** 2).sum(axis=1) / side)
    space, order = ordered_space(["A", "B", "C", "D"], table)
    return Recording("made", space, times[order], np.zeros(len(table), np.uint8))


def memory(trials: int) -> Sequence[tuple[int, float]]:
    """Put trials through the evaluator alone; return memory in MiB after each tenth of them."""
    recording = space_of(trials)
    problem = problem_of(recording)
    cluster = Cluster(200, 0.05, invented())
    space, found = problem.space, []
    with ClusterEvaluator(problem, NOWHERE, client=cluster.connect, say=lambda _: None) as evaluator:
        flying = 0
        for number in range(trials):
            evaluator.submit(space.configuration(number))
            flying += 1
            while flying >= 600:
                evaluator.collect()
                flying -= 1
            if (number + 1) % (trials // 10) == 0:
                found.append((number + 1, _resident_mib()))
        for _ in range(flying):
            evaluator.collect()
    return found


def _resident_mib() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
