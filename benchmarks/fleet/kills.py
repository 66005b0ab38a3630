"""SIGKILL for every part of a cluster while a trial runs: each ended trial is stored once, and searches end right."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from tests import postgres
from tests.machines import Machines, kill, may_have_networks
from tests.test_cluster import made

Row = tuple[str, int, int, int, int, int, str, str]

BEST = {"A": 7, "B": 3}
"""The fastest configuration of the study, by far."""

_SLOW = """
    time.sleep(0.015 + 0.01 * min(3, (A - 7) ** 2 + abs(B - 3)))
    c.view(np.float32)[:] = 2 * a.view(np.float32)
"""

_SPACE = (10, 12)
_EACH = 10
"""Kills in each search."""


def run(parts: Sequence[str], count: int, seed: int) -> list[Row]:
    """Kill each part this often; return a row for each, whose last cell, `amiss`, says what was wrong, if anything."""
    rows: list[Row] = []
    for part in parts:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            try:
                row = PARTS[part](part, Path(folder), count, random.Random(seed))
            except Exception as error:
                traceback.print_exc()
                row = (part, 0, 0, 0, -1, -1, "none", f"{type(error).__name__}: {error}"[:300])
        seconds = (time.monotonic() - began) / max(1, count)
        print(*row, f"{seconds:.1f} s each", file=sys.stderr, flush=True)
        rows.append(row)
    return rows


class Place:
    """A cluster of two workers and a search on it, with what is stored."""

    def __init__(self, folder: Path, url: str = "") -> None:
        self.machines = Machines(folder, apart=may_have_networks() and not url)
        self.study = str(made(folder, range(1, _SPACE[0] + 1), range(1, _SPACE[1] + 1)))
        quick = (folder / "waits.py").read_text()
        (folder / "waits.py").write_text(quick[: quick.index("    until = ")] + _SLOW)
        self.database = folder / "a.db"
        self.url = url
        self.scheduler = self.machines.scheduler()
        self.workers = {number: self.machines.worker(number) for number in (1, 2)}
        for number, process in self.workers.items():
            self.machines.wait_for(lambda number=number: "serves" in self.machines.said(number), process)

    def search(self, trials: int, *more: str) -> subprocess.Popen[str]:
        """Start a search."""
        words = (self.study, "--trials", str(trials), "--sampler", "random", "--seed", "1", *more)
        return self.machines.search(*words, database=self.url or self.database)  # type: ignore[arg-type]

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Ask the database."""
        if self.url:
            import psycopg

            with psycopg.connect(self.url.replace("+psycopg", ""), connect_timeout=5) as connection:
                return connection.execute(query).fetchall()
        if not self.database.exists():
            return []
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute(query).fetchall()

    def count(self) -> int:
        """How many trials have ended; -1 if the database does not answer."""
        try:
            found = self.ask("SELECT count(*) FROM trials WHERE outcome NOT IN ('pending', 'lost')")
        except Exception:
            return -1
        return int(found[0][0]) if found else 0

    def running(self) -> bool:
        """True while a trial is on record that has not ended."""
        try:
            return bool(self.ask("SELECT 1 FROM trials WHERE outcome = 'pending' LIMIT 1"))
        except Exception:
            return False

    def until_it_works(self, search: subprocess.Popen[str], beyond: int, more: int) -> int:
        """Wait until `more` trials than `beyond` have ended, and one is running; return how many have ended."""
        self.machines.wait_for(lambda: self.count() >= beyond + more and self.running(), search)
        return self.count()

    def settle(self, search: subprocess.Popen[str], again: bool = True) -> tuple[int, int, int]:
        """Let the search end; return the numbers of trials, of lost ones and of those recorded twice. Asserts its pick.

        A configuration whose process was killed twice in a row counts as a crash, until the search is started again.
        """
        output, errors = search.communicate(timeout=600)
        assert search.returncode == 0, errors
        assert "Traceback" not in errors, errors
        named = "best        " + " ".join(f"{name}={value}" for name, value in BEST.items())
        assert named in output, output
        ended = self.ask("SELECT configuration_hash, outcome FROM trials WHERE outcome NOT IN ('pending', 'lost')")
        passed = [name for name, outcome in ended if outcome in ("ok", "stopped")]
        failed = {(name, outcome) for name, outcome in ended if name not in passed}
        if again and failed and {outcome for _, outcome in failed} == {"crash"}:
            return self.settle(self.search(_SPACE[0] * _SPACE[1]), again=False)
        twice = len(passed) - len(set(passed))
        left = int(self.ask("SELECT count(*) FROM trials WHERE outcome = 'pending'")[0][0])
        assert (twice, left, failed) == (0, 0, set()), (twice, left, failed)
        return len(passed), left, twice


@contextmanager
def opened(folder: Path, url: str = "") -> Iterator[Place]:
    """A place that is closed at the end."""
    place = Place(folder, url)
    with place.machines:
        yield place


Strike = Callable[[Place, subprocess.Popen[str], random.Random], subprocess.Popen[str]]
"""Kills something, restarts what a person would have to restart, and returns the search that goes on."""


def struck(strike: Strike, renew: Callable[[], None] = lambda: None) -> Callable[..., Row]:
    """Return a function that searches the whole space, again and again, while something is killed this often."""

    def killing(part: str, folder: Path, count: int, draw: random.Random, url: str = "") -> Row:
        done = running = stored = searches = 0
        while done < count:
            here = folder / f"{part}-{searches}"
            here.mkdir(mode=0o755)
            renew()
            with opened(here, url) as place:
                search, ended = place.search(_SPACE[0] * _SPACE[1]), 0
                for _ in range(min(_EACH, count - done)):
                    ended = place.until_it_works(search, ended, draw.randint(1, 4))
                    time.sleep(draw.uniform(0, 0.05))
                    place.machines.wait_for(place.running, search)
                    running += 1
                    search = strike(place, search, draw)
                    assert place.count() >= ended, "an ended trial is gone"
                    done += 1
                stored += place.settle(search)[0]
                searches += 1
        return part, done, running, stored, 0, 0, f"{searches} of {searches}", ""

    return killing


def _worker(place: Place, search: subprocess.Popen[str], draw: random.Random) -> subprocess.Popen[str]:
    """A machine without power: nanny, worker and everything below; another machine replaces it."""
    number = draw.choice(list(place.workers))
    kill(place.workers.pop(number))
    place.workers[number] = place.machines.worker(number)
    return search


def _device(place: Place, search: subprocess.Popen[str], draw: random.Random) -> subprocess.Popen[str]:
    """The process that uses the device."""
    place.machines.wait_for(lambda: _at_devices(place), search)
    with suppress(ProcessLookupError):
        os.kill(draw.choice(_at_devices(place)), signal.SIGKILL)
    return search


def _at_devices(place: Place) -> list[int]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text().strip()
            mine = str(place.machines.folder).encode() in (folder / "environ").read_bytes()
        except OSError:
            continue
        if name == "autotune-device" and mine:
            found.append(int(folder.name))
    return found


def _scheduler(place: Place, search: subprocess.Popen[str], draw: random.Random) -> subprocess.Popen[str]:
    """The scheduler, which is started again a moment later."""
    kill(place.scheduler)
    time.sleep(draw.uniform(0.1, 1))
    place.scheduler = place.machines.scheduler()
    return search


def _driver(place: Place, search: subprocess.Popen[str], draw: random.Random) -> subprocess.Popen[str]:
    """The search, which is started again."""
    kill(search)
    return place.search(_SPACE[0] * _SPACE[1])


def _elastic(place: Place, search: subprocess.Popen[str], draw: random.Random) -> subprocess.Popen[str]:
    """A worker joins, or leaves in order; at least one stays."""
    leaving = draw.choice(list(place.workers))
    if len(place.workers) > 1 and draw.random() < 0.5:
        process = place.workers.pop(leaving)
        process.send_signal(signal.SIGTERM)
    else:
        number = max(place.workers) + 1
        place.workers[number] = place.machines.worker(number)
    return search


def _postgres(part: str, folder: Path, count: int, draw: random.Random) -> Row:
    """The database server: killed as a whole, and started again."""
    again: list[subprocess.Popen[bytes]] = []

    def strike(place: Place, search: subprocess.Popen[str], draw: random.Random) -> subprocess.Popen[str]:
        for number in _server(folder):
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(number, 0)  # PostgreSQL believes that it is alive until it is waited for
        place.machines.wait_for(lambda: not _server(folder))
        time.sleep(draw.uniform(0.1, 1))
        again.append(postgres.start(folder))
        place.machines.wait_for(lambda: place.count() >= 0)
        return search

    try:
        with postgres.server(folder) as url:
            return struck(strike, renew=lambda: postgres.clear(url))(part, folder, count, draw, url)
    finally:
        for process in again:
            process.terminate()
            process.wait()


def _server(folder: Path) -> list[int]:
    """The processes of the database server in a folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").readlink() == folder / "data" and (process / "cmdline").read_bytes():
                found.append(int(process.name))
        except OSError:
            continue
    return found


def _mixed(part: str, folder: Path, count: int, draw: random.Random) -> Row:
    """Nothing is killed: two models, a search on each, again and again; no search runs on the other's model."""
    stored = 0
    with opened(folder) as place:
        other = place.machines.worker(3, env={"NUMPY_DEVICE": "Other"})
        place.machines.wait_for(lambda: "serves" in place.machines.said(3), other)
        for number in range(max(1, count // _EACH)):
            searches = []
            for model in ("tests-numpy-1cu-1g", "tests-other-1cu-1g"):
                place.database = folder / f"{model}-{number}.db"
                searches.append((model, place.search(40, "-d", model)))
            for model, search in searches:
                _, errors = search.communicate(timeout=300)
                assert search.returncode == 0, errors
                place.database = folder / f"{model}-{number}.db"
                hosts = {json.loads(text)["host"] for (text,) in place.ask("SELECT environment FROM trials")}
                if place.machines.apart:
                    assert ("machine-3" in hosts) == ("other" in model), hosts
                    assert len(hosts) == 1 or "other" not in model, hosts
                stored += place.count()
    return part, 0, 0, stored, 0, 0, "all", ""


PARTS: dict[str, Callable[[str, Path, int, random.Random], Row]] = {
    "worker": struck(_worker),
    "device": struck(_device),
    "scheduler": struck(_scheduler),
    "driver": struck(_driver),
    "postgres": _postgres,
    "elastic": struck(_elastic),
    "mixed": _mixed,
}
