"""Kills a server while searches run and wait: no finished trial is lost, the queue is complete, no process is left.

    python benchmarks/serve_sigkill.py [--kills 50] [--minutes 120] [--seed 1] [--save]

Ten users send a search each at once; then another one is sent before every third kill. The server is killed with
SIGKILL, often while a search is at work, and started again on the same database. After each kill: none of its processes
lives five seconds later, the database passes SQLite's integrity check, every trial that an event reported is stored,
and everything that was answered with 202 is stored in its user's order. In the end the server is left alone until all
have ended. Exit code 1 if any of this does not hold. `--save` writes benchmarks/results/serve-sigkill.json.
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
from contextlib import closing
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from autotune.service import Server
from autotune.store import ServerStore
from benchmarks import tables
from benchmarks.sigkill import KERNEL, MARK, STUDY, alive, finished

USERS = 10
TRIALS = 8


class Place:
    """A database with ten users, and what must be in it."""

    def __init__(self, root: Path) -> None:
        self.root, self.database, self.kept = root, root / "a.db", 0
        self.study = root / "victim.toml"
        self.study.write_text(
            STUDY.replace('"GOOD", "SLOW", "WRONG", "SEGFAULT", "ENDLESS"', '"GOOD", "SLOW", "WRONG"')
        )
        (root / "victim.cl").write_text(KERNEL)
        with ServerStore.open(str(self.database)) as store:
            self.users = {f"user{number}": store.add_token(f"user{number}", "run", None) for number in range(USERS)}
        self.sent: dict[str, list[str]] = {user: [] for user in self.users}

    def start(self, mark: str) -> tuple[subprocess.Popen[str], str]:
        """Start a server; return it and its URL once it takes requests."""
        environment = {**os.environ, MARK: mark, "TMPDIR": str(self.root), "AUTOTUNE_LOCKS": str(self.root)}
        words = [
            sys.executable,
            "-m",
            "autotune",
            "serve",
            "--port",
            "0",
            "--name",
            "bench",
            "--db",
            str(self.database),
        ]
        server = subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True)
        assert server.stderr is not None
        for line in server.stderr:
            if found := re.search(r" at (http://\S+)", line):
                threading.Thread(target=server.stderr.read, daemon=True).start()
                return server, found[1]
        raise AssertionError(f"the server ended with {server.wait()}")

    def send(self, url: str, user: str, seed: int) -> None:
        """Send a search; it counts as sent once it is answered."""
        server = Server(url, self.users[user], cache=False)
        told = server.submit(self.study, budget={"trials": TRIALS}, sampler="random", seed=seed)
        self.sent[user].append(told["id"])

    def at_work(self) -> bool:
        """Whether a recorded trial has not ended."""
        with closing(sqlite3.connect(self.database)) as connection:
            return connection.execute("SELECT 1 FROM trials WHERE outcome = 'pending'").fetchone() is not None

    def check(self, mark: str, announced: int) -> float:
        """Assert that no process is left and nothing is lost; return the seconds until the last process was gone."""
        began = time.monotonic()
        while left := alive(mark):
            assert time.monotonic() - began < 5.0, f"processes {left} outlived {mark}"
            time.sleep(0.01)
        gone_s = time.monotonic() - began
        stored = finished(self.database)
        assert stored >= self.kept + announced, f"{mark}: {self.kept} + {announced} finished, {stored} stored"
        self.kept = stored
        with closing(sqlite3.connect(self.database)) as connection:
            rows = connection.execute("SELECT uuid, asked_by, state FROM submissions ORDER BY id").fetchall()
        for user, sent in self.sent.items():
            there = [uuid for uuid, asked_by, _ in rows if asked_by == user]
            assert [uuid for uuid in there if uuid in sent] == sent, f"{mark}: of {user}'s searches some are gone"
        return gone_s


class Watch(threading.Thread):
    """Counts the trials that the events of a search report."""

    def __init__(self, url: str, token: str, search: str) -> None:
        super().__init__(daemon=True)
        self.server, self.search, self.trials = Server(url, token, cache=False, tell=lambda _: None), search, 0
        self.first = threading.Event()
        self.start()

    def run(self) -> None:
        try:
            for kind, told in self.server.events(self.search):
                if kind == "progress" and told["trial"] is not None and told["phase"] == "search":
                    self.trials += 1
                    self.first.set()
        except Exception:  # the server was killed, as intended
            return
        finally:
            self.first.set()


def running(url: str, token: str) -> str | None:
    """Return the search that runs."""
    return next((str(one["id"]) for one in Server(url, token, cache=False).home()["running"]), None)


def kill(place: Place, number: int, draw: random.Random) -> dict[str, Any]:
    """Start the server, send something, kill it, and check what is left."""
    mark = f"{os.getpid()}-{number}"
    server, url = place.start(mark)
    token = place.users["user0"]
    if number == 0:
        senders = [threading.Thread(target=place.send, args=(url, user, 0)) for user in place.users]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join()
    elif number % 3 == 0:
        place.send(url, draw.choice(list(place.users)), number)
    watch = None
    if draw.random() < 0.6:
        until = time.monotonic() + 90
        while (search := running(url, token)) is None and time.monotonic() < until:
            time.sleep(0.1)
        if search is not None:
            watch = Watch(url, token, search)
            watch.first.wait(90)
    time.sleep(draw.uniform(0.0, 2.0))
    at_work = place.at_work()
    server.send_signal(signal.SIGKILL)
    server.wait()
    announced = watch.trials if watch is not None else 0
    return {"gone_s": place.check(mark, announced), "announced": announced, "at_work": at_work}


def settle(place: Place) -> dict[str, int]:
    """Leave a server alone until all searches have ended; return how many ended in each state."""
    server, url = place.start(f"{os.getpid()}-last")
    client = Server(url, place.users["user0"], cache=False)
    states: dict[str, int] = {}
    for search in (search for sent in place.sent.values() for search in sent):
        while (state := client.find(search)["state"]) in ("queued", "running", "stopping"):
            time.sleep(0.5)
        states[state] = states.get(state, 0) + 1
    server.send_signal(signal.SIGTERM)
    server.wait(60)
    place.check(f"{os.getpid()}-last", 0)
    return states


COLUMNS = (
    "kills", "while a trial ran", "searches sent", "ended as done", "trials announced", "stored", "lost",
    "slowest process gone, s", "amiss",
)  # fmt: skip


def run(place: Place, most: int, minutes: float, draw: random.Random) -> tuple[Any, ...]:
    """Kill this often, or until the time is over; return the row, whose last cell says what did not hold."""
    kills: list[dict[str, Any]] = []
    states: dict[str, int] = {}
    amiss, until = "", time.monotonic() + 60 * minutes
    try:
        while len(kills) < most and time.monotonic() < until:
            began = time.monotonic()
            kills.append(kill(place, len(kills), draw))
            print(len(kills), kills[-1], place.kept, f"{time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        states = settle(place)
        sent = sum(map(len, place.sent.values()))
        assert states == {"done": sent}, f"not all were done: {states}"
    except AssertionError as error:
        amiss = str(error) or "an assertion failed"
    slowest = max((one["gone_s"] for one in kills), default=0.0)
    return (
        len(kills), sum(one["at_work"] for one in kills), sum(map(len, place.sent.values())), states.get("done", 0),
        sum(one["announced"] for one in kills), place.kept, 0 if not amiss else "?", f"{slowest:.2f}", amiss,
    )  # fmt: skip


def main() -> int:
    """Parse, kill, print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=120, help="no kill begins later than this")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autotune-benchmark-") as folder:
        row = run(Place(Path(folder)), asked.kills, asked.minutes, random.Random(asked.seed))
    for name, cell in zip(COLUMNS, row, strict=True):
        print(f"{name:28} {cell}")
    if asked.save:
        question = "What is lost if the server is killed while searches run and wait?"
        command = "python benchmarks/serve_sigkill.py " + " ".join(sys.argv[1:])
        tables.save("serve-sigkill", question=question, command=command, columns=COLUMNS, rows=[row])
    return int(bool(row[-1]))


if __name__ == "__main__":
    raise SystemExit(main())
