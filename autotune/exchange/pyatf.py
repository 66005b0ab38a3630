"""The log of pyATF: its history of configurations, each with a cost or none. It names neither device nor kernel.

pyATF's own cost functions, for OpenCL and CUDA, give nanoseconds. The cost of a user's function is read as nanoseconds
too, since the file does not give its unit; only the order of the costs matters.
Source: `to_json` in pyATF's `tuning_data.py` (version 0.0.13).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.errors import UsageError
from autotune.exchange.document import Document, Entry, listed, moment, nanoseconds, table, unknown, values
from autotune.model import Outcome


class PyAtf:
    """Reads its log."""

    about = "a log of pyATF"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """Whether it has pyATF's history and names its search technique."""
        return "history" in document and "search_technique" in document

    def read(self, document: Mapping[str, Any]) -> Document:
        """Return its trials."""
        found = Document(header=unknown(document, ["history", "improvement_history"]))
        for place, entry in enumerate(listed(document.get("history"), "history")):
            where = f"history.{place}"
            told = table(entry, where)
            valid = told.get("valid")
            if not isinstance(valid, bool):
                raise UsageError(f"is neither true nor false: {valid!r:.40}", where=f"{where}.valid")
            time_ns = nanoseconds(told.get("cost"), 1.0, f"{where}.cost") if valid else None
            outcome = Outcome.OK if valid else Outcome.LAUNCH_ERROR  # the file does not say what failed
            configuration = values(told.get("configuration"), f"{where}.configuration")
            rest = unknown(told, ["configuration"])
            found.add(Entry(configuration, outcome, time_ns, moment(told.get("timestamp")), rest))
        return found
