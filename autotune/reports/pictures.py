"""A comparison as a chart: bars per value, or lines over sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune import text
from autotune.model import Size
from autotune.reports import charts
from autotune.reports.charts import Bar, Line, Panel
from autotune.reports.compare import BY_SIZE, Cell, size_label, sizes_of

Scale = Callable[[Cell, float], float | None]


@dataclass(frozen=True)
class Extra:
    """A time that is no cell: a host baseline, or the device end to end. `time_ns` for one size."""

    label: str
    size: Size
    time_ns: float


def draw(path: Path, cells: Sequence[Cell], extras: Sequence[Extra], *, by: str, title: str, subtitle: str) -> None:
    """Draw GFLOPS where the study tells its operations, else GB/s, else milliseconds."""
    axis, scale = _metric(cells)
    if by == BY_SIZE and all(len(set(cell.size.values())) == 1 for cell in cells):
        _lines(path, cells, extras, axis, scale, title, subtitle)
        return
    panels = [_panel(size, cells, extras, scale) for size in sizes_of(cells)]
    if by == BY_SIZE:
        panels = [Panel("", tuple(bar for panel in panels for bar in panel.bars))]
    charts.bar_chart(path, panels, title=title, subtitle=subtitle, axis=axis, least=axis.startswith("Time"))


def _metric(cells: Sequence[Cell]) -> tuple[str, Scale]:
    """The axis label, and the value of a time in nanoseconds in a cell's problem."""
    measured = [cell for cell in cells if cell.problem is not None and cell.best is not None]
    if measured and all(_work(cell, "flops") for cell in measured):
        return "GFLOPS", lambda cell, ns: text.giga_rate(_work(cell, "flops"), ns)
    if measured and all(_work(cell, "bytes") for cell in measured):
        return "GB/s", lambda cell, ns: text.giga_rate(_work(cell, "bytes"), ns)
    return "Time (ms)", lambda cell, ns: ns / 1e6


def _work(cell: Cell, kind: str) -> float | None:
    if cell.problem is None:
        return None
    configuration = cell.best.configuration if cell.best is not None else cell.problem.default
    amount: float | None = getattr(cell.problem, kind)(configuration)
    return amount


def _panel(size: Size, cells: Sequence[Cell], extras: Sequence[Extra], scale: Scale) -> Panel:
    here = [cell for cell in cells if cell.size == size]
    bars = [Bar(cell.value, scale(cell, cell.best.time_ns) if cell.best else None, cell.reason) for cell in here]
    known = next((cell for cell in here if cell.problem is not None), here[0])
    bars += [Bar(extra.label, scale(known, extra.time_ns)) for extra in extras if extra.size == size]
    return Panel(size_label(size), tuple(bars))


def _lines(
    path: Path, cells: Sequence[Cell], extras: Sequence[Extra], axis: str, scale: Scale, title: str, subtitle: str
) -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    devices = list(dict.fromkeys(cell.device for cell in cells))
    for cell in cells:
        label = "OpenCL, kernel alone" if extras else cell.device
        if len(devices) > 1:
            label = cell.device
        points = found.setdefault(label, [])
        if cell.best is not None:
            _add(points, cell, scale(cell, cell.best.time_ns))
        for extra in extras:
            if extra.size == cell.size:
                _add(found.setdefault(extra.label, []), cell, scale(cell, extra.time_ns))
    lines = [Line(label, tuple(sorted(points))) for label, points in found.items()]
    names = " = ".join(cells[0].size)
    charts.line_chart(path, lines, title=title, subtitle=subtitle, x_axis=names, y_axis=axis)


def _add(points: list[tuple[float, float]], cell: Cell, value: float | None) -> None:
    if value is not None:
        points.append((float(next(iter(cell.size.values()))), value))
