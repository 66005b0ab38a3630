"""Every error that this package raises on purpose, with the exit code that the command line gives it.

    AutotuneError              1   nothing usable came out: no verified configuration, nothing stored
    ├── UsageError             2   the input is wrong; the user can correct it
    │   ├── ExpressionError        an expression of a study
    │   ├── StudyError             a study file or its kernel
    │   ├── SpaceError             no configuration is valid
    │   ├── DeviceError            no such device, or one the study cannot use
    │   └── StoreError             a database that cannot be read or written
    ├── SetupError             3   the machine lacks something (a driver, a linker); the message says what to install
    ├── OutputError            1   stdout cannot be written
    └── WorkerError            4   a worker process died or overran; pool/ turns it into an outcome

A message says what is wrong, where, and what to type next, in one line (a build log may follow). The line stays
readable whatever it quotes: the middle of very long words and parts is left out.

Also here: `without` hides warnings of libraries for a while; `ending` says how a process has ended; `counting_told`
reports how far counting a space is, and can end it.
"""

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import NamedTuple

_MOST = {"where": 300, "what": 600, "hint": 3000}
"""The most characters of each part of a line. A hint may be a long command, which the user must be able to copy."""

_MOST_WORD = 100
"""The most characters of a word in `what` that is not a path: it may quote any input."""


class AutotuneError(Exception):
    """Base of all errors of this package: `where: what; hint`, and `detail` (a log) below it."""

    exit_code = 1

    def __init__(self, what: str, *, where: str = "", hint: str = "", detail: str = "") -> None:
        self.what = what
        self.where = where
        self.hint = hint
        self.detail = detail
        super().__init__(what)

    def __str__(self) -> str:
        where, what, hint = self.parts()
        line = f"{where}: {what}" if where else what
        return f"{line}; {hint}" if hint else line

    def parts(self) -> tuple[str, str, str]:
        """Return where, what and the hint, shortened so that they can be read."""
        # A path may contain any character: invisible ones, such as a line break, are escaped.
        where = self.where if self.where.isprintable() else repr(self.where)
        what = " ".join(word if "/" in word else _cut(word, _MOST_WORD) for word in self.what.split(" "))
        told = {"where": where, "what": what, "hint": self.hint}
        where, what, hint = (shortened(text, _MOST[part]) for part, text in told.items())
        return where, what, hint

    def at(self, where: str) -> "AutotuneError":
        """Return this error with `where` put first (outermost first: file, then key), unless it is there already."""
        known, place = (text.removeprefix("./") for text in (self.where, where))
        if known != place and not known.startswith(f"{place}: "):
            self.where = f"{where}: {self.where}" if self.where else where
        return self


def shortened(text: str, most: int = _MOST["what"]) -> str:
    """Return a text, shortened if it has more than `most` characters: first its long words, then the whole text."""
    return text if len(text) <= most else _cut(" ".join(_cut(word, 80) for word in text.split(" ")), most)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 3 :]}"


class UsageError(AutotuneError):
    """The input is wrong; the user can correct it."""

    exit_code = 2


class ExpressionError(UsageError):
    """An expression that does not parse, uses an unknown name or leaves the bounds."""


class StudyError(UsageError):
    """A study file, or the kernel it names, is wrong or missing."""


class SpaceError(UsageError):
    """The constraints leave no valid configuration, or a configuration is not valid."""


class DeviceError(UsageError):
    """No device answers the selector, or the study cannot run on it."""


class StoreError(UsageError):
    """The database is missing, read-only, corrupt, newer than this program, or on a network."""


class SetupError(AutotuneError):
    """The machine lacks something; the message says what to install."""

    exit_code = 3


class OutputError(AutotuneError):
    """Stdout cannot be written: closed, full, or its reader has left (then `what` is empty, and nothing is said)."""


class WorkerError(AutotuneError):
    """A worker process died, overran its time or answered nonsense."""

    exit_code = 4


def ending(code: int) -> str:
    """Return how a process has ended, by its exit code: `exit code 1`, or the name of a signal, `SIGABRT`."""
    from signal import Signals

    if code >= 0:
        return f"exit code {code}"
    return next((each.name for each in Signals if each == -code), f"signal {-code}")  # most real-time ones have no name


@contextmanager
def placed(where: str, kind: type[AutotuneError] = StudyError) -> Iterator[None]:
    """Add a place to errors of a kind that are raised in the block: see `AutotuneError.at`."""
    try:
        yield
    except kind as error:
        raise error.at(where) from None


_lock = threading.Lock()
_within: dict[type[Warning], int] = {}


@contextmanager
def without(category: type[Warning]) -> Iterator[None]:
    """Hide warnings of a category while any thread of the process is in such a block.

    Python's filters belong to the whole process, and `warnings.catch_warnings` restores what it found. With two threads
    the last to leave would restore the other's filter, and hide the program's own warnings for ever.
    """
    entry = ("ignore", None, category, None, 0)
    with _lock:
        _within[category] = _within.get(category, 0) + 1
        if _within[category] == 1:
            warnings.filters.insert(0, entry)  # type: ignore[attr-defined]  # an equal one may be the program's own
    try:
        yield
    finally:
        with _lock:
            _within[category] -= 1
            if not _within[category]:
                with suppress(ValueError):  # the program has replaced the filters
                    warnings.filters.remove(entry)  # type: ignore[attr-defined]


class Counted(NamedTuple):
    """How far counting a space is: the parameter at work, its place among the `parameters`, and a share, 0..1."""

    parameter: str
    place: int
    parameters: int
    share: float


_lookers_on: ContextVar[tuple[Callable[[Counted], None], ...]] = ContextVar("lookers_on", default=())


@contextmanager
def counting_told(looker_on: Callable[[Counted], None]) -> Iterator[None]:
    """Have `looker_on` called while a space is counted within the block, in this thread, many times a second.

    An exception that it raises ends the counting. A space is built wherever it is first needed, by rooms that know
    nothing of terminals.
    """
    before = _lookers_on.set((*_lookers_on.get(), looker_on))
    try:
        yield
    finally:
        _lookers_on.reset(before)


def tell_counted(counted: Counted) -> None:
    """Call everybody who was given to `counting_told`."""
    for looker_on in _lookers_on.get():
        looker_on(counted)
