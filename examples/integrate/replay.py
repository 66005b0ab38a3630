"""Replays stored measurements in Kernel Tuner: one of its strategies runs on the stored times, without a device.

python replay.py cache.json [STRATEGY]
"""

import json
import sys
from pathlib import Path

import kernel_tuner

cache = Path(sys.argv[1]).resolve()
told = json.loads(cache.read_text())
names = told["tune_params_keys"]
rows = (" and ".join(f"{name} == {row[name]!r}" for name in names) for row in told["cache"].values())
measured = " or ".join(f"({row})" for row in rows)
results, _ = kernel_tuner.tune_kernel(
    told["kernel_name"],
    "",
    told["problem_size"],
    [],
    told["tune_params"],
    restrictions=[measured],  # a trial that was stopped early has no time, and is not in the cache
    strategy=sys.argv[2] if len(sys.argv) > 2 else "brute_force",
    lang="opencl",
    cache=str(cache),
    simulation_mode=True,
    quiet=True,
)
passed = [result for result in results if isinstance(result["time"], float)]
best = min(passed, key=lambda result: result["time"])
print(f"{len(results)} evaluations, best {best['time']:g} ms with", *(f"{name}={best[name]}" for name in names))
