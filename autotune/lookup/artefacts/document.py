"""The bests as one JSON document, for programs in other languages than C; `schema.json` here says what it holds."""

from __future__ import annotations

import json
from typing import Any

from autotune.lookup.artefacts.catalogue import Artefact, Catalogue, Entry, left_out
from autotune.study import Argument, Buffer, Local, Scalar
from autotune.text import in_quotes, plain

VERSION = 1


def render(catalogue: Catalogue, *, embed: bool = False) -> Artefact:
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
        "default": _entry(catalogue.defaults[0]) if catalogue.defaults else None,
    }
    known = plain(found, nulls=True)
    text = in_quotes(json.dumps(known, indent=1, ensure_ascii=False, allow_nan=False), pairs=True)
    return Artefact(text + "\n", len(catalogue.entries), tuple(left_out(catalogue.refused)))


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
                "offset": None if launch.offset is None else list(launch.offset),
                "arguments": list(launch.arguments),
                "counted": {launch.arguments[at]: _argument(one) for at, one in launch.counted},
            }
            for launch in entry.plan.launches
        ],
        "order": list(entry.plan.order) or list(range(len(entry.plan.launches))),
        "arguments": {name: _argument(argument) for name, argument in entry.plan.arguments.items()},
        "ends": entry.ends,
        "time_ns": best.time_ns,
        "interval_ns": None if best.interval_ns is None else list(best.interval_ns),
        "driver": best.driver or None,
        "measured": best.measured or None,
        "trials": best.trials,
    }


def _argument(argument: Argument) -> dict[str, Any]:
    """Return the properties of an argument; for images, samplers and structs only their type."""
    if type(argument) is Buffer:
        extents, access = list(argument.allocate), argument.access
        return {"kind": "buffer", "type": argument.type, "access": access, "extents": extents, "bytes": argument.nbytes}
    if type(argument) is Local:
        return {"kind": "local", "type": argument.type, "extents": [argument.count], "bytes": argument.nbytes}
    if type(argument) is Scalar and isinstance(argument.value, int | float):
        return {"kind": "scalar", "type": argument.type, "value": argument.value}
    return {"kind": "other", "type": argument.type}
