"""Kernel Tuner's cache: a JSON object whose `cache` holds one entry per configuration, times in milliseconds.

The tool appends to the file as it runs, and may leave it open: without its last two braces, or within an entry. A
failure is a word in `time`. The `time` of a success is the mean of its `times`, and the tool ranks by it.
Source: https://kerneltuner.github.io/kernel_tuner/stable/cache_files.html and `kernel_tuner/util.py` (version 1.5).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO, Any

from autotune.exchange.document import Document, Entry, listed, moment, nanoseconds, table, text, unknown, values
from autotune.exchange.recording import MS_NS, Recording, first_ns, instant, settled, verbatim
from autotune.model import Outcome, Trial, Value

FORMAT = "kernel-tuner"

FAILURES = {
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "RuntimeFailedConfig": Outcome.LAUNCH_ERROR,
    "ErrorConfig": Outcome.LAUNCH_ERROR,
}
NEVER_RAN = "InvalidConfig"
"""Marks a configuration that the restrictions exclude."""

ERROR_TIME = 1e20
"""The time, in milliseconds, that marks a failure in the caches of older versions."""


class KernelTuner:
    """Reads the cache."""

    about = "a cache of Kernel Tuner"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """Whether it holds a cache and the names of its parameters."""
        return "cache" in document and "tune_params_keys" in document

    def read(self, document: Mapping[str, Any]) -> Document:
        """Return its trials."""
        keys = listed(document.get("tune_params_keys"), "tune_params_keys")
        names = [text(name, "tune_params_keys") for name in keys]
        found = Document(
            device=text(document.get("device_name"), "device_name"),
            kernel=text(document.get("kernel_name"), "kernel_name"),
            header=unknown(document, ["cache"]),
        )
        problem = document.get("problem_size")
        told = problem if isinstance(problem, list) else [problem]
        extents = [extent for extent in told if type(extent) is int]
        if len(extents) == len(told):
            found.extents = extents
        for key, told in table(document.get("cache"), "cache").items():
            _take(found, names, table(told, f"cache.{key:.80}"), f"cache.{key:.80}")
        return found


def _take(found: Document, names: Sequence[str], told: Mapping[str, Any], where: str) -> None:
    """Add an entry of the cache to the document, or count why it is left out."""
    configuration = values({name: told.get(name) for name in names}, where)
    words = [told.get("__error__"), told.get("time")]
    word = next((word for word in words if isinstance(word, str)), None)
    rest = unknown(told, names)
    if word == NEVER_RAN:
        found.left_out["excluded by the tool's restrictions, never run"] += 1
        return
    if "time" not in told and word is None:
        found.left_out["without a time"] += 1
        return
    time_ns = None
    outcome = FAILURES.get(word or "", Outcome.LAUNCH_ERROR)
    if word not in FAILURES:
        time_ns = nanoseconds(told["time"], MS_NS, f"{where}.time")
        is_error = isinstance(told["time"], int | float) and told["time"] >= ERROR_TIME
        outcome = Outcome.LAUNCH_ERROR if is_error else Outcome.OK
    taken = moment(told.get("timestamp"))
    found.add(Entry(configuration, outcome, None if outcome.failed else time_ns, taken, rest))


def closed(text: str) -> tuple[dict[str, Any], int]:
    """Return the cache that was left open, and how many entries at its end were cut off (0 or 1).

    Raises ValueError if it cannot be closed.
    """
    whole = text.rstrip().rstrip(",")
    for attempt, cut in ((whole, 0), (whole[: max(whole.rfind("\n"), 0)].rstrip().rstrip(","), 1)):
        try:
            found = json.loads(attempt + "}}")
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict) and isinstance(found.get("cache"), dict):
            return found, cut
    raise ValueError("is not a cache that was left open")


# Out -------------------------------------------------------------------------------------------------------

_WORDS = {Outcome.COMPILE_ERROR: "CompilationFailedConfig"}


def write(recordings: Sequence[Recording], out: IO[str]) -> Counter[str]:
    """Write the one problem as a cache that Kernel Tuner replays. Trials that were stopped early have no time there."""
    (recording,) = recordings
    trials, left_out = settled(recording)
    fixed, written = _theirs(trials, recording.parameters)
    own = {
        "device_name": recording.device_name,
        "kernel_name": recording.entry,
        "problem_size": list(recording.key.size.values()),
        "objective": "time",
    }
    head = recording.under(own, FORMAT) | {
        "tune_params_keys": [*recording.parameters, *fixed],
        "tune_params": {
            name: [written.get((name, value), value) for value in values]
            for name, values in recording.parameters.items()
        }
        | {name: [value] for name, value in fixed.items()},
    }
    out.write(json.dumps(head, indent="")[: -len("\n}")] + ',\n"cache": {')
    for place, trial in enumerate(trials):
        ours = {name: written.get((name, value), value) for name, value in trial.configuration.items()}
        key = ",".join(str(value) for value in (*(ours[name] for name in recording.parameters), *fixed.values()))
        out.write(("," if place else "") + "\n" + json.dumps({key: _entry(trial, ours)})[1:-1])
    out.write("}\n}\n")
    return left_out


def _theirs(
    trials: Sequence[Trial], ours: Mapping[str, object]
) -> tuple[dict[str, Any], dict[tuple[str, Value], Value]]:
    """Return the parameters that only imported files have, with one value throughout.

    Also return, by name and value, how those files wrote the study's values, if in another way.
    """
    told = [found[1] if (found := verbatim(trial, FORMAT)) is not None else {} for trial in trials]
    fixed = [{name: value for name, value in entry.items() if name not in ours} for entry in told]
    written = {
        (name, trial.configuration[name]): value
        for trial, entry in zip(trials, told, strict=True)
        for name, value in entry.items()
        if name in trial.configuration
    }
    return fixed[0] if fixed and all(entry == fixed[0] for entry in fixed) else {}, written


def _entry(trial: Trial, configuration: Mapping[str, Any]) -> dict[str, Any]:
    if (told := verbatim(trial, FORMAT)) is not None:
        return {**configuration, **told[1], **told[0]}
    measured = trial.measurement
    timed: dict[str, Any] = {"time": _WORDS.get(trial.outcome, "RuntimeFailedConfig")}
    if trial.outcome is Outcome.OK and measured is not None:
        timed = {"time": first_ns(trial) / MS_NS, "times": [ns / MS_NS for ns in measured.samples_ns]}
    return {
        **configuration,
        **timed,
        "compile_time": trial.build_s * 1e3,
        "verification_time": trial.verify_s * 1e3,
        "benchmark_time": trial.time_s * 1e3,
        "strategy_time": 0,
        "framework_time": 0,
        "timestamp": instant(trial),
    }
