"""Numbers as people write and read them: durations, run times, rates (standard library only)."""

from __future__ import annotations

import math
import re

from autotune.errors import UsageError

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


def parse_duration(text: str, *, where: str = "--timeout") -> float:
    """Seconds in `90s`, `5m`, `1h30m` or `45` (seconds); UsageError for anything else."""
    words = text.replace(" ", "").lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)([hms]?)", words)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    ordered = [unit or "s" for _, unit in parts]
    if "".join(number + unit for number, unit in parts) != words or ordered != sorted(set(ordered)) or not parts:
        raise UsageError(f"{text!r} is no duration", where=where, hint="write 90s, 5m or 1h30m")
    if seconds <= 0:
        raise UsageError(f"{text!r} leaves no time", where=where, hint="write 90s, 5m or 1h30m")
    return seconds


def number(value: float, digits: int = 4) -> str:
    """`value` with about `digits` significant digits and no exponent: `0.1234`, `12.34`, `41250`."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    leading = 0 if whole else -math.floor(math.log10(abs(value))) - 1
    return f"{value:.{max(0, min(digits - whole + leading, 9))}f}"


def time(ns: float) -> str:
    """A run time with its unit: `1.234 ms`, `56.70 µs`; `-` where it is not known."""
    if not math.isfinite(ns):
        return "-"
    for unit, scale in _TIMES:
        if abs(ns) >= scale:
            return f"{number(ns / scale)} {unit}"
    return f"{number(ns)} ns"


def duration(seconds: float) -> str:
    """Wall time: `4.2 s`, `42 s`, `3 min 05 s`, `2 h 10 min`, `64 days`."""
    if seconds < 10 and seconds != int(seconds):
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    if whole < 48 * 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400:,} days"


def count(number: int, noun: str) -> str:
    """`1 trial`, `1,200 trials`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def giga_rate(amount: float | None, ns: float) -> float | None:
    """GFLOPS or GB/s: `amount` operations or bytes done in `ns`; None where either is not known."""
    if amount is None or not math.isfinite(ns) or ns <= 0:
        return None
    return amount / ns


def rate(amount: float | None, ns: float, unit: str) -> str:
    """`1750 GFLOPS`; the empty string where it is not known."""
    value = giga_rate(amount, ns)
    return "" if value is None else f"{number(value)} {unit}"


def share(part: float, whole: float) -> str:
    """`12 %`; `-` of nothing."""
    return f"{100 * part / whole:.0f} %" if whole > 0 else "-"
