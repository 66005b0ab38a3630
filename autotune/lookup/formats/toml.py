"""TOML: the configuration as a table, with where it comes from."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from autotune.lookup.answer import Best
from autotune.text import in_quotes


def render(best: Best) -> str:
    """Return a TOML document with the tables `configuration`, `size`, `measured_size` and `choices`.

    `options` are as in JSON; so are `launches`, without what is null there.
    """
    head: dict[str, Any] = {"study": best.study, "device": best.device, "match": best.match.value}
    if best.time_ns is not None:
        head |= {"time_ns": best.time_ns, "measured_on": best.measured_on, "driver": best.driver}
        head |= {"measured": best.measured}
    head |= {"notes": best.notes, "options": best.options}
    tables = {"size": best.size, "measured_size": best.measured_size, "choices": best.choices}
    tables |= {"configuration": best.configuration}
    lines = _entries(head)
    for name, table in tables.items():
        if table is None:  # nothing was measured
            continue
        lines += ["", f"[{name}]", *_entries(table)]
    for launch in best.launches:
        given = {name: value for name, value in launch.plain().items() if value is not None}
        lines += ["", "[[launches]]", *_entries(given)]
    lines.append("")
    return in_quotes("\n".join(lines), pairs=False)


def _entries(table: Mapping[str, Any]) -> list[str]:
    return [f"{name} = {_value(value)}" for name, value in table.items()]


def _value(value: Any) -> str:
    if isinstance(value, str):
        # A JSON string is a TOML basic string, except for characters that in_quotes writes as TOML does.
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Iterable):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, float) and math.isfinite(value):
        return repr(value)
    return str(value)
