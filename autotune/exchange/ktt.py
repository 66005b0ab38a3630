"""KTT's JSON: metadata with the unit of time, and results with a status each.

Source: `Source/Output/JsonConverters.cpp` and `JsonConverters.h` of KTT (version 2.1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.exchange.document import (
    Document,
    Entry,
    listed,
    moment,
    nanoseconds,
    one_kernel,
    table,
    text,
    unknown,
    values,
)
from autotune.model import Outcome

STATUSES = {
    "Ok": Outcome.OK,
    "ComputationFailed": Outcome.LAUNCH_ERROR,
    "ValidationFailed": Outcome.WRONG_RESULT,
    "CompilationFailed": Outcome.COMPILE_ERROR,
    "DeviceLimitsExceeded": Outcome.LAUNCH_ERROR,
}
UNITS_NS = {"Nanoseconds": 1.0, "Microseconds": 1e3, "Milliseconds": 1e6, "Seconds": 1e9}


class Ktt:
    """Reads its results."""

    about = "results of KTT"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """Whether it has KTT's metadata and results."""
        return "Metadata" in document and "Results" in document

    def read(self, document: Mapping[str, Any]) -> Document:
        """Return its trials."""
        metadata = table(document.get("Metadata"), "Metadata")
        unit = text(metadata.get("TimeUnit"), "Metadata.TimeUnit")
        if unit not in UNITS_NS:
            raise UsageError(f"no unit {unit!r:.40}", where="Metadata.TimeUnit", hint=f"known: {', '.join(UNITS_NS)}")
        found = Document(
            device=text(metadata.get("Device"), "Metadata.Device"),
            header=unknown(document, ["Results"]),
        )
        taken = moment(metadata.get("Timestamp"))
        kernels = set[str]()
        for place, entry in enumerate(listed(document.get("Results"), "Results")):
            where = f"Results.{place}"
            told = table(entry, where)
            status = text(told.get("Status"), f"{where}.Status")
            if status not in STATUSES:
                hint = f"known: {', '.join(STATUSES)}"
                raise UsageError(f"no status {status!r:.40}", where=f"{where}.Status", hint=hint)
            name = text(told.get("KernelName"), f"{where}.KernelName")
            one_kernel(kernels, name)
            found.kernel = found.kernel or name
            configuration = _configuration(told.get("Configuration"), f"{where}.Configuration")
            outcome, time_ns = STATUSES[status], None
            if outcome is Outcome.OK:
                time_ns = nanoseconds(told.get("TotalDuration"), UNITS_NS[unit], f"{where}.TotalDuration")
            found.add(Entry(configuration, outcome, time_ns, taken, unknown(told, ["Configuration"])))
        return found


def _configuration(told: object, where: str) -> dict[str, Any]:
    pairs = [table(pair, f"{where}.{place}") for place, pair in enumerate(listed(told, where))]
    found: dict[str, Any] = {}
    for place, pair in enumerate(pairs):
        name = text(pair.get("Name"), f"{where}.{place}.Name")
        if not name or name in found:
            what = f"is there twice: {name!r:.40}" if name else "is missing"
            raise UsageError(what, where=f"{where}.{place}.Name", hint="nothing was imported")
        found[name] = pair.get("Value")
    return values(found, where)
