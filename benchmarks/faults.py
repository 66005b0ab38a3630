"""Kernels that fail, as configurations among good ones: each costs one trial, and the device works afterwards.

    python benchmarks/faults.py [-d DEVICE]

Prints the outcome and the reason of every configuration, then searches a correct kernel on the same device.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import autotune
from autotune.store import Store

SOURCE = """
#define NONE 0
#define WILD_POINTER 1
#define ENDLESS_LOOP 2
#define LOCAL_MEMORY 3
#define OUT_OF_BOUNDS 4
#define WRONG 5
#define SYNTAX 6
#ifndef FAULT
#define FAULT NONE
#endif
#if FAULT == LOCAL_MEMORY
#define ROOM (LOCAL_BYTES / 4 + 65536)  // NVIDIA takes more than the 48 KiB that it reports
#else
#define ROOM 1
#endif
kernel void scale(const int N, global const float *x, global float *y)
{
    local float room[ROOM];
    const int i = get_global_id(0);
    room[get_local_id(0) % ROOM] = x[i % N];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i >= N) return;
    y[i] = 2 * x[i] + 0 * room[0];
#if FAULT == WILD_POINTER
    *(global float *)(((ulong)y & 0) + 0xdead0000ul + 64ul * i) = 1;
#elif FAULT == ENDLESS_LOOP
    while (x[i] < 2) y[i] += x[i] * 0 + y[i] * 0;
#elif FAULT == OUT_OF_BOUNDS
    y[i + 1] = 2 * x[i];
#elif FAULT == WRONG
    y[i] = 3 * x[i];
#elif FAULT == SYNTAX
    this is no statement;
#endif
}
"""


def study(faults: list[str]) -> autotune.Study:
    """Return a study of that kernel whose parameter FAULT has these values."""
    tables: dict[str, Any] = {
        "sizes": {"N": 100_000},
        "parameters": {"WG": {"values": [64, 128]}, "FAULT": {"values": faults}},
        "defines": {"LOCAL_BYTES": "local_memory"},
        "arguments": {
            "x": {"type": "float", "shape": ["N"], "access": "in"},
            "y": {"type": "float", "shape": ["N"], "access": "out"},
        },
        "launch": [{"entry": "scale", "global": ["round_up(N, WG)"], "local": ["WG"], "arguments": ["N", "x", "y"]}],
        "tolerance": {"relative": 1e-6},
    }
    return autotune.Study(name="faults", source=SOURCE, reference={"numpy": {"y": "2 * x"}}, **tables)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-d", "--device")
    device = parser.parse_args().device
    faults = ["NONE", "WILD_POINTER", "ENDLESS_LOOP", "LOCAL_MEMORY", "OUT_OF_BOUNDS", "WRONG", "SYNTAX"]
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "a.db")
        began = time.monotonic()
        result = autotune.search(study(faults), device=device, trials=14, sampler="grid", database=database)
        print(f"{result.trials} trials in {time.monotonic() - began:.1f} s; best {dict(result.best.configuration)}")
        with Store.open(database) as store:
            for row in reversed(store.history()):
                trial = row.trial
                name, group = trial.configuration["FAULT"], trial.configuration["WG"]
                print(f"{name:<14}{group:>4}  {trial.outcome:<14}{trial.reason}")
        again = autotune.search(study(["NONE"]), device=device, trials=2, sampler="grid", database=database, fresh=True)
        print(f"afterwards: {again.trials} trials, failures {dict(again.failures)}, best {again.best.time_ns:.0f} ns")


if __name__ == "__main__":
    main()
