"""How a notebook shows a result: as HTML without scripts, in the notebook's own colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from autotune import text
from autotune.model import Trial
from autotune.ranking import confidence, median_interval
from autotune.tuner.result import Result

_WIDE, _HIGH, _DOT = 420, 90, 2


def shown(result: Result) -> str:
    """Return HTML with the best, how it compares with the default, what failed, and the course of the search."""
    rows = [("best", "no configuration passed")]
    if result.best is not None:
        rows = [("best", text.pairs(result.best.configuration)), ("time", _time(result, result.best))]
        rows += [("default", result.against_default)]
    failed = ", ".join(f"{count} {outcome.value}" for outcome, count in result.failures.items())
    known = f" and {result.reused:,} stored" if result.reused else ""
    rows += [("failed", failed)] if failed else []
    rows += [("trials", f"{int(result.trials):,} new{known} in {text.duration(result.elapsed_s)}; {result.reason}")]
    where = " ".join(filter(None, (text.size(result.problem.size), text.pairs(result.problem.choices))))
    title = f"{result.problem.study.name} {where} on {result.problem.device.name}"
    cells = "".join(
        f'<tr><th style="text-align:left">{name}</th><td style="text-align:left">{_safe(told)}</td></tr>'
        for name, told in rows
    )
    return f"<div><strong>{_safe(title)}</strong><table>{cells}</table>{_course(result.trials())}</div>"


def _safe(told: str) -> str:
    return escape(text.line(told))


def _time(result: Result, best: Trial) -> str:
    samples = best.latest.samples_ns
    low, high = median_interval(samples)
    rate = text.rate(result.problem.flops(best.configuration), best.time_ns)
    interval = f" ({confidence(len(samples))} % interval {text.time(low)} to {text.time(high)})"
    return text.time(best.time_ns) + interval + (f", {rate}" if rate else "")


def _course(rows: Sequence[dict[str, object]]) -> str:
    """Return the times of the trials as dots, and the best so far as a line, over a logarithmic axis."""
    timed = [(place, float(str(row["time_ns"]))) for place, row in enumerate(rows) if row["time_ns"]]
    if len(timed) < 2:
        return ""
    low, high = (math.log(edge(time for _, time in timed)) for edge in (min, max))
    step, span = (_WIDE - 2 * _DOT) / max(1, len(rows) - 1), (high - low) or 1.0

    def x(at: int) -> float:
        return _DOT + step * at

    def y(time: float) -> float:
        return 6 + (_HIGH - 12) * (high - math.log(time)) / span

    stride = -(-len(timed) // 1000)
    dots = "".join(f'<circle cx="{x(at):.1f}" cy="{y(time):.1f}" r="{_DOT}"/>' for at, time in timed[::stride])
    best, path = math.inf, ""
    for at, time in timed:
        if time < best:
            path += f"H{x(at):.1f}V{y(time):.1f}" if path else f"M{x(at):.1f} {y(time):.1f}"
            best = time
    return (
        f'<svg width="{_WIDE}" height="{_HIGH}" role="img" aria-label="time of each trial, and the best so far">'
        f'<g fill="currentColor" fill-opacity=".45">{dots}</g>'
        f'<path d="{path}H{_WIDE}" fill="none" stroke="#d4002a" stroke-width="2"/></svg>'
    )
