"""Formats and parses what people read and write (durations, times, rates, sizes); makes foreign text safe.

Text of a database, a study, a driver or a compiler may hold escape sequences that move a terminal's cursor, line
breaks that fake a line of ours, or marks that change the order in which text is shown. Standard library only.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from autotune.errors import AutotuneError, UsageError

_SECONDS = {"w": 7 * 86400.0, "d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "": 1.0}
_TIMES = (("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0))


_MOST_S = 1e100
"""The longest duration, in seconds: arithmetic on longer ones might overflow."""


def parse_duration(text: str, *, where: str = "--timeout", hint: str = "write 90s, 5m or 1h30m") -> float:
    """Return the seconds in `90s`, `5m`, `1h30m`, `8w`, `90d` or `45` (seconds). Raises UsageError for other texts."""
    words = text.replace(" ", "").lower()
    parts = re.findall(r"(\d+(?:\.\d+)?)([wdhms]?)", words)
    seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    units = ["wdhms".index(unit or "s") for _, unit in parts]
    if "".join(number + unit for number, unit in parts) != words or units != sorted(set(units)) or not parts:
        raise UsageError(f"{text!r:.40} is not a duration", where=where, hint=hint)
    if seconds > _MOST_S:
        raise UsageError(f"{text!r:.40} is longer than can be counted", where=where, hint=hint)
    if seconds <= 0:
        raise UsageError(f"{text!r:.40} leaves no time", where=where, hint=hint)
    return seconds


def number(value: float, digits: int = 4) -> str:
    """Return `value` with about `digits` significant digits and no exponent: `0.1234`, `12.34`, `41250`."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    leading = 0 if whole else -math.floor(math.log10(abs(value))) - 1
    return f"{value:.{max(0, min(digits - whole + leading, 9))}f}"


def time(ns: float) -> str:
    """Return a run time with its unit: `1.234 ms`, `56.70 µs`; `-` if it is not known."""
    if not math.isfinite(ns):
        return "-"
    for unit, scale in _TIMES:
        if abs(ns) >= scale:
            return f"{number(ns / scale)} {unit}"
    return f"{number(ns)} ns"


def duration(seconds: float) -> str:
    """Return a wall time: `4.2 s`, `42 s`, `3 min 05 s`, `2 h 10 min`, `64 days`."""
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
    """Return a count with its noun: `1 trial`, `1,200 trials`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def giga_rate(amount: float | None, ns: float) -> float | None:
    """Return GFLOPS or GB/s: `amount` operations or bytes in `ns` nanoseconds; None if either is not known."""
    if amount is None or not math.isfinite(ns) or ns <= 0:
        return None
    return amount / ns


def rate(flops: float | None, ns: float) -> str:
    """Return a rate, `1750 GFLOPS`, or an empty string if it is not known."""
    return "" if (value := giga_rate(flops, ns)) is None else f"{number(value)} GFLOPS"


def share(part: float, whole: float) -> str:
    """Return a share, `12 %`; `-` if the whole is 0."""
    return f"{100 * part / whole:.0f} %" if whole > 0 else "-"


def size(values: Mapping[str, int]) -> str:
    """Return `M=N=K=1024` if all are equal, else `M=1600 N=1600 K=1007`."""
    if len(values) > 1 and len(set(values.values())) == 1:
        return "=".join(values) + f"={next(iter(values.values()))}"
    return pairs(values)


def nothing_stored(study: str, at: str, device: str) -> str:
    """Return `nothing is stored of sgemm at M=N=K=1024 on nvidia-h200-132cu-140g`; size and device may be empty."""
    return f"nothing is stored of {study}" + (f" at {at}" if at else "") + (f" on {device}" if device else "")


def pairs(values: Mapping[str, object], between: str = " ") -> str:
    """Return a configuration, choices or a size, `TS=16 WPT=4`, always on one line; for options use `,` between."""
    return line(between.join(f"{name}={value}" for name, value in values.items()))


def line(text: str) -> str:
    """Return text as one line of visible characters: breaks become spaces, other controls `\\x1b` or `\\u202e`."""
    if text.isprintable():  # controls, line and paragraph breaks, bidi marks and lone surrogates are not
        return text
    return _visible(re.sub(r"\s*[\r\n\t\v\f\x85\u2028\u2029]\s*", " ", text), "")


def say(text: str) -> None:
    """Print a line about the work, on stderr."""
    print(line(text), file=sys.stderr, flush=True)


def say_error(error: AutotuneError) -> None:
    """Print `error: ...` on stderr as one line, and 50 lines of its detail (a build log) below, indented."""
    say(f"error: {error}")
    told, most = error.detail.rstrip().splitlines(), 50  # if a name is missing, each line may be an error
    more = [f"... {count(len(told) - most, 'line')} more"] if len(told) > most else []
    for detail in (*told[:most], *more):
        say(f"  {detail}")


def lines(text: str) -> str:
    """Return text with visible characters, line breaks and tabs only."""
    if text.isprintable():
        return text
    return _visible(text.replace("\r\n", "\n"), "\n\t")


def in_quotes(document: str, *, pairs: bool) -> str:
    """Return a JSON or TOML document with invisible characters of its strings written as `\\uXXXX`.

    Except for line breaks, the document may hold such characters only in strings. Beyond U+FFFF JSON writes `pairs` of
    surrogates, TOML `\\UXXXXXXXX`.
    """
    if document.isprintable():
        return document
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char, pairs) for char in document)


def clean(text: str) -> str:
    """Replace what UTF-8 or PostgreSQL cannot hold (lone surrogates, NUL): build logs hold anything."""
    if text.isascii() and "\0" not in text:  # nearly always so; an import cleans millions of texts
        return text
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def plain(value: Any, *, nulls: bool = False) -> Any:
    """Return `value` in types that JSON has: mappings, lists, text that is valid in UTF-8, and numbers.

    NaN and the infinities become text or, with `nulls`, null. Values for which JSON has no form stay as they are.
    """
    if isinstance(value, str):
        return clean(value)
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return None if nulls else str(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): plain(entry, nulls=nulls) for key, entry in value.items()}
    if isinstance(value, Iterable):
        return [plain(entry, nulls=nulls) for entry in value]
    return value


def c_comment(text: str) -> str:
    """Return text that cannot end the `/* ... */` around it: one line without comment marks."""
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


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return ` (did you mean 'x'?)` if a known word is close, else "". A word that differs only by case is closest."""
    from difflib import get_close_matches

    words = list(known)
    alike = [each for each in words if each.casefold() == word.casefold()]
    close = alike or get_close_matches(word, words, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def require_known(what: str, names: Iterable[str], known: Collection[str], *, where: str = "", hint: str = "") -> None:
    """Raise UsageError for the first name that is not known: there is no such `what`.

    `hint` replaces the list of known names.
    """
    for name in names:
        if name not in known:
            said = f"no {what} named {name!r}{did_you_mean(name, known)}"
            raise UsageError(said, where=where, hint=hint or f"known: {_listing(known)}")


def command(
    name: str,
    study: str,
    *,
    device: str | None = None,
    size: Mapping[str, int] | None = None,
    choices: Mapping[str, object] | None = None,
    database: str | None = None,
    server: str | None = None,
) -> str:
    """Return the start of a command line that asks about a problem, ready for more options.

    `database` is shown as it is given, so a URL must not have its password.
    """
    words = ["autotune", name, study]
    if device is not None:
        words += ["-d", device]
    if size:
        words += ["--size", pairs(size, ",")]
    for choice, value in (choices or {}).items():
        words += ["--choice", f"{choice}={value}"]
    if database is not None:
        words += ["--db", database]
    if server is not None:
        words += ["--server", server]
    return typed(words)


def typed(words: Iterable[str]) -> str:
    """Return words as one line to type: quoted for a shell, with invisible characters as `$'\\x0a'`."""
    import shlex  # here, since a look-up that finds an answer does not need it

    return " ".join(shlex.quote(word) if word.isprintable() else _spelt(word) for word in words)


def _spelt(word: str) -> str:
    """Return a word in the quotes of bash and zsh that escape bytes; file names may have bytes that are not UTF-8."""
    shown = (char if char.isprintable() else _bytes(char) for char in re.sub(r"(['\\])", r"\\\1", word))
    return f"$'{''.join(shown)}'"


def _bytes(char: str) -> str:
    undecoded = "\udc80" <= char <= "\udcff"
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape" if undecoded else "replace"))


def to_open(path: str, error: OSError) -> str:
    """Return what to type if a path could not be opened as a file, or "" if that is not known."""
    if isinstance(error, FileNotFoundError):
        return f"{typed(['ls', path.rpartition('/')[0] or '.'])} lists what is there"
    if isinstance(error, IsADirectoryError):
        return f"name a file in it: {typed(['ls', path])}"
    return typed(["chmod", "u+r", path]) if isinstance(error, PermissionError) else ""


def installing(extra: str) -> str:
    """Return a hint on how to install an extra of this package."""
    return f"pip install '.[{extra}]' in a checkout, or pip install 'opencl-autotune[{extra}]'"


LARGEST_SIZE = 2**31 - 1
"""The largest size that a problem may have; the smallest is 1."""


def parse_size(texts: str | Sequence[str] | None, known: Mapping[str, int]) -> dict[str, int]:
    """Return `known` with the changes in the texts: `M=1024,N=512`, or a plain number for every size.

    Raises UsageError for an unknown name, a name that is given twice, or a value that is not a whole number from 1.
    """
    size = dict(known)
    for item, name, value in _items(texts, "--size"):
        if not known:
            raise UsageError(f"{item!r}: the study has no sizes", where="--size", hint="leave it out")
        if not re.fullmatch(r"[0-9]{1,10}", value) or not 1 <= int(value) <= LARGEST_SIZE:
            hint = f"write NAME=NUMBER, a whole number from 1 to {LARGEST_SIZE}"
            raise UsageError(f"{item!r} is not a size", where="--size", hint=hint)
        if not name:
            size = dict.fromkeys(size, int(value))
        else:
            require_known("size", [name], known, where="--size", hint=f"sizes here: {_listing(known)}")
            size[name] = int(value)
    return size


def is_value(text: str, value: Any) -> bool:
    """Say whether a text means a listed value: as the value is shown, or for a float the same number (`1e-7`)."""
    if str(value) == text:
        return True
    try:
        return isinstance(value, float) and float(text) == value
    except ValueError:
        return False


def parse_choices(texts: str | Sequence[str] | None, offered: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the first value of each choice, or its value in the texts (`T=int`). Raises UsageError for others."""
    choices = {name: values[0] for name, values in offered.items()}
    for item, name, value in _items(texts, "--choice"):
        if name not in offered:
            raise UsageError(f"no choice {item!r}", where="--choice", hint=f"choices here: {_listing(offered)}")
        found = [entry for entry in offered[name] if is_value(value, entry)]
        if not found:
            hint = f"it can be {', '.join(map(str, offered[name]))}"
            raise UsageError(f"{name} cannot be {value!r}", where="--choice", hint=hint)
        choices[name] = found[0]
    return choices


def split_items(text: str, option: str) -> list[str]:
    """Return the items between commas. Raises UsageError, at the `option`, for an empty item."""
    items = [part.strip() for part in text.split(",")]
    if not all(items):
        raise UsageError(f"{text!r} has an empty item", where=option, hint=f"write {option} NAME=VALUE,NAME=VALUE")
    return items


def _items(texts: str | Sequence[str] | None, option: str) -> Iterator[tuple[str, str, str]]:
    """Yield each item between commas, its name ("" if there is none) and its value.

    Raises UsageError, at the `option`, for an empty item, a name that is given twice, and `=` without a name.
    """
    seen: set[str] = set()
    for text in [texts] if isinstance(texts, str) else texts or ():
        for item in split_items(text, option):
            item = item.replace(" ", "")
            name, equals, value = item.partition("=")
            if equals and not name:
                raise UsageError(f"{item!r} names nothing", where=option, hint=f"write {option} NAME=VALUE")
            name, value = (name, value) if equals else ("", item)
            if name in seen:
                what = f"{name or 'a plain number'} is given twice"
                raise UsageError(what, where=option, hint="leave one of them out")
            seen.add(name)
            yield item, name, value


def _listing(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
