"""Kills searches at random moments and checks that nothing is lost and nothing is left.

    python benchmarks/sigkill.py [--searches 200] [--seed 1]

Every search works on one database and one study of 2,000 configurations on the CPU device; some of them never
end, and some bring their worker down. Each search is killed with SIGKILL at a random moment
of its first seconds.
After each: no process of it lives two seconds later, the database passes SQLite's integrity check, and every
trial that the search had announced as finished is stored. A last search is left to end by itself.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
from autotune.result import Budget
path, database, seed, trials = sys.argv[1:]
def say(progress):
    print(progress.done, flush=True)
result = api.search(path, sampler="random", seed=int(seed), database=database, on_progress=say,
                    budget=Budget(trials=int(trials)))
print("ended", result.reused, result.reason, flush=True)
"""

MARK = "AUTOTUNE_SIGKILL_BENCHMARK"


def alive(mark: str) -> list[int]:
    """Return the processes that carry the mark in their environment, and are no zombies."""
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


def main() -> None:
    """Kill searches, check after each, and print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    kept, slowest, without = 0, 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "victim.toml").write_text(STUDY)
        (root / "victim.cl").write_text(KERNEL)
        database = root / "trials.db"
        command = [sys.executable, "-c", SEARCH, str(root / "victim.toml"), str(database)]
        for number in range(options.searches):
            mark = f"{os.getpid()}-{number}"
            environment = {**os.environ, MARK: mark, "TMPDIR": folder, "XDG_RUNTIME_DIR": folder}
            with subprocess.Popen(
                [*command, str(number), "100000"], env=environment, stdout=subprocess.PIPE, text=True
            ) as search:
                assert search.stdout is not None
                said = search.stdout.readline() if draw.random() < 0.8 else ""  # some die while they start
                time.sleep(draw.uniform(0.0, 2.0))
                search.send_signal(signal.SIGKILL)
                killed = time.monotonic()
                announced = len(set((said + search.stdout.read()).split()) - {"0"})
            while left := alive(mark):
                assert time.monotonic() - killed < 2.0, f"processes {left} outlived search {number}"
                time.sleep(0.01)
            slowest = max(slowest, time.monotonic() - killed)
            stored = finished(database) if database.exists() else 0
            assert stored >= kept + announced, f"search {number}: {kept} + {announced} finished, {stored} stored"
            without += stored == kept
            kept = stored
        environment = {**os.environ, "TMPDIR": folder, "XDG_RUNTIME_DIR": folder}
        last = subprocess.run(
            [*command, "0", "10"], env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=300
        )
        folders = list(root.glob("autotune-run-*"))
        assert not folders, folders
    print(f"{options.searches} searches killed, {without} of them before their first trial ended")
    print(f"{kept} trials finished, all stored; integrity check ok after each")
    print(f"no process left; the last one gone {slowest:.2f} s after the kill at the latest")
    print(f"last search, left alone: {last.stdout.strip().splitlines()[-1]}")


if __name__ == "__main__":
    main()
