"""Printing: data to stdout, everything else to stderr; tables, JSON and errors in one place.

Everything printed goes through here and is made safe for a terminal: it may contain text of others.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from autotune.errors import UsageError
from autotune.text import in_quotes, line, lines, plain, to_open
from autotune.text import say as say

if TYPE_CHECKING:  # Rich is imported by what lays something out
    from rich.console import Console
    from rich.table import Table

WIDE = 240
"""Columns of a table that is written to a file or a pipe, where nothing is cut."""

MOST_VALUES = 16
"""How many values of a parameter are shown: as many as a reader looks at."""


def first_of(many: Sequence[object]) -> str:
    """Return the first `MOST_VALUES` of many, and how many more there are."""
    left = len(many) - MOST_VALUES
    return ", ".join(map(str, many[:MOST_VALUES])) + f" and {left} more" * (left > 0)


def stdout() -> Console:
    """A console on the current stdout, wide if that is not a terminal."""
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else WIDE, highlight=False)


def stderr() -> Console:
    """A console on the current stderr."""
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False)


def announce(text: str) -> None:
    """Print a line on stderr; on a terminal it is wrapped between words."""
    from rich.text import Text

    console = stderr()
    console.print(Text(line(text)), soft_wrap=not console.is_terminal)


def warn(text: str) -> None:
    """Print a warning line on stderr."""
    say(f"warning: {text}")


def write(text: str) -> None:
    """Print data of one or several lines on stdout."""
    sys.stdout.write(lines(text if text.endswith("\n") else text + "\n"))


def write_json(value: Any) -> None:
    """Print JSON on stdout; NaN becomes null."""
    known = plain(value, nulls=True)
    write(in_quotes(json.dumps(known, indent=2, ensure_ascii=False, allow_nan=False, default=str), pairs=True))


def opened_bytes(file: Path | None) -> AbstractContextManager[IO[bytes]]:
    """Open the FILE of a command for reading bytes; without one, or for `-`, stdin. Raises UsageError."""
    if file is None or str(file) == "-":
        if sys.stdin is None:
            raise UsageError("is closed", where="stdin", hint="give a FILE")
        return nullcontext(sys.stdin.buffer)
    try:
        return file.open("rb")
    except OSError as error:
        hint = to_open(str(file), error)
        raise UsageError(f"cannot be opened: {error.strerror}", where=str(file), hint=hint) from error


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> None:
    """Print a table on stdout; columns named in `right` hold numbers.

    Long cells are wrapped between words. If a terminal is too narrow for that, each row is a paragraph.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    cells = [[line(cell) for cell in row] for row in rows]
    widths = _widths([*zip(headings, *cells, strict=True)], stdout().width - _BETWEEN * (len(headings) - 1))
    if widths is None:
        for at, row in enumerate(cells):
            sys.stdout.write("\n" * (at > 0))
            facts(zip(headings, row, strict=True))
        return
    shown = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading, width in zip(headings, widths, strict=True):
        shown.add_column(line(heading), width=width, justify="right" if heading in right else "left")
    for row in cells:
        shown.add_row(*map(Text, row))
    _print(shown)


_BETWEEN = 3
"""Blanks between the columns of a table."""


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Return the width of each column so that no word in a cell is broken, or None if there is no room for that."""
    from rich.cells import cell_len

    least = [max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    wanted = [max(map(cell_len, column)) - width for column, width in zip(columns, least, strict=True)]
    spare, found = room - sum(least), list(least)
    if spare < 0:
        return None
    order = sorted(range(len(columns)), key=wanted.__getitem__)
    for done, at in enumerate(order):  # columns that need little get it, and the others share the rest
        more = min(wanted[at], spare // (len(order) - done))
        found[at], spare = found[at] + more, spare - more
    return found


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns on stdout; rows without a value are left out.

    Long lines are wrapped between words, except commands: copied in parts, they would not run.
    """
    from rich.text import Text

    shown = [(line(name), lines(value)) for name, value in rows if value]
    console, indent = stdout(), max((len(name) for name, _ in shown), default=0) + 2
    for name, value in shown:
        parts = [part for row in value.splitlines() for part in _wrapped(row, console.width - indent)]
        for head, part in zip_longest([name], parts, fillvalue=""):
            text = Text.assemble((head, "bold"), " " * (indent - len(head)), part)
            text.rstrip()
            console.print(text, soft_wrap=True)


def _wrapped(row: str, width: int) -> list[str]:
    if row.startswith("autotune "):
        return [row]
    return textwrap.wrap(row, max(20, width), break_on_hyphens=False, break_long_words=False) or [""]


def _print(shown: Table) -> None:
    """Print a table without the blanks that pad its lines."""
    console = stdout()
    with console.capture() as captured:
        console.print(shown)
    # Each cell is already safe; the rest are Rich's own colours, which `write` would escape.
    sys.stdout.write("".join(row.rstrip() + "\n" for row in captured.get().splitlines()))
