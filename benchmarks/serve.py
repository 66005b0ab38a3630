"""Look-ups over HTTP while a search runs, on loopback: rate, latency and memory, by one client process.

    python benchmarks/serve.py [--seconds 120] [--rate 200] [--requests 100000] [--connections 8] [--no-search] [--save]
    python benchmarks/serve.py --beside TURNS [--trials 300] [--study matmul] [--size 2048] [--rate 200] [--save]

    at a rate    this many requests a second for the time given, each at its instant whether or not those before it are
                 answered (open loop): latency counts from that instant, so that a stall is not hidden
    at the limit as fast as the connections allow (closed loop), for the same time
    memory       resident size of the server before and after this many requests

With `--beside`: what look-ups at the rate cost a search. The same random trials run with and without them, in turns.

Every second question is one of five, the rest are drawn from a thousand sizes, so that both kept answers and new
look-ups are measured. Exit code 1 if an answer is not 200, or the memory grew. `--save` writes results/serve.json, or
serve-beside.json.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
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

sys.path.insert(0, str(Path(__file__).parent.parent))

from autotune.service import Server
from autotune.store import Store
from autotune.study import find_study, problem_key, space_hash
from benchmarks import tables
from tests.stored import DEVICE, ok, put

TRIALS = 500


def fill(database: str) -> None:
    """Store trials of matmul at one size, as searches on a GPU would have stored them."""
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
    drain.start()  # a full pipe would block the server
    try:
        yield url, token, server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(60)


class Connection:
    """One persistent connection that asks one question at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, path: str) -> int:
        """Return the status of the answer, after reading all of it."""
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
    """Ask on each connection as soon as its last question is answered."""
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


COLUMNS = ("way", "requests", "not 200", "per s", "p50, ms", "p99, ms", "max, ms", "server, MiB")

GROWN_KIB = 16 * 1024
"""The most that the server may grow over all requests for its memory to count as constant."""


def measure(folder: Path, asked: argparse.Namespace) -> tuple[list[tuple[Any, ...]], str, bool]:
    """Ask in each way; return the rows, a note, and whether everything was right."""
    with serving(folder) as (url, token, pid):
        port, server = int(url.rpartition(":")[2]), Server(url, token, cache=False)
        search = None
        if not asked.no_search:
            most = {"seconds": 2 * asked.seconds + 600}
            search = server.submit("matmul", size={"M": 128, "N": 128, "K": 128}, budget=most, sampler="random")["id"]
        asyncio.run(at_limit(port, min(5, asked.seconds), asked.connections))  # warm
        load, before = os.getloadavg()[0], resident_kib(pid)
        rows: list[tuple[Any, ...]] = []
        for way, asking in (
            (f"{asked.rate:g} a second", at_rate(port, asked.rate, asked.seconds, asked.connections)),
            ("at the limit", at_limit(port, asked.seconds, asked.connections)),
            ("many", at_limit(port, 3600, asked.connections, asked.requests)),
        ):
            rows.append((way, *asyncio.run(asking).values(), round(resident_kib(pid) / 1024, 1)))
            print(*rows[-1], file=sys.stderr, flush=True)
        grown, note = resident_kib(pid) - before, f"load of the machine before {load:.1f}"
        if search is not None:
            note += f"; {sum(server.find(search)['outcomes'].values())} trials of a search on the same CPU meanwhile"
            if server.find(search)["state"] == "running":
                server.stop(search)
    return rows, note, grown < GROWN_KIB and not any(row[2] for row in rows)


def searched_s(asked: argparse.Namespace, rate: float) -> tuple[float, int]:
    """Search on a separate server beside this many questions a second; return the seconds, and the answers."""
    answered = 0
    with tempfile.TemporaryDirectory(prefix="autotune-benchmark-") as folder, serving(Path(folder)) as (url, token, _):
        port, server = int(url.rpartition(":")[2]), Server(url, token, cache=False)
        size = dict.fromkeys(find_study(asked.study).table["sizes"], asked.size)
        budget = {"trials": asked.trials}
        name = server.submit(asked.study, size=size, budget=budget, sampler="random", seed=1)["id"]
        while (found := server.find(name))["state"] not in ("done", "failed", "stopped"):
            if rate:
                answered += asyncio.run(at_rate(port, rate, 1.0, asked.connections))["requests"]
            else:
                time.sleep(1)
    if found["state"] != "done":
        raise SystemExit(found["reason"])
    return found["result"]["elapsed_s"], answered


def beside(asked: argparse.Namespace) -> list[tuple[Any, ...]]:
    """Search in turns alone and beside questions, in alternating order; return a row for each turn, and the sums."""
    rows: list[tuple[Any, ...]] = []
    for turn in range(asked.beside):
        took = {rate: searched_s(asked, rate) for rate in ((0.0, asked.rate), (asked.rate, 0.0))[turn % 2]}
        (alone_s, _), (asked_s, answered) = took[0.0], took[asked.rate]
        rows.append((turn + 1, f"{alone_s:.2f}", f"{asked_s:.2f}", answered, asked_s / alone_s - 1))
        print(*rows[-1], file=sys.stderr, flush=True)
    alone, asking, answers = (sum(map(float, column)) for column in list(zip(*rows, strict=True))[1:4])
    rows.append(("all", f"{alone:.2f}", f"{asking:.2f}", round(answers), asking / alone - 1))
    return [(*row[:-1], f"{row[-1]:+.1%}") for row in rows]


BESIDE = ("turn", "search alone, s", "beside look-ups, s", "look-ups", "longer")


def main() -> int:
    """Parse, measure, print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--requests", type=int, default=100_000)
    parser.add_argument("--connections", type=int, default=8)
    parser.add_argument("--no-search", action="store_true")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--beside", type=int, default=0, metavar="TURNS")
    parser.add_argument("--trials", type=int, default=300)
    parser.add_argument("--study", default="matmul")
    parser.add_argument("--size", type=int, default=2048)
    asked = parser.parse_args()
    command = "python benchmarks/serve.py " + " ".join(sys.argv[1:])
    if asked.beside:
        rows = beside(asked)
        for row in (BESIDE, *rows):
            print("  ".join(f"{cell!s:>18}" for cell in row))
        if asked.save:
            question = f"What do {asked.rate:g} look-ups a second cost a search on the same machine?"
            tables.save("serve-beside", question=question, command=command, columns=BESIDE, rows=rows)
        return 0
    with tempfile.TemporaryDirectory(prefix="autotune-benchmark-") as folder:
        rows, note, is_well = measure(Path(folder), asked)
    for row in (COLUMNS, *rows):
        print("  ".join(f"{cell!s:>14}" for cell in row))
    print(note)
    if asked.save:
        question = "How fast are look-ups over HTTP on loopback, while a search runs?"
        tables.save("serve", question=question, command=command, columns=COLUMNS, rows=rows, note=note)
    return int(not is_well)


if __name__ == "__main__":
    raise SystemExit(main())
