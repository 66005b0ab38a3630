"""The entry of `autotune` and `python -m autotune`.

`autotune best` is on the path of other people's builds: it starts with the standard library alone. Everything
else, and anything unusual about `best`, is the command line's.

The standard streams may be closed, full, left by their reader, ASCII only. Data that cannot be written is an
OutputError; what is said on stderr is lost in silence where nobody can be told. Characters that a stream's encoding
lacks are written as `\\u00b5`, which JSON, TOML and people can read.
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
"""Commands that ask for devices, and run no kernel in processes of this one."""

_LOOKING = ("check", "compare", "cover", "export", "history", "import", "report")
"""Commands that ask for devices if at all, once all is imported: without kernels to run, these of the others too."""

_HELP = ("--help", "-h")

_NOT_HERE = (*_HELP, "--no-run", "--no-search", "--on", "--server")
"""Options with which they do not, or not in processes of this one."""

_GARBAGE = 50_000
"""New objects before Python looks for garbage: imports make many, and none that are garbage."""

_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
"""What asks a command to end beside Ctrl-C: `timeout`, a service manager, a closed terminal."""

_interrupted = threading.Event()
"""One of these has come. A library may have made another error of it: pydantic does, while it builds its models."""


def main() -> None:
    """Run the command line and leave with its exit code."""
    prepare_streams()
    for number in _ENDINGS:
        if signal.getsignal(number) is signal.SIG_DFL:  # `nohup` has one ignored
            signal.signal(number, _interrupt)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    code: int | str | None = 0
    try:
        try:
            _run(sys.argv[1:])
        except SystemExit as end:  # how Typer ends a command, done or not
            code = end.code
        except (OSError, MemoryError, ImportError, RuntimeError) as error:  # as what a command needs is imported
            from autotune import cli

            code = cli.told(error)
            if code is None:
                raise
        sys.stdout.flush()
    except OutputError as error:
        if error.what:
            print(f"error: {error}", file=sys.stderr)
        code = code or error.exit_code
    except KeyboardInterrupt:  # while a module is imported: the command line itself catches what comes later
        code = _told_of_interrupt()
    except Exception:
        if not _interrupted.is_set():
            raise
        code = _told_of_interrupt()
    # All is said and stored. Python, on its way out, would let an interrupt kill it as if it were not.
    for number in (signal.SIGINT, *_ENDINGS):
        signal.signal(number, signal.SIG_IGN)
    sys.exit(code)


def _interrupt(number: int, _: object) -> None:
    """End a command: what it was writing goes. A second may come by itself, from a shell, but of Ctrl-C."""
    _interrupted.set()
    for other in _ENDINGS if number in _ENDINGS else ():
        signal.signal(other, signal.SIG_IGN)
    raise KeyboardInterrupt


def _told_of_interrupt() -> int:
    """Say that a command was interrupted, as the command line does, and return the exit code of that."""
    print("interrupted", file=sys.stderr)
    return 130


def command() -> None:
    """Run the command line, and end this process as soon as nothing is left to be done in it.

    That Python takes apart what it has imported, and a driver what it holds, would take another .2 s.
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
        elsewhere = _HELP if words[:1] == ["worker"] else _NOT_HERE  # whose --on takes this machine's devices
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
    # A file opened next would get the number of a closed stream, and what drivers say on stderr would end up in it.
    # Nothing can be written to what is open for reading: data for a closed stdout fails as it should.
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
    """Stdout. What fails is said once: nothing is left in buffers that would fail again as Python ends."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write; OutputError where it fails."""
        try:
            return super().write(data)
        except OSError as error:
            _drop(self.fileno())
            left = isinstance(error, BrokenPipeError)  # `| head`: its reader has what it wanted
            raise OutputError("" if left else f"cannot be written: {error.strerror}", where="stdout") from None


class _Talk(io.FileIO):
    """Stderr: a command does its work also where nobody listens."""

    def write(self, data: ReadableBuffer, /) -> int:
        """Write, or lose it."""
        try:
            return super().write(data)
        except OSError:
            _drop(self.fileno())
            return memoryview(data).nbytes


def _drop(descriptor: int) -> None:
    """Let whatever is still written there vanish."""
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
    """What stands for characters that cannot be encoded: UTF-16 units as JSON writes them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2)), error.end


if __name__ == "__main__":
    command()
