"""The same as one JSON document, for programs that are not C; `schema.json` beside this file says what it holds."""

from __future__ import annotations

import json
from typing import Any

from autotune.lookup.artefacts.catalogue import Catalogue, Entry
from autotune.study import Buffer, Local, Scalar
from autotune.text import in_quotes, plain

VERSION = 1


def render(catalogue: Catalogue, *, embed: bool = False) -> str:
    """Return one JSON object; `embed`: with the kernel's text in `source`."""
    study = catalogue.study
    found = {
        "format": "autotune-table",
        "version": VERSION,
        "study": study.name,
        "kernel_hash": study.text.kernel_hash,
        "study_hash": study.text.study_hash,
        "choices": dict(catalogue.choices),
        "sizes": list(study.sizes),
        "source": study.source if embed else None,
        "entries": [_entry(entry) for entry in catalogue.entries],
        "default": None if catalogue.default is None else _entry(catalogue.default),
    }
    known = plain(found, not_finite=lambda _: None)
    return in_quotes(json.dumps(known, indent=1, ensure_ascii=False, allow_nan=False), pairs=True) + "\n"


def _entry(entry: Entry) -> dict[str, Any]:
    best = entry.best
    return {
        "device": best.measured_on or None,
        "device_name": best.device_name or None,
        "architecture": entry.architecture or None,
        "size": dict(best.size),
        "configuration": dict(best.configuration),
        "options": list(entry.plan.options),
        "launches": [
            {
                "kernel": launch.entry,
                "global": list(launch.global_size),
                "local": None if launch.local_size is None else list(launch.local_size),
                "arguments": list(launch.arguments),
            }
            for launch in entry.plan.launches
        ],
        "arguments": {name: _argument(argument) for name, argument in entry.plan.arguments.items()},
        "time_ns": best.time_ns,
        "interval_ns": None if best.interval_ns is None else list(best.interval_ns),
        "driver": best.driver or None,
        "measured": best.measured or None,
        "trials": best.trials,
    }


def _argument(argument: object) -> dict[str, Any]:
    match argument:
        case Buffer(type=kind, allocate=extents, access=access, nbytes=nbytes):
            return {"kind": "buffer", "type": kind, "access": access, "extents": list(extents), "bytes": nbytes}
        case Local(type=kind, count=count, nbytes=nbytes):
            return {"kind": "local", "type": kind, "extents": [count], "bytes": nbytes}
        case Scalar(type=kind, value=value):
            return {"kind": "scalar", "type": kind, "value": value}
    raise TypeError(f"{argument!r} is no argument of a plan")
