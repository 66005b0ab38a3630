"""Wisdom of kernel_launcher: JSON lines; a head, then the best of each device and size, times in milliseconds.

Source: https://github.com/KernelTuner/kernel_launcher, `python/kernel_launcher/wisdom.py` (format 1.0).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import IO

from autotune.exchange.recording import MS_NS, Recording, instant

MOST_SIZES = 3
"""How many extents of a problem the program compares."""


def write(recordings: Sequence[Recording], out: IO[str]) -> Counter[str]:
    """Write the best of each problem. Results of other tools do not count before they are measured here."""
    first = recordings[0]
    names = list(first.parameters)
    head = {"version": "1.0", "objective": "time", "tunable_parameters": names, "key": first.entry}
    out.write(json.dumps(head) + "\n")
    left_out: Counter[str] = Counter()
    for recording in recordings:
        best = recording.best
        told = len(recording.own) + len(recording.imported)
        left_out["that are not the best of their device and size"] += told - (best is not None)
        if best is None:
            continue
        sizes = list(recording.key.size.values())
        record = {
            "config": [best.configuration[name] for name in names],
            "problem_size": sizes[:MOST_SIZES],
            "time": best.time_ns / MS_NS,
            "environment": {
                "device_name": recording.device_name,
                "date": instant(best),
                "driver_version": best.driver,
                "sizes": dict(recording.key.size),
                "choices": dict(recording.key.choices),
            },
        }
        out.write(json.dumps(record) + "\n")
    return left_out
