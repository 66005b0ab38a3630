"""The search's side of one worker process: starts it, talks to it, and ends it when it dies or exceeds a limit."""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from autotune.bench import DOING, Phase, Report, undeclared
from autotune.errors import AutotuneError, SetupError, StudyError, WorkerError, ending
from autotune.model import Outcome
from autotune.pool.allowance import MORE_ROOM, lacks_processes
from autotune.pool.answers import ANSWERS, is_answer
from autotune.pool.worker import FAULTS, command_of

log = logging.getLogger(__name__)

IDLE = "idle"
"""The phase of a worker that has answered."""

_RUNNING = ("launch", "run", "verify")
"""The phases in which a kernel runs."""

_ASKING_S = 0.1
"""How often `gives_up` is called."""

_BEAT_S = 1.0
"""How often a waiting thread looks at the clock: if a wait took much longer, the whole container or machine paused."""

_LAST_WORDS = 2**16
"""Bytes at the end of a log in which a worker's last words are searched: a kernel may print for hours."""

_KILL_S = 60.0
"""How long to wait for a killed process: a driver may take a while to release a device, or never do so."""

_OUTSIDE = "if it accesses memory outside its buffers, fix their shape, the data that holds indices, or its launch"
_DIVIDES = "if it divides whole numbers by 0, fix its arguments or its data"
_CORRUPTED = re.compile(r"malloc|free\(\)|corrupt")
"""What glibc says before it ends a process whose memory a kernel has overwritten."""

_CHILDREN_S = 0.5
"""How long to wait at most for the children of a halted builder."""


class WorkerDied(WorkerError):
    """The process has ended; `signal` is what killed it, or 0 if it ended by itself.

    `place` is the index of its current plan, if it times several; `hints` say what may be wrong with that plan.
    """

    outcome = Outcome.CRASH

    def __init__(self, phase: str, place: int, killed_by: int, last_words: str, hints: Sequence[str] = ()) -> None:
        self.phase = phase
        self.place = place
        self.signal = killed_by
        how = ending(-killed_by) if killed_by else "it ended by itself"
        words = f": {last_words}" if last_words else ""
        said = f"the worker died while it {DOING.get(phase, phase)} ({how}){words}"
        cause = _cause(killed_by, last_words) if phase in _RUNNING else ""
        super().__init__("; ".join(filter(None, (said, cause, *hints))))


def _cause(killed_by: int, last_words: str) -> str:
    """Return what a kernel may have done to end its worker, and what to look at; empty if that is not known."""
    if killed_by in (signal.SIGSEGV, signal.SIGBUS) or (killed_by == signal.SIGABRT and _CORRUPTED.search(last_words)):
        return _OUTSIDE
    return _DIVIDES if killed_by == signal.SIGFPE else ""


class WorkerOverran(WorkerError):
    """The worker did not finish a phase in time, or was given up earlier, and was killed. `hints`: see `WorkerDied`."""

    outcome = Outcome.TIMEOUT

    def __init__(self, phase: str, place: int, limit_s: float, hints: Sequence[str] = ()) -> None:
        self.phase = phase
        self.place = place
        said = f"no answer within {limit_s:.3g} s while the worker {DOING.get(phase, phase)}; killed"
        super().__init__("; ".join((said, *hints)))


def not_started(role: str, error: WorkerDied | WorkerOverran) -> AutotuneError:
    """Return the error of a worker that ends before its first trial: until then it runs only the reference's kernel."""
    if isinstance(error, WorkerOverran) and error.phase == "run":
        hint = "ask for a smaller --size, or give a run more time by --run-limit"
        return WorkerError(f"the reference does not finish: {error}", hint=hint)
    if isinstance(error, WorkerDied) and error.phase in _RUNNING and error.signal in FAULTS:
        return StudyError(f"its kernel ended the worker: {error}", where="reference")
    hint = lacks_processes() or f"stored trials are kept; {_again(error)}"
    return WorkerError(f"the {role} worker cannot start: {error}", hint=hint)


def _again(error: WorkerDied | WorkerOverran) -> str:
    if isinstance(error, WorkerOverran):
        return "type the same again once the machine has less to do"
    if error.signal == signal.SIGKILL:
        return "type the same again once the machine has memory to spare"
    return "with AUTOTUNE_KEEP=1 before the command, the worker's folder is kept, with its log and its driver's"


GivesUp = Callable[[str, float], bool]


class Process(Protocol):
    """A process that was started, with the interface of `subprocess.Popen`."""

    pid: int

    def send_signal(self, number: int, /) -> None: ...

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


Start = Callable[[str, int, int, Mapping[str, str]], Process]
"""Starts a worker of a role with descriptors of a connection and a log, and environment variables.

Raises OSError if something ended a process that this needs; ChildProcessError, with its last words, if it ended by
itself."""


def spawned(role: str, connection: int, log: int, environment: Mapping[str, str]) -> Process:
    """Start `python -m autotune.pool.worker`, which imports everything for itself."""
    return subprocess.Popen(
        command_of("autotune.pool.worker", role, str(connection), str(os.getpid())),
        env={**os.environ, **environment},
        pass_fds=[connection],
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


class WorkerProcess:
    """One worker, in a process session of its own, so that a Ctrl-C at the terminal does not reach it."""

    def __init__(self, role: str, folder: Path, environment: Mapping[str, str], start: Start | None = None) -> None:
        """Start it with a log in `folder` and variables added to this process's. Raises WorkerDied, SetupError."""
        ends: tuple[socket.socket, ...] = ()
        try:
            ends = ours, theirs = socket.socketpair()
            self._log = folder / f"{role}-{theirs.fileno()}-{time.monotonic_ns()}.log"
            words = self._log.open("wb")
        except OSError as error:
            for end in ends:
                end.close()
            hint = f"{MORE_ROOM}; `ulimit -n` says how many files may be open"
            raise SetupError(f"the {role} worker cannot start: {error.strerror}", hint=hint) from None
        self._connection = Connection(ours.detach())
        with theirs, words as log:
            try:
                self._process = (start or spawned)(role, theirs.fileno(), log.fileno(), environment)
            except OSError as error:
                self._connection.close()
                itself = isinstance(error, ChildProcessError)
                raise WorkerDied("start", 0, 0 if itself else signal.SIGKILL, str(error) if itself else "") from None
        self.pid = self._process.pid
        self.phase = "start"
        self._place = 0
        self._hints: tuple[str, ...] = ()
        self._said = 0  # bytes of the log that belong to earlier messages
        self._halted_s = self._lapsed_s = 0.0
        self._halted_since: float | None = None
        self._woken = False  # since the last message to it
        self._asked: Any = None
        self._may_ask = True  # whether it may ask for its turn: not once it has it

    def send(self, message: Any) -> None:
        """Send one message. Raises WorkerDied."""
        self._place, self._hints, self._woken = 0, (), False
        self._may_ask = type(message) in ANSWERS
        if self._may_ask:
            self._asked = message
        log.debug("to worker %d: %.300r", self.pid, message)
        try:
            self._connection.send(message)
        except OSError:
            raise self._died() from None

    def receive(self, limit_s: float, gives_up: GivesUp | None = None) -> Any:
        """Return the next answer; each Phase on the way sets a new limit. Raises WorkerDied, WorkerOverran.

        Time for which the worker was halted, or the whole container or machine was paused, does not count. `gives_up`
        is called regularly with the phase and its seconds so far, and says whether to give the worker up before its
        limit. A worker that somebody else has stopped is continued at its limit, and gets the limit once more.
        """
        since = self._clock()
        wait_s = _BEAT_S if gives_up is None else _ASKING_S
        while True:
            try:
                while not self._hears(min(max(0.0, since + limit_s - self._clock()), wait_s)):
                    elapsed = self._clock() - since
                    if elapsed >= limit_s or (gives_up is not None and gives_up(self.phase, elapsed)):
                        if elapsed >= limit_s and self._wake():
                            since = self._clock()
                            continue
                        self.kill()
                        hints = self._hints if self.phase == "run" else ()  # they do not explain a slow compiler
                        raise WorkerOverran(self.phase, self._place, min(elapsed, limit_s), hints)
                message = self._connection.recv()
            except WorkerOverran:
                raise
            except Exception:  # the pipe ended, or a kernel wrote into it what cannot be unpickled
                raise self._died() from None
            log.debug("worker %d: %.300r", self.pid, message)
            if not is_answer(self._asked, message, may_ask=self._may_ask):
                raise self._died("its messages cannot be understood")
            if not isinstance(message, Phase):
                self.phase = "start" if message is None else IDLE
                with suppress(FileNotFoundError):  # when closing, the folder may be removed before
                    self._said = self._log.stat().st_size
                return message
            self.phase, limit_s = message.name, message.limit_s
            self._place, self._hints = message.place, message.hints
            since = self._clock()

    def _hears(self, seconds: float) -> bool:
        """Say whether a message comes within `seconds`. If that took a beat longer, the container or machine paused."""
        before = time.monotonic()
        comes = self._connection.poll(seconds)
        lapse_s = time.monotonic() - before - seconds
        if lapse_s > _BEAT_S and self._halted_since is None:  # else halting already excludes this time
            self._lapsed_s += lapse_s
        return comes

    def halt(self) -> None:
        """Stop the process until `go_on`, and wait for the linker that it may have started."""
        self._process.send_signal(signal.SIGSTOP)
        self._halted_since = time.monotonic()
        # Children are not stopped: a stopped child that outlived a killed search would stay for ever.
        deadline = self._halted_since + _CHILDREN_S
        while _has_running_child(self.pid) and time.monotonic() < deadline:
            time.sleep(0.001)

    def go_on(self) -> None:
        """Let the halted process continue."""
        if self._halted_since is not None:
            self._halted_s += time.monotonic() - self._halted_since
            self._halted_since = None
        self._process.send_signal(signal.SIGCONT)

    def _wake(self) -> bool:
        """Continue the process if somebody else has stopped it, once for each message: a kernel may do that too."""
        if self._woken or self._halted_since is not None or state_of(self.pid) != "T":
            return False
        log.warning("worker %d was stopped (SIGSTOP); it goes on", self.pid)
        self._woken = True
        self._process.send_signal(signal.SIGCONT)
        return True

    def stop(self) -> None:
        """Kill the process. The thread that talks to it will notice, and do the rest."""
        self._process.kill()

    def kill(self) -> None:
        """Kill the process, whatever it is doing, and wait until it has ended, but not for ever."""
        self._process.kill()
        try:
            self._process.wait(_KILL_S)
        except subprocess.TimeoutExpired:
            log.warning("worker %d was killed and does not end: a driver holds it in the system", self.pid)
        self._connection.close()

    def _clock(self) -> float:
        """Return a time in seconds that stands still while the worker is halted or this process is paused."""
        now = time.monotonic()
        halted_since = self._halted_since  # read once: another thread halts
        return now - self._lapsed_s - self._halted_s - (now - halted_since if halted_since is not None else 0.0)

    def _died(self, said: str = "") -> WorkerDied:
        try:
            code = self._process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:  # it closed the connection but still runs: it is useless anyway
            code = 0
        self.kill()
        with suppress(FileNotFoundError), self._log.open("rb") as log:
            log.seek(max(self._said, log.seek(0, os.SEEK_END) - _LAST_WORDS))
            said = said or last_words(log.read().decode(errors="replace"))
        return WorkerDied(self.phase, self._place, max(0, -code), said, self._hints)


def last_words(log: str) -> str:
    """Return the last line of a worker's log that may say how it ended, or an empty string if there is none.

    LLVM asks for a bug report at each crash, whatever is at fault: Intel's driver does for each kernel that crashes.
    Compilers count the warnings of each kernel that they build.
    """
    lines = (line.strip() for line in reversed(log.splitlines()))
    return next((line for line in lines if line and not _IDLE.match(line)), "")


_IDLE = re.compile(r"PLEASE submit a bug report|\d+ warnings? generated\.$")
"""Lines of a log that do not say how a worker ended."""


def _has_running_child(pid: int) -> bool:
    """Say whether a process has a child that still runs. Only Linux tells; elsewhere this is False."""
    try:
        children = [path.read_text(encoding="utf-8").split() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    except OSError:  # it has ended meanwhile
        return False
    return any(state_of(child) not in ("Z", "") for child in chain(*children))


def state_of(pid: int | str) -> str:
    """Return the letter of a process's state, or an empty string if it has ended or the system does not tell."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    except OSError:
        return ""


def unready(role: str, answer: Report) -> AutotuneError:
    """Return the error of a worker that answers its set-up with a report: the study's fault if it ran the reference.

    The device is not at fault: a kernel known to be right has run there before.
    """
    if not answer.phase:
        return WorkerError(f"the {role} worker cannot start: {answer.reason}", detail=answer.build_log)
    if answer.outcome is Outcome.CRASH:
        return StudyError(f"its kernel ended the worker: {answer.reason}", where="reference", hint=_OUTSIDE)
    hint = 'fix its kernel or launch, or give another reference: numpy = { OUTPUT = "..." }'
    if undeclared(answer.build_log):
        hint = "its kernel is built with the choices and those [defines] that need no parameter: name it there"
    return StudyError(answer.reason, where="reference", hint=hint, detail=answer.build_log)
