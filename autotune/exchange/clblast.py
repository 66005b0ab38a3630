"""JSON of CLBlast's tuners, and of CLTune, from which it came: a list of results, times in milliseconds.

It holds only results that passed, and every value is a whole number; everything said of the device is text. The tuners
of CLBlast and CLTune write a time with three digits. CLBlast's `scripts/database`, which gathers the files, reads the
keys that are written here.
Source: `PrintTimingsToFileAsJSON` in CLBlast's `src/tuning/tuning.cpp` (version 1.6); `PrintJSON` in CLTune's
`src/cltune.cc` (version 2.7).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import IO, Any

from autotune.errors import AutotuneError
from autotune.exchange.document import Document, Entry, listed, nanoseconds, one_kernel, table, text, unknown, values
from autotune.exchange.recording import MS_NS, Recording, first_ns, settled, verbatim
from autotune.model import DeviceInfo, Outcome, Trial

FORMAT = "clblast"


class Tuner:
    """Reads what CLBlast's tuners and CLTune both write."""

    about = "results of CLTune"
    marked = False  # whether it has keys that only CLBlast writes

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """Whether its results have parameters, and it has CLBlast's keys if, and only if, `marked`."""
        results = document.get("results")
        if not isinstance(results, list) or "device" not in document:
            return False
        first = results[0] if results else {"parameters": {}}
        marked = "clblast_device_name" in document or "kernel_family" in document
        return isinstance(first, dict) and "parameters" in first and marked == self.marked

    def read(self, document: Mapping[str, Any]) -> Document:
        """Return its trials."""
        found = Document(
            device=text(document.get("device"), "device"),
            kernel=text(document.get("kernel_family"), "kernel_family"),
            size=_sizes(document),
            element={code: kind for kind, code in PRECISIONS.items()}.get(str(document.get("precision", "")), ""),
            header=unknown(document, ["results"]),
        )
        kernels = set[str]()
        for place, entry in enumerate(listed(document.get("results"), "results")):
            where = f"results.{place}"
            told = table(entry, where)
            one_kernel(kernels, text(told.get("kernel"), f"{where}.kernel"))
            configuration = values(told.get("parameters"), f"{where}.parameters")
            time_ns = nanoseconds(told.get("time"), MS_NS, f"{where}.time")
            found.add(Entry(configuration, Outcome.OK, time_ns, None, unknown(told, ["parameters"])))
        return found


class CLBlast(Tuner):
    """Reads the files of CLBlast's tuners."""

    about = "results of a tuner of CLBlast"
    marked = True


def _sizes(document: Mapping[str, Any]) -> dict[str, int]:
    """Return the arguments that are sizes: `arg_m` as `m`."""
    found = {}
    for name, value in document.items():
        if name.startswith("arg_") and re.fullmatch(r"[0-9]{1,30}", str(value)):
            found[name.removeprefix("arg_")] = int(value)
    return found


# Out -------------------------------------------------------------------------------------------------------

PRECISIONS = {"half": "16", "float": "32", "double": "64", "float2": "3232", "double2": "6464"}


def write(recordings: Sequence[Recording], out: IO[str]) -> Counter[str]:
    """Write the one problem's verified trials as a tuner of CLBlast does; it has no failures and no text values."""
    (recording,) = recordings
    trials, left_out = settled(recording)
    passed = [trial for trial in trials if trial.outcome is Outcome.OK]
    left_out["failed, and no failure stands in this format"] += len(trials) - len(passed)
    whole = [trial for trial in passed if all(type(value) is int for value in trial.configuration.values())]
    left_out["with values that are no whole numbers"] += len(passed) - len(whole)
    if not whole:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.items() if count)
        what = f"none of its trials can be told in this format: {why or 'there is none'}"
        raise AutotuneError(what, where=recording.key.study, hint="--format csv tells them all")
    header = recording.under(_header(recording, whole), FORMAT)
    out.write(json.dumps(header, indent=2)[: -len("\n}")] + ',\n  "results": [')
    for place, trial in enumerate(whole):
        out.write(("," if place else "") + "\n    " + json.dumps(_result(trial, recording)))
    out.write("\n  ]\n}\n")
    return left_out


def _header(recording: Recording, trials: Sequence[Trial]) -> dict[str, str]:
    """Return the fields above the results, all of them text."""
    best = recording.best if recording.best in trials else None
    header = {
        "kernel_family": recording.key.study,
        "precision": PRECISIONS.get(recording.element, ""),
        "best_kernel": recording.entry if best else "",
        "best_time": f"{first_ns(best) / MS_NS:.6f}" if best else "",
        "best_parameters": " ".join(f"{name}={value}" for name, value in best.configuration.items()) if best else "",
    }
    header |= {f"arg_{name.lower()}": str(value) for name, value in recording.key.size.items()}
    return header | _device(recording.device, recording.device_name)


def _device(device: DeviceInfo | None, name: str) -> dict[str, str]:
    kind = "" if device is None else device.kind.upper()
    vendor = "" if device is None else device.vendor
    capability = "" if device is None else device.compute_capability
    return {
        "clblast_device_type": kind,
        "clblast_device_vendor": vendor,
        "clblast_device_architecture": f"SM{capability}" if capability else "",
        "clblast_device_name": name,
        "device": name,
        "platform_vendor": vendor,
        "platform_version": "" if device is None else device.platform,
        "device_vendor": vendor,
        "device_type": kind,
        "device_core_clock": "" if device is None else str(device.clock),
        "device_compute_units": "" if device is None else str(device.compute_units),
        "device_extra_info": "",
    }


def _result(trial: Trial, recording: Recording) -> dict[str, Any]:
    if (kept := verbatim(trial, FORMAT)) is not None:
        return {**kept[0], "parameters": {**trial.configuration, **kept[1]}}
    precision = PRECISIONS.get(recording.element)  # CLBlast's scripts require it in every result
    told = {} if precision is None else {"PRECISION": int(precision)}
    parameters = {**told, **trial.configuration}
    return {"kernel": recording.entry, "time": first_ns(trial) / MS_NS, "parameters": parameters}
