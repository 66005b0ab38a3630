"""Templates and their filters, for reports in one file and for the pages of the service.

All output is escaped, and made visible first (`text.lines`): it may come from a study, a driver or another user. Needs
Jinja2, which the extra `[serve]` brings.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune import text
from autotune.errors import SetupError
from autotune.ranking import confidence
from autotune.reports.course import moment
from autotune.reports.learned import by_importance
from autotune.store import in_utc

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent
STATIC = FOLDER / "static"

_NEAR = 1.5
"""A finalist is drawn on the axis of the best if it takes at most this many times as long."""

_STEPS = (("build", "building"), ("verify", "verifying"), ("time", "timing"))


def environment(*folders: Path) -> Environment:
    """Return Jinja2 over these folders of templates, and then this room's. Raises SetupError without Jinja2."""
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError:
        raise SetupError("pages need Jinja2", hint=text.installing("serve")) from None

    def visible(value: Any) -> Any:
        return text.lines(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    made = Environment(
        loader=FileSystemLoader([*folders, FOLDER / "templates"]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= FILTERS | {"json": lambda value: Markup(script_json(value)), "verbatim": Markup}
    made.globals |= {"zip": zip, "dict": dict}
    return made


@lru_cache(maxsize=32)
def static_text(name: str) -> str:
    """Return a file of `static/`."""
    return (STATIC / name).read_text(encoding="utf-8")


def script_json(value: Any) -> str:
    """Return JSON for a `<script>`: it contains no tag and no comment, and in text only visible characters."""
    written = json.dumps(text.plain(value, nulls=True), separators=(",", ":"), allow_nan=False)
    return written.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


# Filters ---------------------------------------------------------------------------------------------------


def _time(ns: float | None) -> str:
    return "–" if ns is None else text.time(ns)


def _duration(seconds: float | None) -> str:
    return "–" if seconds is None or not math.isfinite(seconds) else text.duration(seconds)


def _percent(share: float | None) -> str:
    if share is None or not math.isfinite(share):
        return "–"
    return f"{100 * share:.0f} %" if share >= 0.1 or share == 0 else f"{100 * share:.1f} %"


def _instant(told: str | datetime | None) -> str:
    """`2026-11-22 04:38 UTC`."""
    if not told:
        return "–"
    try:
        then = in_utc(told if isinstance(told, datetime) else datetime.fromisoformat(told))
    except (ValueError, OverflowError):  # not an instant, or one outside of all years
        return str(told)
    return f"{then:%Y-%m-%d %H:%M} UTC"


def _ago(told: str | None, now: datetime | None = None) -> str:
    """`3 min ago`, `5 days ago`."""
    if (then := moment(told or "")) is None:
        return "–"
    seconds = max(0.0, ((now or datetime.now(UTC)) - then).total_seconds())
    for unit, scale in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= scale:
            return f"{text.count(int(seconds / scale), unit)} ago"
    return "just now"


def _ordinal(number: int) -> str:
    """`2nd`, `11th`."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _first_line(told: str) -> str:
    first = next(iter(told.strip().splitlines()), "") or "no reason told"
    return first if len(first) <= 160 else f"{first[:157]}..."


def _parts(spent: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the parts of a whole, one after another."""
    whole, before, found = sum(spent.values()), 0.0, []
    for kind, name in _STEPS:
        share = spent[kind] / whole if whole else 0.0
        found.append({"kind": kind, "name": name, "seconds": spent[kind], "share": share, "from": before})
        before += share
    return found


def _extent(finalists: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Return the ends of an axis on which the finalists can be told apart; much slower samples lie outside."""
    best = min(one["median_ns"] for one in finalists)
    near = [one for one in finalists if one["median_ns"] <= _NEAR * best]
    low = min(min(one["samples_ns"]) for one in near)
    high = max(
        max(one["interval_ns"][1], sorted(one["samples_ns"])[int(0.95 * (len(one["samples_ns"]) - 1))]) for one in near
    )
    return low, high if high > low else low + 1


def source_hash(source: str) -> str:
    """Return the name of an inline script or style in a content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"


FILTERS: dict[str, Callable[..., Any]] = {
    "ago": _ago,
    "best_time": lambda cells: min((cell["best"]["time_ns"] for cell in cells if cell["best"]), default=None),
    "by_importance": by_importance,
    "confidence": confidence,
    "count": text.count,
    "duration": _duration,
    "extent": _extent,
    "first_line": _first_line,
    "instant": _instant,
    "map_names": lambda maps: list(dict.fromkeys(name for one in maps for name in (one["down"], one["across"]))),
    "number": lambda value, digits=4: "–" if value is None else text.number(value, digits),
    "ordinal": _ordinal,
    "pairs": text.pairs,
    "parts": _parts,
    "percent": _percent,
    "size": text.size,
    "source_hash": source_hash,
    "step": lambda share: min(9, max(0, int(10 * share))),
    "thousands": lambda value: f"{value:,}",
    "time": _time,
}
