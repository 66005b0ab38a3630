"""What few or many configurations in flight cost and gain, from recorded builds and trials of an H200.

    python benchmarks/in_flight.py [--seeds 20] [--builders 16] [--save]
    python benchmarks/in_flight.py --record DATABASE STUDY ...    # of searches by `--sampler random --cold`

recorded/h200.npz holds, for each study and size, how long each tried configuration took to build, to try and to run.
Searches by `bayes` are replayed from it: builders and one device work as long as recorded. In flight are either as many
as builders and device could ever use, or as many as `Ahead` wants. The first configuration is the study's default.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import os
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, product
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy's import: no competing threads
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray
from recording import Recording, listed_space
from tables import save

from autotune.model import Trial, identity
from autotune.pool.builders import COST_S, LONG_S, count_first
from autotune.pool.tasks import Ahead
from autotune.samplers import Proposer
from autotune.store import Store
from autotune.study import Study

FILE = Path(__file__).parent / "recorded" / "h200.npz"
LEAST = 24
"""Spaces with fewer configurations are left out: there is too little to choose from."""

TRIALS = 200
WITHIN = (1.05, 1.02)
WAYS = ("all", "as wanted")
COLUMNS = (
    "study",
    "size",
    "configurations",
    "in flight",
    "to 5 %",
    "to 2 %",
    "s to 5 %",
    "s to 2 %",
    "trials/s",
    "busy",
)


@dataclass(frozen=True, eq=False)
class Recorded:
    """One study at one size: its recording, and by row the seconds of builds and of trials on the device."""

    study: str
    size: str
    recording: Recording
    default: int | None
    build_s: NDArray[np.float64]
    trial_s: NDArray[np.float64]


def record(database: str, studies: Sequence[str]) -> None:
    """Write the trials of some studies in a database to the file."""
    arrays: dict[str, Any] = {}
    with Store.open(database) as store:
        found = [(study, key) for study in map(Study.load, studies) for key, _ in store.problems(study.name)]
        for number, (study, key) in enumerate(found):
            trials = list({identity(one.configuration): one for one in store.trials(key)}.values())
            values = {name: list(entry.values) for name, entry in study.parameters.items()}
            default = {name: entry.default for name, entry in study.parameters.items()}
            size = ",".join(str(number) for number in dict(key.size).values())
            arrays[f"{number}.about"] = json.dumps([study.name, size, values, default])
            arrays[f"{number}.indices"] = np.array(
                [[listed.index(one.configuration[name]) for name, listed in values.items()] for one in trials],
                dtype=np.int16,
            )
            arrays[f"{number}.seconds"] = np.array(
                [[one.build_s, one.verify_s + one.time_s] for one in trials], dtype=np.float32
            )
            arrays[f"{number}.time_ns"] = np.array(
                [math.nan if one.outcome.failed else one.standing_ns for one in trials]
            )
    FILE.parent.mkdir(exist_ok=True)
    np.savez_compressed(FILE, **arrays)


@lru_cache(maxsize=1)
def recorded() -> list[Recorded]:
    """Every space in the file that is large enough."""
    found = []
    with np.load(FILE) as file:
        for number in range(sum(name.endswith(".about") for name in file.files)):
            study, size, values, default = json.loads(str(file[f"{number}.about"]))
            indices, seconds = file[f"{number}.indices"], file[f"{number}.seconds"].astype(float)
            if len(indices) < LEAST:
                continue
            space = listed_space(values, indices)
            order = np.argsort(space.rows(indices))
            time_ns = file[f"{number}.time_ns"][order]
            outcome = np.where(np.isnan(time_ns), 2, 0).astype(np.uint8)
            recording = Recording(f"{study}__{size}", space, time_ns, outcome)
            found.append(Recorded(study, size, recording, space.row(default), *seconds[order].T))
    return found


class Machine:
    """Builders and a device with a simulated clock, advanced from event to event; `ahead` wants a number in flight."""

    def __init__(self, of: Recorded, way: str, builders: int) -> None:
        self.now = 0.0
        self.busy_s = 0.0
        self.in_flight = 0
        self._of = of
        self._ahead = Ahead(builders, 1)
        self._all = way == "all"
        self._builders = builders
        self._begun = min(count_first(TRIALS, 1), builders)
        self._waiting: deque[int] = deque()
        self._ready: deque[int] = deque()
        self._building = 0
        self._running = False
        self._free_since = math.inf
        self._waited_s = 0.0
        self._events: list[tuple[float, int, str, int]] = []
        self._order = count()

    @property
    def capacity(self) -> int:
        """How many configurations are wanted in flight."""
        return self._ahead.most if self._all else self._ahead.wanted(self._begun)

    def submit(self, row: int) -> None:
        """Have a configuration built and tried."""
        self.in_flight += 1
        self._waiting.append(row)

    def collect(self) -> int:
        """The next row whose trial has ended."""
        while True:
            self._occupy()
            self.now, _, what, row = heapq.heappop(self._events)
            if what == "trial":
                self._running, self.in_flight, self._free_since = False, self.in_flight - 1, self.now
                self._ahead.ran(self._of.trial_s[row])
                return row
            if what == "build":
                self._building -= 1
                self._ready.append(row)
                self._ahead.built(self._of.build_s[row])
            else:
                self._begun = self._builders

    def _occupy(self) -> None:
        """Give work to free builders and to the device if it is free."""
        while self._waiting and self._building < self._begun:
            row = self._waiting.popleft()
            self._building += 1
            self._after(self._of.build_s[row], "build", row)
            if self._of.build_s[row] > LONG_S and self._begun < self._builders:
                self._after(LONG_S + COST_S, "all builders", row)
        if self._ready and not self._running:
            row = self._ready.popleft()
            if self._building + len(self._waiting) + 1 >= self._begun:
                before, waited_s = self._waited_s, max(0.0, self.now - self._free_since)
                self._waited_s += waited_s
                if before <= COST_S < self._waited_s:
                    self._after(COST_S, "all builders", row)
            self._running = True
            self.busy_s += self._of.trial_s[row]
            self._after(self._of.trial_s[row], "trial", row)

    def _after(self, seconds: float, what: str, row: int) -> None:
        heapq.heappush(self._events, (self.now + float(seconds), next(self._order), what, row))


def search(task: tuple[int, str, int, int]) -> list[float]:
    """Replay one search: evaluations and seconds to each of WITHIN, trials a second, how busy the device is."""
    number, way, seed, builders = task
    of = recorded()[number]
    machine, space = Machine(of, way, builders), of.recording.space
    proposer = Proposer(space, "bayes", seed)
    if of.default is not None:
        proposer.enqueue(space.configuration(of.default))
    reached: dict[float, tuple[int, float]] = {}
    done = 0
    while done < min(TRIALS, len(space)) and len(reached) < len(WITHIN):
        while machine.in_flight < machine.capacity and (configuration := proposer.ask()) is not None:
            row = space.row(configuration)
            assert row is not None
            machine.submit(row)
        trial: Trial = of.recording.trial(machine.collect())
        proposer.tell(trial)
        done += 1
        for share in WITHIN:
            if share not in reached and trial.time_ns <= share * of.recording.best_ns:
                reached[share] = done, machine.now
    ends = [reached.get(share, (done, machine.now)) for share in WITHIN]
    return [*(n for n, _ in ends), *(s for _, s in ends), done / machine.now, machine.busy_s / machine.now]


def main() -> None:
    """Parse the command line, play, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--builders", type=int, default=16)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--record", nargs="+", metavar=("DATABASE", "STUDY"))
    parser.add_argument("--save", action="store_true", help="write results/in-flight.json")
    options = parser.parse_args()
    if options.record:
        record(options.record[0], options.record[1:])
        return
    spaces = recorded()
    tasks = list(product(range(len(spaces)), WAYS, range(options.seeds), [options.builders]))
    with ProcessPoolExecutor(options.jobs) as pool:
        runs = np.array(list(pool.map(search, tasks, chunksize=4))).reshape(len(spaces), len(WAYS), options.seeds, -1)
    medians = np.median(runs, axis=2)
    means = np.exp(np.log(medians).mean(axis=0))
    rows = [
        [one.study, one.size, str(len(one.recording.space)), way, *shown(medians[number, at])]
        for number, one in enumerate(spaces)
        for at, way in enumerate(WAYS)
    ]
    rows += [["geometric mean", "", "", way, *shown(means[at])] for at, way in enumerate(WAYS)]
    print("\n".join(" | ".join(row) for row in rows))
    if options.save:
        save(
            "in-flight",
            question="What does a search save with fewer trials in flight, and what does it cost the device?",
            command=f"python benchmarks/in_flight.py --seeds {options.seeds} --save",
            machine="played on one NVIDIA H200 and 16 builders, as recorded",
            columns=COLUMNS,
            rows=rows,
            note=f"Medians over {options.seeds} seeds. Evaluations and seconds of `bayes` to 5 and 2 % above the "
            f"fastest recorded. `all`: {options.builders + 2} in flight; `as wanted`: as many as build and trial times "
            "call for. A configuration takes the time that it took in one random search, however fast the best so far "
            "is.",
        )


def shown(figures: NDArray[np.float64]) -> list[str]:
    """The figures of a row as text."""
    to_5, to_2, s_5, s_2, rate, busy = figures
    return [f"{to_5:.3g}", f"{to_2:.3g}", f"{s_5:.2f}", f"{s_2:.2f}", f"{rate:.3g}", f"{100 * busy:.0f} %"]


if __name__ == "__main__":
    main()
