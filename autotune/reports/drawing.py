"""Bars and lines, drawn into a file. The only file that imports matplotlib, and only to draw.

Labels come from databases and study files: each is made safe before it is drawn.
"""

from __future__ import annotations

import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import UsageError
from autotune.text import line as safe
from autotune.text import number

# Okabe and Ito's palette: distinguishable with every kind of colour blindness, and in print.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#555555")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_PALE = "#9DC3DE"  # of the first colour: bars that are not the best
_COLUMNS, _CROWDED = 3, 75  # panels, and letters of tick labels, beside each other
_INK, _QUIET, _GRID = "#222222", "#6b6b6b", "#e3e3e3"
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": ["DejaVu Sans"],
    "text.color": _INK,
    "axes.edgecolor": _QUIET,
    "axes.labelcolor": _INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-15, 15),  # no powers of ten apart from the axis
    "axes.formatter.useoffset": False,
    "xtick.color": _QUIET,
    "ytick.color": _INK,
    "grid.color": _GRID,
    "text.parse_math": False,  # names of others may contain dollar signs
    "svg.fonttype": "none",
    "svg.hashsalt": "autotune",  # same data, same file
    "figure.dpi": 100,
    "savefig.dpi": 150,
}


@dataclass(frozen=True)
class Bar:
    """One labelled value; if it is None, `note` says why."""

    label: str
    value: float | None
    note: str = ""


@dataclass(frozen=True)
class Panel:
    """Bars that share a scale, for example of one problem size."""

    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Line:
    """One series over a numeric axis; `points` are (x, y)."""

    label: str
    points: tuple[tuple[float, float], ...]


def bar_chart(
    path: Path, panels: Sequence[Panel], *, title: str, subtitle: str, axis: str, least: bool = False
) -> None:
    """Draw horizontal bars in panels, every bar with its value or the reason why it has none.

    The best bar of a panel is emphasised: the longest, or with `least` the shortest.
    """
    with _figure() as plt:
        labels = [safe(bar.label) for bar in panels[0].bars]
        rows, columns = math.ceil(len(panels) / _COLUMNS), min(len(panels), _COLUMNS)
        width = 1.2 + 0.08 * max(map(len, labels)) + 3.1 * columns
        height = 0.9 + rows * (0.8 + 0.36 * len(labels))
        figure, grid = plt.subplots(
            rows, columns, figsize=(max(width, 6.4), height), squeeze=False, sharey=True, layout="constrained"
        )
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08, wspace=0.04)
        tops = [max((bar.value or 0.0) for bar in panel.bars) for panel in panels]
        shared = max(tops) < 8 * min(tops)  # one scale for all panels if the smallest stays readable
        for place, axes in enumerate(grid.flat):
            if place >= len(panels):
                axes.set_visible(False)
                continue
            _bars(axes, panels[place], max(tops) if shared else tops[place], least)
            axes.set_xlabel(axis)
        grid[0][0].set_yticks(range(len(labels)), labels)
        grid[0][0].set_ylim(len(labels) - 0.5, -0.5)
        _titles(figure, title, subtitle)
        _save(figure, path)


def _bars(axes: Any, panel: Panel, top: float, least: bool) -> None:
    values = [bar.value or 0.0 for bar in panel.bars]
    best = (min if least else max)((value for value in values if value), default=0.0)
    colours = [_COLOURS[0] if value == best else _PALE for value in values]
    axes.barh(range(len(values)), values, color=colours, height=0.66)
    top = top or 1.0
    for place, bar in enumerate(panel.bars):
        at = (values[place] + top * 0.02, place)
        if bar.value is None:
            reason = textwrap.wrap(safe(bar.note) or "no result", 44, max_lines=2, placeholder=" ...")
            axes.text(*at, "\n".join(reason), va="center", color=_QUIET, fontsize=7.5, linespacing=1.0)
        else:
            axes.text(*at, number(bar.value), va="center", color=_INK, fontsize=9.5)
    axes.set_xlim(0, top * 1.24)
    axes.set_title(safe(panel.title), fontsize=10.5, loc="left")
    axes.grid(axis="x")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.locator_params(axis="x", nbins=4)
    if not best:
        axes.set_xticks([])


def line_chart(path: Path, lines: Sequence[Line], *, title: str, subtitle: str, x_axis: str, y_axis: str) -> None:
    """Draw one line per series, labelled at its end, over a logarithmic x axis with the sizes as its ticks.

    The y axis is logarithmic if the values span more than a factor of 30.
    """
    with _figure() as plt:
        figure, axes = plt.subplots(figsize=(8.4, 4.8), layout="constrained")
        drawn = [line for line in lines if line.points]
        every = [y for line in drawn for _, y in line.points]
        for place, line in enumerate(drawn):
            axes.plot(
                *zip(*line.points, strict=True),
                color=_COLOURS[place % len(_COLOURS)],
                marker=_MARKERS[place % len(_MARKERS)],
                markersize=5,
                linewidth=1.5 + 0.5 * (len(drawn) - place - 1),  # a line below another stays visible
            )
        ticks = sorted({x for line in drawn for x, _ in line.points})
        axes.set_xscale("log", base=2)
        labels = [_positional(x) for x in ticks]
        crowded = len("  ".join(labels)) > _CROWDED
        axes.set_xticks(ticks, labels, rotation=30 if crowded else 0, ha="right" if crowded else "center")
        axes.set_xticks([], minor=True)
        if every and max(every) > 30 * min(every):
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda y, _: _positional(y))
        else:
            axes.set_ylim(bottom=0)
        axes.set_xlabel(x_axis)
        axes.set_ylabel(y_axis)
        axes.grid(axis="y")
        _label_ends(figure, axes, drawn)
        _titles(figure, title, subtitle)
        _save(figure, path)


def _positional(value: float) -> str:
    """Return `value` without an exponent: `1048576`, `0.00001`."""
    return np.format_float_positional(value, trim="-")


def _label_ends(figure: Any, axes: Any, lines: Sequence[Line]) -> None:
    """Write each line's name to the right of its last point, moved apart where two would overlap."""
    if not lines:
        return
    figure.canvas.draw()
    right = max(x for line in lines for x, _ in line.points)
    ends = sorted((axes.transData.transform((right, line.points[-1][1]))[1], i) for i, line in enumerate(lines))
    heights = spread([height for height, _ in ends], 15.0 * figure.dpi / 100)  # pixels: one line of text
    for (_, which), height in zip(ends, heights, strict=True):
        axes.annotate(
            safe(lines[which].label),
            xy=(1.0, axes.transAxes.inverted().transform((0, height))[1]),
            xycoords="axes fraction",
            xytext=(6, 0),
            textcoords="offset points",
            va="center",
            color=_COLOURS[which % len(_COLOURS)],
            annotation_clip=False,
        )


def spread(places: Sequence[float], apart: float) -> list[float]:
    """Move ascending `places` upwards, as little as possible, so that they are `apart` from one another."""
    moved: list[float] = []
    for place in places:
        moved.append(max(place, moved[-1] + apart) if moved else place)
    return moved


def _titles(figure: Any, title: str, subtitle: str) -> None:
    figure.suptitle(safe(title), x=0.01, ha="left", fontsize=12.5, fontweight="bold")
    if subtitle:
        figure.supxlabel(safe(subtitle), x=0.01, ha="left", fontsize=8.5, color=_QUIET)


@contextmanager
def _figure() -> Iterator[Any]:
    """Matplotlib without a display, in this file's style; figures are closed even after an error."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # a box is drawn instead
        try:
            yield plt
        finally:
            plt.close("all")


def _save(figure: Any, path: Path) -> None:
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise UsageError(f"cannot write the chart: {error.strerror}", where="--chart") from error
