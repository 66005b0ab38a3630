"""Look-ups over HTTP while a search runs, on loopback: rate, latency and memory, by one client process.

    python benchmarks/serve.py [--seconds 120] [--rate 200] [--requests 100000] [--connections 8] [--no-search]

    at a rate    so many requests a second for the time given, each at its instant whether or not those before it are
                 answered (open loop): latency counts from that instant, so that a stall is not hidden
    at the limit as fast as the connections go (closed loop), for the same time
    memory       resident size of the server before and after so many requests

Every second question is one of five, the rest are drawn from a thousand sizes, so that both what is kept and what is
looked up is measured. Prints JSON and writes it to results/serve.json.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.service import Server
from autotune.store import Store
from autotune.study import find_study, problem_key, space_hash
from tests.stored import DEVICE, ok, put

TRIALS = 500


def fill(database: str) -> None:
    """Store trials of matmul at one size, as searches on a GPU would have."""
    text, draw = find_study("matmul"), random.Random(1)
    key = problem_key(text, {"M": 1024, "N": 1024, "K": 1024}, {"T": "float"}, DEVICE.fingerprint)
    values = {name: entry["values"] for name, entry in text.table["parameters"].items()}
    made = {"options": [], "launches": [], "flops": 2.0**31, "bytes": None, "work": dict(text.table["work"])}
    trials = []
    for _ in range(TRIALS):
        configuration = {name: draw.choice(listed) for name, listed in values.items()}
        time_ns = draw.randint(10_000, 100_000)
        trials.append(replace(ok(configuration, *(time_ns + step for step in range(20))), made=made))
    default = {name: entry["default"] for name, entry in text.table["parameters"].items()}
    trials.append(replace(ok(default, *range(5_000, 5_020)), made=made))
    with Store.open(database) as store:
        put(store, trials, key=key, environment={"space": space_hash(text)})


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str, int]]:
    """Yield URL, token and process number of a server with 501 trials stored."""
    database = str(folder / "a.db")
    fill(database)
    words = [sys.executable, "-m", "autotune", "serve", "--port=0", f"--db={database}"]
    server = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(folder)})
    assert server.stderr is not None
    url = token = ""
    for line in server.stderr:
        url = found[1] if (found := re.search(r" at (http://\S+)", line)) else url
        if found := re.search(r"token=(\S+)", line):
            token = found[1]
            break
    drain = threading.Thread(target=server.stderr.read, daemon=True)
    drain.start()  # a full pipe would stop it
    try:
        yield url, token, server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


class Connection:
    """One connection that is kept, and asks one thing at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str) -> int:
        """Return the status of the answer, having read all of it."""
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None, head
        await reader.readexactly(int(length[1]))
        return int(head[9:12])


def questions() -> Iterator[str]:
    """Yield paths: every second one of five, the rest of a thousand."""
    draw = random.Random(2)
    for turn in itertools.count():
        size = 1024 if turn % 2 else draw.randint(1, 1000)
        format = ("json", "header", "defines", "toml", "shell")[draw.randrange(5)] if turn % 2 else "json"
        yield f"/v1/best?study=matmul&device={DEVICE.fingerprint}&size={size}&format={format}"


async def at_rate(port: int, rate: float, seconds: float, connections: int) -> dict[str, Any]:
    """Ask at fixed instants; latency counts from the instant at which a question was due."""
    free: asyncio.Queue[Connection] = asyncio.Queue()
    for _ in range(connections):
        free.put_nowait(Connection(port))
    took: list[float] = []
    wrong = 0

    async def one(path: str, due: float) -> None:
        nonlocal wrong
        connection = await free.get()
        wrong += await connection.ask(path) != 200
        took.append(time.perf_counter() - due)
        free.put_nowait(connection)

    began, paths, tasks = time.perf_counter(), questions(), set()
    for number in range(int(rate * seconds)):
        due = began + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        task = asyncio.create_task(one(next(paths), due))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    return summary(took, time.perf_counter() - began, wrong)


async def at_limit(port: int, seconds: float, connections: int, most: int | None = None) -> dict[str, Any]:
    """Ask on each connection as soon as the last question is answered."""
    took: list[float] = []
    wrong, paths = 0, questions()
    until = time.perf_counter() + seconds

    async def one() -> None:
        nonlocal wrong
        connection = Connection(port)
        while time.perf_counter() < until and (most is None or len(took) < most):
            began = time.perf_counter()
            wrong += await connection.ask(next(paths)) != 200
            took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(connections)))
    return summary(took, time.perf_counter() - began, wrong)


def summary(took: list[float], seconds: float, wrong: int) -> dict[str, Any]:
    """Return rate and latencies in ms."""
    ordered = sorted(took)
    ms = {
        f"p{share}_ms": round(1e3 * ordered[min(len(ordered) - 1, int(len(ordered) * share / 100))], 3)
        for share in (50, 99)
    }
    return {
        "requests": len(took),
        "wrong": wrong,
        "per_s": round(len(took) / seconds, 1),
        **ms,
        "max_ms": round(1e3 * ordered[-1], 3),
    }


def resident_kib(pid: int) -> int:
    """Return the resident size of a process."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--no-search", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "serve.json")
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="autotune-benchmark-") as folder,
        serving(Path(folder)) as (url, token, pid),
    ):
        port, server = int(url.rpartition(":")[2]), Server(url, token, cache=False)
        search = None
        if not asked.no_search:
            most = {"seconds": 2 * asked.seconds + 600}
            search = server.submit("matmul", size={"M": 128, "N": 128, "K": 128}, budget=most, sampler="random")["id"]
        asyncio.run(at_limit(port, 5, asked.connections))  # warm
        result: dict[str, Any] = {
            "python": platform.python_version(),
            "cpus": os.cpu_count(),
            "search": search is not None,
        }
        result["load_1m"] = os.getloadavg()[0]
        result["at_rate"] = asyncio.run(at_rate(port, asked.rate, asked.seconds, asked.connections))
        result["at_limit"] = asyncio.run(at_limit(port, asked.seconds, asked.connections))
        before = resident_kib(pid)
        memory = asyncio.run(at_limit(port, 3600, asked.connections, asked.requests))
        result["memory"] = {"requests": memory["requests"], "before_kib": before, "after_kib": resident_kib(pid)}
        if search is not None:
            done = sum(server.find(search)["outcomes"].values())
            result["trials_meanwhile"] = done
            server.stop(search)
    print(json.dumps(result, indent=2))
    asked.out.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
