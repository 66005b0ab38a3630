"""How long the pages of the service take with many stored trials: makes such a database, then asks for each page.

    python benchmarks/pages.py make many.db --trials 1000000
    python benchmarks/pages.py time many.db [--save]

The database is made of the bundled studies with invented times: 4 devices, 10 sizes, a fifth of all trials in one
search, 1 in 12 of them failed, some searches in several parts. `time` has exit code 1 if a page takes more CPU time
than the target; `--save` writes results/pages.json.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sqlite3
import statistics
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from autotune.identity import ProblemKey, canonical, digest, key_columns
from autotune.model import DeviceInfo
from autotune.store import Store, listing, standings
from autotune.store.records import device_columns, instant, ordered
from autotune.study import default_choices, default_size, find_study, parameter_values, space_hash
from benchmarks import tables

STUDIES = ("sgemm", "matmul", "product_sum", "element_mult", "matmul_rect")
FAILURES = (
    ("compile_error", "error: use of undeclared identifier 'acc' in line {}"),
    ("launch_error", "the kernel needs {} bytes of local memory, the device has 49152"),
    ("wrong_result", "C: {} of 1048576 values are wrong"),
    ("timeout", "a run took longer than {} ms"),
    ("crash", "the worker process ended with signal {}"),
)
SIZES = tuple(2**power for power in range(7, 17))


def device(name: str, vendor: str, units: int, memory: int, driver: str) -> DeviceInfo:
    """A device for the invented measurements."""
    return DeviceInfo(
        0, name, vendor, "OpenCL", driver, "gpu", "3.0", units, memory * 2**30, 48 * 2**10, 1024, (1024, 1024, 64), 1980
    )


DEVICES = (
    device("NVIDIA H200", "NVIDIA Corporation", 132, 140, "580.95"),
    device("NVIDIA A100-SXM4-80GB", "NVIDIA Corporation", 108, 80, "580.95"),
    device("AMD Instinct MI250X", "Advanced Micro Devices, Inc.", 110, 64, "6.2"),
    device("NVIDIA GeForce RTX 3090", "NVIDIA Corporation", 82, 24, "560.35"),
)


class Maker:
    """Fills a database; the same seed gives the same database."""

    def __init__(self, connection: sqlite3.Connection, seed: int) -> None:
        self.connection = connection
        self.rng = random.Random(seed)
        self.devices: dict[str, int] = {}
        self.made = 0
        self.now = datetime(2026, 11, 1, tzinfo=UTC)

    def problem(self, study: str, info: DeviceInfo, size: int, trials: int, parts: int = 1) -> None:
        """Add a problem with its searches."""
        text = find_study(study)
        whole = dict.fromkeys(default_size(text), size)
        key = ProblemKey(study, text.kernel_hash, text.study_hash, info.fingerprint, whole, default_choices(text))
        columns = key_columns(key)
        problem = self.insert("problems", columns)
        weights = {name: self.rng.random() ** 3 for name in parameter_values(text)}
        favourite = {name: self.rng.choice(values) for name, values in parameter_values(text).items()}
        for _ in range(parts):
            self.search(problem, info, text, weights, favourite, size, trials // parts)

    def search(
        self,
        problem: int,
        info: DeviceInfo,
        text: Any,
        weights: Mapping[str, float],
        favourite: Mapping[str, Any],
        size: int,
        trials: int,
    ) -> None:
        """Add a search that ended, its trials and five re-timings."""
        started = self.now
        environment = ordered({"autotune": "0.2.0", "space": space_hash(text), "asked_by": "ana"})
        search = self.insert(
            "searches",
            {"uuid": uuid.UUID(int=self.rng.getrandbits(128)).hex, "problem_id": problem, "generation": 0,
             "sampler": "bayes", "seed": 1, "environment": environment, "started": instant(started),
             "ended": instant(started + timedelta(seconds=0.4 * trials)), "reason": f"{trials} trials done"},
        )  # fmt: skip
        known = self.devices.get(info.name) or self.insert("devices", device_columns(info))
        self.devices[info.name] = known
        self.insert("search_devices", {"search_id": search, "device_id": known})
        values = parameter_values(text)
        rows = list(self.trials(search, known, info, values, weights, favourite, size, trials))
        names = list(rows[0])
        marks = ", ".join("?" for _ in names)
        first = self.connection.execute("SELECT COALESCE(MAX(id), 0) FROM trials").fetchone()[0]
        self.connection.executemany(
            f"INSERT INTO trials ({', '.join(names)}) VALUES ({marks})", [list(row.values()) for row in rows]
        )
        best = sorted(((row["time_ns"], place) for place, row in enumerate(rows) if row["outcome"] == "ok"))[:5]
        for median, place in [*best, *([(rows[0]["time_ns"], 0)] if rows[0]["outcome"] == "ok" else [])]:
            samples = [round(median * self.rng.gauss(1.0, 0.01)) for _ in range(51)]
            self.insert(
                "retimings",
                {"uuid": uuid.UUID(int=self.rng.getrandbits(128)).hex, "trial_id": first + place + 1,
                 "driver": info.driver, "time_ns": sorted(samples)[25], "samples_ns": json.dumps(samples),
                 "warmup_ns": "[]", "cache": "warm", "taken": instant(self.now)},
            )  # fmt: skip
        self.made += trials
        self.now += timedelta(minutes=1)

    def trials(
        self,
        search: int,
        device_id: int,
        info: DeviceInfo,
        values: Mapping[str, Sequence[Any]],
        weights: Mapping[str, float],
        favourite: Mapping[str, Any],
        size: int,
        trials: int,
    ) -> Iterator[dict[str, Any]]:
        """Yield the columns of invented trials, which slowly get faster."""
        for place in range(trials):
            drawn = {
                name: favourite[name] if self.rng.random() < 0.3 * place / trials else self.rng.choice(list(known))
                for name, known in values.items()
            }
            far = sum(
                weights[name] * abs(list(values[name]).index(drawn[name]) - list(values[name]).index(favourite[name]))
                for name in values
            )
            time = 1e3 * size * math.exp(0.4 * far) * self.rng.gauss(1.0, 0.02)
            samples = [round(time * self.rng.gauss(1.0, 0.01)) for _ in range(15)]
            begun = self.now + timedelta(seconds=0.4)
            self.now = begun
            failed = self.rng.random() < 1 / 12
            outcome, reason = self.rng.choice(FAILURES) if failed else ("ok", "")
            yield {
                "uuid": uuid.UUID(int=self.rng.getrandbits(128)).hex, "search_id": search, "device_id": device_id,
                "configuration": ordered(drawn), "configuration_hash": digest(drawn), "outcome": outcome,
                "reason": reason.format(self.rng.randrange(10**5)),
                "time_ns": None if failed else float(sorted(samples)[7]),
                "samples_ns": None if failed else json.dumps(samples), "warmup_ns": None if failed else "[]",
                "cache": None if failed else "warm", "max_error": None if failed else 0.01,
                "build_s": self.rng.random() / 4, "verify_s": 0.01, "time_s": 0.02,
                "build_log": "", "binary_hash": "", "driver": info.driver, "device_index": 0,
                "started": instant(begun), "finished": instant(begun + timedelta(seconds=0.35)), "environment": "{}",
                "made": canonical({"bytes": None, "flops": None, "launches": [], "options": [], "work": {}}),
            }  # fmt: skip

    def insert(self, table: str, columns: Mapping[str, Any]) -> int:
        """Insert a row and return its number."""
        marks = ", ".join("?" for _ in columns)
        found = self.connection.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})", list(columns.values())
        )
        return int(found.lastrowid or 0)


def make(path: Path, trials: int, seed: int = 0) -> None:
    """Write a database with this many trials."""
    Store.open(str(path)).close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous=OFF")
    connection.execute("BEGIN")
    maker = Maker(connection, seed)
    rest = [(study, info, size) for study in STUDIES for info in DEVICES for size in SIZES]
    maker.problem(*rest.pop(3), trials // 5)
    each = trials * 4 // 5 // len(rest)
    for place, (study, info, size) in enumerate(rest):
        maker.problem(study, info, size, max(1, each), parts=3 if place % 7 == 0 and each > 30 else 1)
    connection.execute("COMMIT")
    connection.close()
    summarise(path)


def summarise(path: Path) -> None:
    """Make the summary that look-ups and pages read; a search writes it as it goes."""
    with Store.open(str(path)) as store, store._writing() as writing:
        standings.build(writing)


PAGES = (
    "/", "/now", "/best", "/best?study=matmul", "/searches", "/searches/LARGE", "/compare",
    "/compare?study=sgemm&by=device", "/compare?study=sgemm&by=TILE_M", "/trials", "/trials?outcome=crash",
    "/trials?study=matmul&device=DEVICE&outcome=wrong_result", "/trials?search=LARGE&outcome=timeout", "/trials/5",
    "/problems/1", "/problems/1/learned", "/problems/1/heat", "/submit", "/login",
)  # fmt: skip
"""`LARGE` stands for the search that has a fifth of all trials, `DEVICE` for a device model."""

REPEATS = 5


def ask(path: Path) -> dict[str, Any]:
    """Ask for each page; return the milliseconds of the server's CPU time, for the first time and in the median."""
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient

    from autotune.service import Config, create_app

    found: dict[str, Any] = {}
    app = create_app(Config(database=str(path), read_only=True))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        trials = sum(app.state.service.store.counts().values())
        large = listing.searches(app.state.service.store, problem=1)[0].uuid
        client.get("/problems/2/learned")  # imports Optuna, once in the life of a server
        for page in PAGES:
            address = page.replace("LARGE", large).replace("DEVICE", DEVICES[1].fingerprint)
            taken = []
            for _ in range(REPEATS):
                begun = time.process_time()
                answer = client.get(address, headers={"Accept": "text/html"})
                taken.append(1e3 * (time.process_time() - begun))
                assert answer.status_code == 200, (address, answer.text)
            found[page] = {"first_ms": taken[0], "median_ms": statistics.median(taken), "bytes": len(answer.content)}
    return {"trials": trials, "pages": found}


MOST_MS = 300
"""The most milliseconds of the server's CPU time for a page."""


def main() -> int:
    """Parse, and do what is asked; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "time"])
    parser.add_argument("database", type=Path)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    if given.what == "make":
        make(given.database, given.trials)
        return 0
    found = ask(given.database)
    print(f"{found['trials']:,} trials stored; milliseconds of CPU per page")
    for page, one in found["pages"].items():
        print(f"{page:60} first {one['first_ms']:7.1f}  median {one['median_ms']:7.1f}  {one['bytes'] / 1024:7.1f} KiB")
    if given.save:
        tables.save(
            "pages",
            question=f"What CPU does a page take with {found['trials']:,} trials stored?",
            command="python benchmarks/pages.py time many.db --save",
            columns=("page", "first time, ms", "median, ms", "KiB"),
            rows=[
                (page, round(one["first_ms"]), round(one["median_ms"]), round(one["bytes"] / 1024))
                for page, one in found["pages"].items()
            ],
            asked=f"{MOST_MS} ms",
        )
    return int(any(max(one["first_ms"], one["median_ms"]) > MOST_MS for one in found["pages"].values()))


if __name__ == "__main__":
    raise SystemExit(main())
