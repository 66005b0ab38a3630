"""Kills searches and their workers, and interrupts searches, at random moments: nothing is lost and nothing is left.

    python benchmarks/sigkill.py [--searches 200] [--workers 100] [--interrupts 50] [--seed 1] [--save]

Every search works on one database and one study of 2,000 configurations on the CPU device; some of them never end, and
some crash their worker.

    searches     killed with SIGKILL in their first seconds
    workers      builders, the device's worker and the process that forks them, killed with SIGKILL under one search,
                 also while they start; it goes on
    interrupts   Ctrl-C (SIGINT to the command and, as a terminal sends it, to its whole process group), half of them
                 among the finalists: exit 130, or 0 if it had ended

After each: no process of it lives two seconds later, the database passes SQLite's integrity check, and every trial that
was announced as finished is stored; otherwise it stops there. A last search is left to end by itself.
`--save` writes benchmarks/results/sigkill.json.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import tables

STUDY = """
name = "victim"
kernel = "victim.cl"
[sizes]
N = 4096
[parameters.VARIANT]
values = ["GOOD", "SLOW", "WRONG", "SEGFAULT", "ENDLESS"]
[parameters.WIDTH]
values = [1, 2, 4, 8, 16]
[parameters.SALT]
values = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19]
[parameters.SUGAR]
values = [0, 1, 2, 3]
[arguments.a]
type = "float"
shape = ["N"]
access = "in"
data = { distribution = "uniform", low = -1.0, high = 1.0, seed = 1 }
[arguments.c]
type = "float"
shape = ["N"]
access = "out"
[[launch]]
entry = "victim"
global = ["N // WIDTH"]
local = ["16"]
arguments = ["a", "c"]
[reference]
numpy = { c = "a * 2" }
[tolerance]
relative = 1e-5
"""

KERNEL = """
#define GOOD 0
#define SLOW 1
#define WRONG 2
#define SEGFAULT 3
#define ENDLESS 4
kernel void victim(global const float *a, global float *c) {
    for (int i = get_global_id(0) * WIDTH; i < (get_global_id(0) + 1) * WIDTH; i++) {
        c[i] = 2 * a[i] + (VARIANT == WRONG && i == SALT + SUGAR);
        if (VARIANT == SLOW) for (volatile int k = 0; k < 100 * (SALT + SUGAR); k++);
        if (VARIANT == SEGFAULT && SALT % 4 == 0) c[(long)(i + 1) << 40] = 1;
        if (VARIANT == ENDLESS && SALT % 4 == 0) for (volatile int k = 1; k;);
    }
}
"""

SEARCH = """
import sys
from autotune import api
from autotune.tuner import Budget
path, database, seed, trials = sys.argv[1:]
def say(progress):
    print(progress.done, flush=True)
result = api.search(path, sampler="random", seed=int(seed), database=database, on_progress=say,
                    budget=Budget(trials=int(trials)))
print("ended", result.reused, result.reason, result.failure or "", flush=True)
"""

MARK = "AUTOTUNE_SIGKILL_BENCHMARK"


def alive(mark: str) -> list[int]:
    """Return the processes that have the mark in their environment and are not zombies."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def finished(database: Path) -> int:
    """Check the database and return its number of finished trials."""
    with sqlite3.connect(database) as connection:
        (sound,) = connection.execute("PRAGMA integrity_check").fetchone()
        assert sound == "ok", sound
        (count,) = connection.execute("SELECT count(*) FROM trials WHERE outcome NOT IN ('pending', 'lost')").fetchone()
    connection.close()
    return int(count)


class Place:
    """A folder with the study and its own database; counts what is stored."""

    def __init__(self, root: Path) -> None:
        self.root, self.database, self.kept = root, root / "trials.db", 0
        (root / "victim.toml").write_text(STUDY)
        (root / "victim.cl").write_text(KERNEL)

    def start(self, mark: str, *command: str, **options: Any) -> subprocess.Popen[str]:
        """Start Python with these arguments and the mark."""
        folder = str(self.root)
        environment = {**os.environ, MARK: mark, "TMPDIR": folder, "AUTOTUNE_LOCKS": folder}
        return subprocess.Popen(
            [sys.executable, *command], env=environment, stdout=subprocess.PIPE, text=True, **options
        )

    def search(self, mark: str, seed: int, trials: int) -> subprocess.Popen[str]:
        """Start a search by the Python API, which prints how many trials are done."""
        return self.start(
            mark, "-c", SEARCH, str(self.root / "victim.toml"), str(self.database), str(seed), str(trials)
        )

    def check(self, mark: str, announced: int) -> float:
        """Assert that no process is left and nothing is lost; return the seconds until the last process was gone."""
        began = time.monotonic()
        while left := alive(mark):
            assert time.monotonic() - began < 2.0, f"processes {left} outlived {mark}"
            time.sleep(0.01)
        gone_s = time.monotonic() - began
        stored = finished(self.database) if self.database.exists() else 0
        assert stored >= self.kept + announced, f"{mark}: {self.kept} + {announced} finished, {stored} stored"
        self.kept = stored
        return gone_s


@dataclass
class Row:
    """A line of the printed table."""

    what: str
    count: int
    trials: int
    gone_s: float
    remark: str

    def __str__(self) -> str:
        return f"{self.what:<12}{self.count:>6}{self.trials:>8}{self.gone_s:>8.2f} s   {self.remark}"


def kill_searches(place: Place, count: int, draw: random.Random) -> Row:
    """Kill whole searches in their first seconds."""
    before, slowest, without = place.kept, 0.0, 0
    for number in range(count):
        mark = f"{os.getpid()}-search-{number}"
        with place.search(mark, number, 100000) as search:
            assert search.stdout is not None
            said = search.stdout.readline() if draw.random() < 0.8 else ""  # some die while they start
            time.sleep(draw.uniform(0.0, 2.0))
            search.send_signal(signal.SIGKILL)
            announced = most(said + search.stdout.read())
        known = place.kept
        slowest = max(slowest, place.check(mark, announced))
        without += place.kept == known
    return Row("searches", count, place.kept - before, slowest, f"{without} before their first trial ended")


def most(said: str) -> int:
    """Return the highest number of trials done that a search has announced; 0 before the first."""
    return max((int(line) for line in said.splitlines() if line.isdigit()), default=0)


class Announced(threading.Thread):
    """Reads what a search prints: the numbers of trials done."""

    def __init__(self, search: subprocess.Popen[str]) -> None:
        super().__init__(daemon=True)
        self.search, self.lines = search, list[str]()
        self.start()

    def run(self) -> None:
        assert self.search.stdout is not None
        for line in self.search.stdout:
            self.lines.append(line.strip())

    @property
    def count(self) -> int:
        """How many trials it has announced."""
        return most("\n".join(self.lines))

    def wait_for(self, count: int) -> None:
        """Wait until this many are announced, but no more than two minutes."""
        deadline = time.monotonic() + 120
        while self.count < count:
            assert self.search.poll() is None, f"the search ended: {self.lines[-3:]}"
            assert time.monotonic() < deadline, f"no trial for two minutes, {self.count} done"
            time.sleep(0.05)


def workers(mark: str, role: str) -> list[int]:
    """Return the search's workers of a role, including those that are just starting."""
    found = []
    for pid in alive(mark):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            continue
        if name == f"autotune-{role}"[:15]:
            found.append(pid)
    return found


@contextmanager
def ending(search: subprocess.Popen[str]) -> Iterator[None]:
    """Kill the search if an assertion fails: waiting for it would take for ever."""
    try:
        yield
    except BaseException:
        search.kill()
        raise


def kill_workers(place: Place, count: int, draw: random.Random) -> Row:
    """Kill workers under one search, which goes on and ends in order."""
    before, killed, mark = place.kept, {"device": 0, "builder": 0, "forks": 0}, f"{os.getpid()}-workers"
    with place.search(mark, 1, 100000) as search, ending(search):
        announced = Announced(search)
        while sum(killed.values()) < count:
            time.sleep(draw.uniform(0.0, 2.0))
            assert search.poll() is None, f"the search ended: {announced.lines[-3:]}"
            role = draw.choice(list(killed))
            if pids := workers(mark, role):
                try:
                    os.kill(draw.choice(pids), signal.SIGKILL)
                except ProcessLookupError:
                    continue
                killed[role] += 1
        announced.wait_for(announced.count + 3)  # it goes on
        search.send_signal(signal.SIGINT)
        search.wait(60)
        announced.join(10)
        assert announced.lines[-1].startswith("ended"), announced.lines[-3:]
    gone_s = place.check(mark, announced.count)
    with sqlite3.connect(place.database) as connection:
        (booked,) = connection.execute("SELECT count(*) FROM trials WHERE reason LIKE '%SIGKILL%'").fetchone()
    connection.close()
    roles = f"{killed['device']} device, {killed['builder']} builder, {killed['forks']} what they are forks of"
    remark = f"{roles}; {booked} trials booked as crash, tried again"
    return Row("workers", count, place.kept - before, gone_s, remark)


def interrupt(place: Place, count: int, draw: random.Random) -> Row:
    """Interrupt the command, every other time once it has come to the finalists."""
    before, slowest, codes = place.kept, 0.0, dict[int, int]()
    for number in range(count):
        mark = f"{os.getpid()}-interrupt-{number}"
        command = ["-m", "autotune", "search", str(place.root / "victim.toml"), "--db", str(place.database)]
        options = ["--sampler", "random", "--seed", str(number), "--trials", "3", "--run-limit", "2s"]
        started = place.start(mark, *command, *options, stderr=subprocess.PIPE, start_new_session=True)
        with started as search, ending(search):
            assert search.stdout is not None
            assert search.stderr is not None
            finale = number % 2 == 0
            said = ""
            for line in search.stderr:
                said += line
                if "re-timing" in line if finale else "valid configurations" in line:
                    break
            time.sleep(draw.uniform(0.0, 0.3) if finale else draw.uniform(0.0, 3.0))
            os.killpg(search.pid, signal.SIGINT)
            output, errors = search.communicate(timeout=60)
        assert "Traceback" not in said + errors, said + errors
        allowed = (130, 0, 1) if output and "interrupted" not in output else (130,)
        assert search.returncode in allowed, f"exit {search.returncode}: {said}{errors}{output}"
        codes[search.returncode] = codes.get(search.returncode, 0) + 1
        found = re.search(r"(\d+) new trial", output)
        slowest = max(slowest, place.check(mark, int(found[1]) if found else 0))
    told = ", ".join(f"exit {code}: {times}" for code, times in sorted(codes.items()))
    return Row("interrupts", count, place.kept - before, slowest, told)


def main() -> None:
    """Kill and interrupt, check after each, and print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--workers", type=int, default=100)
    parser.add_argument("--interrupts", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    draw, rows = random.Random(options.seed), list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder))
        print(f"{'killed':<12}{'count':>6}{'trials':>8}{'gone':>8}     all finished trials stored, no process left")
        if options.searches:
            rows.append(kill_searches(place, options.searches, draw))
            print(rows[-1], flush=True)
        if options.workers:
            rows.append(kill_workers(place, options.workers, draw))
            print(rows[-1], flush=True)
        if options.interrupts:
            rows.append(interrupt(place, options.interrupts, draw))
            print(rows[-1], flush=True)
        with place.search(f"{os.getpid()}-last", 0, 10) as last:
            said, _ = last.communicate(timeout=600)
            assert last.returncode == 0, said
        place.check(f"{os.getpid()}-last", 10)
        folders = list(place.root.glob("autotune-run-*"))
        assert not folders, folders
    print(f"{place.kept} trials stored; last search, left alone: {said.strip().splitlines()[-1]}")
    if options.save:
        save(rows, place.kept)


def save(rows: Sequence[Row], kept: int) -> None:
    """Write results/sigkill.json."""
    tables.save(
        "sigkill",
        question="What is lost if searches and their workers are killed, and searches interrupted?",
        command="python benchmarks/sigkill.py " + " ".join(sys.argv[1:]),
        columns=["killed", "how often", "trials that had ended", "lost", "gone within, s", "remark"],
        rows=[[one.what, one.count, one.trials, 0, f"{one.gone_s:.2f}", one.remark] for one in rows],
        note=f"{kept} trials in one database; a lost trial would have ended the benchmark. The last search was left to "
        "end by itself.",
    )


if __name__ == "__main__":
    main()
