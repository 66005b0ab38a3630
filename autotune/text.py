"""How people write and read: durations, run times, rates; and text of others made safe where it is shown.

What a database, a study, a driver or a compiler says may hold escape sequences that move a terminal's cursor,
line breaks that forge a line of ours, or marks that show text in another order than it stands in. Standard library
only.
"""

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


def line(text: str) -> str:
    """Return text as one line of visible characters: breaks become spaces, other controls `\\x1b` or `\\u202e`."""
    if text.isprintable():  # controls, line and paragraph breaks, bidi marks and lone surrogates are not
        return text
    return _visible(re.sub(r"\s*[\r\n\t\v\f\x85\u2028\u2029]\s*", " ", text), "")


def lines(text: str) -> str:
    """Return text of several lines, each of visible characters; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return _visible(text.replace("\r\n", "\n"), "\n\t")


def in_quotes(document: str, *, pairs: bool) -> str:
    """Return a JSON or TOML document with what is not visible in its strings written as `\\uXXXX`.

    The document may hold such characters in strings only, line breaks apart. Beyond U+FFFF JSON writes `pairs` of
    surrogates, TOML `\\UXXXXXXXX`.
    """
    if document.isprintable():
        return document
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char, pairs) for char in document)


def c_comment(text: str) -> str:
    """Return text that stays within the `/* ... */` it is put in: one line without the marks of a comment."""
    return re.sub(r"\*(?=/)|/(?=\*)", lambda mark: mark[0] + " ", line(text))


def _visible(text: str, kept: str) -> str:
    return "".join(char if char.isprintable() or char in kept else _hex(char) for char in text)


def _hex(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(char: str, pairs: bool) -> str:
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04X}"
    if not pairs:
        return f"\\U{code:08X}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04X}\\u{0xDC00 + (code - 0x10000 & 0x3FF):04X}"
