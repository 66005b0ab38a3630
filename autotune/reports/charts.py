"""Comparisons as charts: bars per value, or lines over sizes; drawing.py draws them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune import text
from autotune.errors import UsageError
from autotune.model import Size
from autotune.reports.compare import BY_SIZE, Cell, sizes_of
from autotune.reports.drawing import Bar, Line, Panel, bar_chart, line_chart

Scale = Callable[[Cell, float], float | None]


@dataclass(frozen=True)
class Extra:
    """A time that is not a cell: a host baseline, or the device end to end. `time_ns` for one size."""

    label: str
    size: Size
    time_ns: float


def check_path(path: Path) -> Path:
    """Return `path` if a chart can be written there, else raise UsageError, before any time is spent."""
    if path.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"cannot draw {path.name!r}", where="--chart", hint="name a .png or .svg file")
    if not os.path.isdir(folder := str(path.parent)):
        raise UsageError(f"no directory {folder!r}", where="--chart", hint=text.typed(["mkdir", "-p", folder]))
    return path


def draw(path: Path, cells: Sequence[Cell], extras: Sequence[Extra], *, by: str, title: str, subtitle: str) -> None:
    """Draw GFLOPS if the study gives its operations, else GB/s if it gives its bytes, else milliseconds."""
    axis, scale = _metric(cells)
    if by == BY_SIZE and all(len(set(cell.size.values())) == 1 for cell in cells):
        lines, x_axis = _lines(cells, extras, scale), " = ".join(cells[0].size)
        line_chart(path, lines, title=title, subtitle=subtitle, x_axis=x_axis, y_axis=axis)
        return
    panels = [_panel(size, cells, extras, scale) for size in sizes_of(cells)]
    if by == BY_SIZE:
        panels = [Panel("", tuple(bar for panel in panels for bar in panel.bars))]
    bar_chart(path, panels, title=title, subtitle=subtitle, axis=axis, least=axis.startswith("Time"))


def _metric(cells: Sequence[Cell]) -> tuple[str, Scale]:
    """The axis label, and the function from a cell and a time in nanoseconds to the value on that axis."""
    measured = [cell for cell in cells if cell.problem is not None and cell.best is not None]
    for kind, unit in (("flops", "GFLOPS"), ("bytes", "GB/s")):
        if measured and all(_work(cell, kind) for cell in measured):
            return unit, lambda cell, ns, kind=kind: text.giga_rate(_work(cell, kind), ns)
    return "Time (ms)", lambda cell, ns: ns / 1e6


def _work(cell: Cell, kind: str) -> float | None:
    if cell.problem is None:
        return None
    work = {"flops": cell.problem.flops, "bytes": cell.problem.bytes}[kind]
    return work(cell.best.configuration if cell.best is not None else cell.problem.default)


def _panel(size: Size, cells: Sequence[Cell], extras: Sequence[Extra], scale: Scale) -> Panel:
    here = [cell for cell in cells if cell.size == size]
    bars = [Bar(str(cell.value), scale(cell, cell.best.time_ns) if cell.best else None, cell.reason) for cell in here]
    known = next((cell for cell in here if cell.problem is not None), here[0])
    more = [Bar(extra.label, scale(known, extra.time_ns)) for extra in extras if extra.size == size]
    return Panel(text.size(size), (*bars, *more))


def _lines(cells: Sequence[Cell], extras: Sequence[Extra], scale: Scale) -> list[Line]:
    found: dict[str, list[tuple[float, float]]] = {}
    several = len({cell.device for cell in cells}) > 1
    for cell in cells:
        label = "OpenCL, kernel alone" if extras and not several else cell.device
        times = {label: cell.best.time_ns} if cell.best is not None else {}
        times |= {extra.label: extra.time_ns for extra in extras if extra.size == cell.size}
        for name, ns in times.items():
            value = scale(cell, ns)
            if value is not None:
                found.setdefault(name, []).append((float(next(iter(cell.size.values()))), value))
    return [Line(label, tuple(sorted(points))) for label, points in found.items()]
