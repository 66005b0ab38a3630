"""A best in the forms in which people use it, and comparisons as a chart shows them."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from autotune.errors import AutotuneError
from autotune.lookup import Best, formats
from autotune.text import command, in_quotes, pairs


def forms(best: Best, server: str) -> list[dict[str, str]]:
    """Return `name`, `title` and `text` of each form of a best."""
    found = {"command": _command(best, server), "python": _python(best, server)}
    for name in formats.FORMATS:
        if name != "table":  # the page itself is a table
            try:
                found[name] = formats.render(best, name)
            except AutotuneError as error:  # a header cannot hold everything
                found[name] = str(error)
    titles = {"json": "JSON", "toml": "TOML"}
    return [{"name": name, "title": titles.get(name, name.capitalize()), "text": text} for name, text in found.items()]


def _command(best: Best, server: str) -> str:
    typed = command("best", best.study, device=best.device, size=best.size, choices=best.choices)
    asked = [("study", best.study), ("device", best.device), *([("size", pairs(best.size, ","))] if best.size else [])]
    asked += [("choice", f"{name}={value}") for name, value in best.choices.items()]
    address = f"{server}/v1/best?{urlencode([*asked, ('format', 'header')])}"
    return (
        f"# on a machine with autotune\n{typed} {shlex.join(['--server', server, '--format', 'header'])}\n\n"
        f"# anywhere\ncurl -fsS {shlex.quote(address)}\n"
    )


def _python(best: Best, server: str) -> str:
    def written(value: Any) -> str:
        return in_quotes(json.dumps(value, ensure_ascii=False), pairs=True)

    given = [f"device={written(best.device)}"]
    given += [f"size={written(dict(best.size))}"] if best.size else []
    given += [f"choices={written(dict(best.choices))}"] if best.choices else []
    return (
        f"import autotune\n\nserver = autotune.connect({written(server)})\n"
        f"best = server.best({written(best.study)}, {', '.join(given)})\n"
        f"program.build(list(best.options))  # a cl.Program of PyOpenCL\n"
    )


def chart(cells: Sequence[dict[str, Any]], by: str, sizes: Sequence[str]) -> dict[str, Any] | None:
    """Return lines over sizes: GFLOPS if known, else times; None if one number does not describe the sizes."""
    measured = [cell for cell in cells if cell["best"] is not None and cell["best"]["time_ns"] is not None]
    if not measured or any(len(set(cell["size"].values())) != 1 for cell in measured):
        return None
    if len({next(iter(cell["size"].values())) for cell in measured}) < 2:
        return None
    rated = all(cell["best"]["gflops"] for cell in measured)
    lines: dict[str, list[tuple[int, float]]] = {}
    for cell in measured:
        label = cell["device"] if by in ("size", "device") else f"{by}={cell['value']}"
        y = cell["best"]["gflops"] if rated else cell["best"]["time_ns"]
        lines.setdefault(label, []).append((next(iter(cell["size"].values())), y))
    return {
        "lines": [{"label": label, "points": sorted(points)} for label, points in lines.items()],
        "x_label": " = ".join(sizes), "y_label": "GFLOPS" if rated else "median time",
        "y_kind": "rate" if rated else "time",
    }  # fmt: skip
