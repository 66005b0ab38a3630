"""The entry point of `autotune` and `python -m autotune`.

Other people's builds call `autotune best`, so it starts with the standard library alone. The command line (cli/)
handles everything else, and anything unusual about `best`.

The standard streams may be closed, full, closed by their reader, or ASCII only. Data that cannot be written is an
OutputError; messages that cannot be written to stderr are dropped silently. Characters that a stream's encoding lacks
are written as `\\u00b5`, which JSON, TOML and people can read.
"""

from __future__ import annotations

import atexit
import codecs
import gc
import io
import os
import signal
import sys
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, TextIO

from autotune.errors import OutputError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_ESCAPE = "autotune.escape"

_RUNNING = ("search", "check", "compare", "cover", "new", "verify")
"""Commands that run kernels, or compile them."""

_ASKING = ("devices", "studies", "worker")
"""Commands that ask for devices, but run no kernel in child processes."""

_LOOKING = ("check", "compare", "cover", "export", "history", "import", "report")
"""Commands that may ask for devices once everything is imported. Some of `_RUNNING` are here too: they may run none."""

_HELP = ("--help", "-h")

_NOT_HERE = (*_HELP, "--no-run", "--no-search", "--on", "--server")
"""Options with which these commands run no kernels, or not in child processes."""

_GARBAGE = 50_000
"""How many new objects make Python collect garbage: imports create many objects, but no garbage."""

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
"""Signals that ask a command to end, besides Ctrl-C: `timeout`, service managers and closed terminals send them."""

_interrupted = threading.Event()
"""Set once such a signal or Ctrl-C has come: a library may turn the KeyboardInterrupt into another error, as pydantic
does while it builds its models."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    prepare_streams()
    for number in _ENDINGS:
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` ignores one
            signal.signal(number, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    code: int | str | None = 0
    try:
        try:
            _run(sys.argv[1:])
        except SystemExit as end:  # Typer ends every command like this
            code = end.code
        except (OSError, MemoryError, ImportError, RuntimeError) as error:  # while a command's modules are imported
            from autotune import cli

            code = cli.told(error)
            if code is None:
                raise
        sys.stdout.flush()
    except OutputError as error:
        if error.what:
            print(f"error: {error}", file=sys.stderr)
        code = code or error.exit_code
    except KeyboardInterrupt:  # while a module is imported: the command line catches later ones
        code = _told_of_interrupt()
    except Exception:
        if not _interrupted.is_set():
            raise
        code = _told_of_interrupt()
    # Everything is printed and stored. An interrupt while Python ends would make the command look failed.
    for number in (signal.SIGINT, *_ENDINGS):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def _interrupt(number: int, _: object) -> None:
    """End a command by KeyboardInterrupt, so that what it was writing is removed.

    A second signal, which a shell may send by itself, is ignored; a second Ctrl-C is not.
    """
    _interrupted.set()
    for other in _ENDINGS if number in _ENDINGS else ():
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def _told_of_interrupt() -> int:
    """Say that a command was interrupted, as the command line does, and return the exit code for that."""
    print("interrupted", file=sys.stderr)
    return 130


def command() -> None:
    """Run the command line, and end this process as soon as there is nothing left to do.

    The usual clean-up of Python's modules and of drivers would take another .2 s.
    """
    gc.set_threshold(_GARBAGE)
    try:
        main()
    except SystemExit as end:
        others = [one for one in threading.enumerate() if one is not threading.main_thread() and not one.daemon]
        if others or not isinstance(end.code, int):
            raise
        atexit._run_exitfuncs()
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(end.code)


def _run(words: list[str]) -> None:
    if words[:1] == ["best"]:
        from autotune.lookup import asking

        asked = asking.parse(words[1:])
        if asked is not None:
            sys.exit(asking.run(asked, asking.find_apart))
    from autotune import pool

    pool.bound_threads()
    with ExitStack() as while_running:
        elsewhere = _HELP if words[:1] == ["worker"] else _NOT_HERE  # its --on means this machine's devices
        here = {word.partition("=")[0] for word in words}.isdisjoint(elsewhere)
        if words[:1] and words[0] in _ASKING and here:
            pool.list_apart()
        elif words[:1] and words[0] in _RUNNING and here:
            while_running.enter_context(pool.quick_turns())
            pool.prepare_and_list()  # two processes import at once
        elif words[:1] and words[0] in _LOOKING and set(_HELP).isdisjoint(words):
            pool.list_when_asked()
        from autotune import cli

        cli.run(words)


def prepare_streams() -> None:
    """Replace the standard streams of this process. Call it once, before anything is opened."""
    # The next file opened would get the number of a closed stream, and receive what drivers write to stderr.
    # A closed stdout is opened for reading, so that writing data to it fails as it should.
    for descriptor, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_RDWR)):
        try:
            os.fstat(descriptor)
        except OSError:
            os.dup2(os.open(os.devnull, mode), descriptor)
    codecs.register_error(_ESCAPE, _escape)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stdout = _text(_Data(1, "w", closefd=False), sys.stdout)
    sys.stderr = _text(_Talk(2, "w", closefd=False), sys.stderr, by_line=True)


class _Data(io.FileIO):
    """Stdout. A failure is reported once: no data stays in buffers to fail again when Python ends."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write. Raises OutputError if that fails."""
        try:
            return super().write(data)
        except OSError as error:
            _drop(self.fileno())
            left = isinstance(error, BrokenPipeError)  # `| head`: the reader needs no more
            raise OutputError("" if left else f"cannot be written: {error.strerror}", where="stdout") from None


class _Talk(io.FileIO):
    """Stderr: a command goes on even if its messages cannot be written."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, or drop the data if that fails."""
        try:
            return super().write(data)
        except OSError:
            _drop(self.fileno())
            return memoryview(data).nbytes


def _drop(descriptor: int) -> None:
    """Discard all that is written to the descriptor from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _text(raw: io.FileIO, old: TextIO | None, *, by_line: bool = False) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=getattr(old, "encoding", None) or "utf-8",
        errors=_ESCAPE,
        line_buffering=by_line or raw.isatty(),
        write_through=getattr(old, "write_through", False),
    )


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Return the replacement of characters that cannot be encoded: UTF-16 units as JSON writes them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)), error.end


if __name__ == "__main__":
    command()
