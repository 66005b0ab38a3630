"""One JSON object, for programs."""

from __future__ import annotations

import json

from autotune.lookup.answer import Best
from autotune.ranking import confidence
from autotune.text import giga_rate, in_quotes


def render(best: Best) -> str:
    """Return one object: `configuration` is an object, times are in nanoseconds, null if nothing was measured.

    `interval_ns` holds the median in `confidence` per cent of cases.

    `options` are all build options: a `-D` for each choice, parameter and computed define, and the study's flags.
    `launches` are those of a run in order: `kernel`, `global`, and `local` and `offset`, null if the driver decides.
    """
    fields = {
        "study": best.study,
        "match": best.match.value,
        "configuration": dict(best.configuration),
        "options": best.options,
        "launches": [one.plain() for one in best.launches],
        "time_ns": best.time_ns,
        "interval_ns": best.interval_ns,
        "confidence": confidence(best.runs) if best.runs else None,
        "runs": best.runs,
        "gflops": None if best.time_ns is None else giga_rate(best.flops, best.time_ns),
        "notes": best.notes,
        "device": best.device,
        "size": dict(best.size),
        "choices": dict(best.choices),
        "measured_on": best.measured_on or None,
        "device_name": best.device_name or None,
        "measured_size": None if best.measured_size is None else dict(best.measured_size),
        "driver": best.driver or None,
        "measured": best.measured or None,
        "ties": best.ties,
        "trials": best.trials,
        "database": best.database,
    }
    text = json.dumps(fields, indent=2, ensure_ascii=False)
    if not text.replace("\n", "").isprintable():
        text = in_quotes(text, pairs=True)
    return text + "\n"
