"""The object that a program holds and calls: a study's kernel at one size, in the best known configuration."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

from autotune import devices, lookup, tuner
from autotune.api import asked
from autotune.api.ready import Bound, Ready
from autotune.api.tuning import Tuning
from autotune.devices import Event
from autotune.errors import DeviceError, UsageError
from autotune.identity import Choices, Configuration, Size
from autotune.lookup import Best, Match, warm
from autotune.model import DeviceInfo
from autotune.pool import Settings
from autotune.study import Buffer, Problem, Scalar, Study
from autotune.text import size as size_text
from autotune.text import time as time_text
from autotune.tuner import Budget, Request, Result

_MOST_QUEUES = 32
"""Queues whose kernels are kept ready; if there are more, the one bound first is forgotten."""


@dataclass
class _Model:
    """What is known of one model of device. `ready` is replaced as a whole: each call uses the current object."""

    info: DeviceInfo
    ready: Ready


class TunedKernel:
    """A study's kernel at one size and with its choices, ready to be called: `kernel(queue, A=a, B=b, C=c)`.

    `autotune.tuned` creates it. Any number of threads may call it, on any number of queues. It stays the same while the
    program runs, except for `refresh` and a search of its own, which swap the configuration between two calls.
    """

    def __init__(
        self, study: Study, size: Size, choices: Choices, device: DeviceInfo, *, only: bool, database: str | None
    ) -> None:
        self.study = study
        self._size, self._choices, self._database = size, choices, database
        self._only = only  # exactly that device was asked for
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._searches = threading.RLock()  # held during a search that is not in the background
        self._bound: dict[Any, Bound] = {}
        self._tuning: Tuning | None = None
        self._searched = False
        self._models: dict[tuple[str, str], _Model] = {}
        self._main = self._model(device)

    def __repr__(self) -> str:
        best = self.best
        asked = (best.measured_size, best.measured_on) == (best.size, best.device)
        took = f", {time_text(best.time_ns)}" if best.time_ns is not None and asked else ""
        what = " ".join(filter(None, (best.study, size_text(best.size))))
        return f"<tuned {what} on {best.device}: {best.match}{took}>"

    def __reduce__(self) -> NoReturn:
        """Raise a clear error if it is pickled or copied: queues and programs cannot leave their process."""
        hint = f"call autotune.tuned({self.study.name!r}, ...) in the process that uses it"
        raise UsageError("a tuned kernel cannot be sent to another process", where=self.study.name, hint=hint)

    # What it is ------------------------------------------------------------------------------------------

    @property
    def best(self) -> Best:
        """The record from the look-up: configuration, match, options, time, and where it was measured."""
        return warm.own(self._main.ready.best)

    @property
    def match(self) -> Match:
        """How the stored result relates to the question: `exact`, ... `default` if nothing was stored."""
        return self.best.match

    @property
    def configuration(self) -> Configuration:
        """The value of each parameter."""
        return self.best.configuration

    @property
    def size(self) -> dict[str, int]:
        """The problem size that it computes."""
        return dict(self._main.ready.problem.size)

    @property
    def arguments(self) -> dict[str, Buffer | Scalar]:
        """What a call takes, by name: memory with type, shape and allocated extents; a scalar with its default."""
        return {name: slot.argument for name, slot in self._main.ready.slots.items()}

    @property
    def ends(self) -> dict[str, str]:
        """If a loop swaps buffers: for each output, the given buffer that contains it at the end."""
        return dict(self._main.ready.ends)

    def best_on(self, queue: object) -> Best:
        """Return the record that calls on a queue use, which is that of the queue's device."""
        return warm.own(self._bind(queue).ready.best)

    # Calls -----------------------------------------------------------------------------------------------

    def __call__(self, queue: Any, /, *, wait_for: Iterable[Event] | None = None, **arguments: Any) -> Any:
        """Enqueue the kernel and return the event of its last launch, without waiting.

        `queue`: a pyopencl queue. `arguments`: device arrays and buffers by the study's names, also the outputs.
        Scalars for which the study has a plain number may be given. The kernel sets sizes, derived scalars, local and
        scratch memory by itself. `wait_for`: the events that must come first, in a list or another iterable.

        The first call on a queue builds the kernel, or loads what an earlier process built. Raises UsageError for an
        argument that is missing, unknown, of another type or too small; DeviceError for a device that the kernel was
        not made for, and in a forked child, where drivers lack their threads.
        """
        if os.getpid() != self._process:
            hint = 'start such processes with multiprocessing.get_context("spawn"), and call autotune.tuned there'
            raise DeviceError("was made before this process was forked", where=self.study.name, hint=hint)
        try:
            bound = self._bound[queue]
        except (KeyError, TypeError):
            bound = self._bind(queue)
        return bound(arguments, wait_for)

    def _bind(self, queue: object) -> Bound:
        """Return the kernel on a queue; create it if it does not exist yet."""
        with self._lock:
            try:
                if queue in self._bound:
                    return self._bound[queue]
            except TypeError:
                pass  # cannot be hashed, so it is not a queue
            guest = devices.attach(queue)
            bound = Bound(self._model(guest.info).ready, guest)
            if len(self._bound) >= _MOST_QUEUES:
                del self._bound[next(iter(self._bound))]
            self._bound[queue] = bound
            return bound

    # What changes ----------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Look up again, and use the answer in later calls if it has changed. Return whether it has.

        If there is no answer any more, such as without the database, the study's default is used, with a warning.
        """
        with self._lock:
            swapped = [self._again(model) for model in self._models.values()]
            return any(swapped)

    def _again(self, model: _Model) -> bool:
        was_default, found = model.ready.best.match is Match.DEFAULT, self._ready(model.info)
        if not was_default:
            warn_of_default(found.best)
        return self._swap(model, found)

    @property
    def searching(self) -> bool:
        """Whether a search in the background is running."""
        return self._tuning is not None and self._tuning.running

    @asked.told_as_arguments()
    def wait(self, timeout: float | None = None) -> Result | None:
        """Wait for the search in the background, `timeout` seconds at most, and return what it found.

        Return None if there is no search, or it still runs. Raises the error that ended it, if any.
        """
        seconds = asked.timeout(timeout)
        return None if self._tuning is None else self._tuning.wait(seconds)

    def stop(self) -> None:
        """End the search in the background in order: what it has found is kept and used."""
        if self._tuning is not None:
            self._tuning.stop()

    def tune(self, budget: Budget, *, background: bool = False, allow_python: bool = False) -> None:
        """Search on the device, unless its best is stored or this program has searched already.

        The kernel then uses what was found. For a search in the background, `wait` returns the result. Otherwise
        Ctrl-C ends the search in order and then raises KeyboardInterrupt; after that, or after an error, the next call
        searches again. Another thread that calls this meanwhile waits for the search.
        """
        with nullcontext() if background else self._searches:
            self._tune(budget, background=background, allow_python=allow_python)

    def _tune(self, budget: Budget, *, background: bool, allow_python: bool) -> None:
        with self._lock:
            if self._searched or self.match is Match.EXACT:
                return
            self._searched = True
            model = self._main
            if model.info.index < 0:
                what = f"{model.info.name} is a part of a device, and another process cannot search on it"
                raise DeviceError(what, where=self.study.name, hint="search on the whole device")
            settings = Settings(allow_python=allow_python or callable(self.study.reference.function))
            request = Request(
                Problem(self.study, self._size, self._choices, model.info),
                database=self._database,
                budget=budget,
                settings=settings,
            )
            if background:
                self._tuning = Tuning(request, self._searched_for)
                return
        try:
            result = tuner.run(request)
            self._searched_for(result)
            if result.reason == "interrupted":
                raise KeyboardInterrupt
        except BaseException:
            self._searched = False
            raise

    def _searched_for(self, result: Result) -> None:
        model = self._main
        if result.best is None:
            what = "found no configuration that passed"
            if not result.trials + result.reused:
                cure = "" if result.reason == "interrupted" else ": give it more time"
                what = f"ended before its first trial ended ({result.reason}){cure}"
            warnings.warn(f"{self!r}: the search {what}", stacklevel=_caller())
            return
        found, before = self._ready(model.info), model.ready
        if (found.extents, found.ends) != (before.extents, before.ends) and self._bound:
            # The caller's arrays fit the earlier configuration only: later calls of the program would fail.
            warnings.warn(
                f"{self!r}: the best found pads its arrays in another way; refresh() uses it", stacklevel=_caller()
            )
            return
        self._swap(model, found)

    def _swap(self, model: _Model, ready: Ready) -> bool:
        """Switch calls to another configuration, after building it for all queues: no call waits for a build."""
        before = model.ready
        if (ready.best.configuration, ready.plan) == (before.best.configuration, before.plan):
            before.best = ready.best  # its match or time may have changed
            return False
        while True:
            queues = {queue: bound for queue, bound in list(self._bound.items()) if bound.ready is before}
            made = {queue: Bound(ready, bound.guest) for queue, bound in queues.items()}
            with self._lock:
                if all(queue in made for queue, bound in self._bound.items() if bound.ready is before):
                    self._bound.update({queue: bound for queue, bound in made.items() if queue in self._bound})
                    model.ready = ready
                    return True

    # Looking up ------------------------------------------------------------------------------------------

    def _model(self, info: DeviceInfo) -> _Model:
        """Return what is known of a device's model; look it up if it was not yet. Raises DeviceError."""
        key = (info.fingerprint, info.driver)
        if key not in self._models:
            if self._only and self._models:
                raise DeviceError(
                    f"the queue is on {info.name}, but this kernel is for {self._main.info.name}",
                    where=self.study.name,
                    hint=f"autotune.tuned(..., device={info.fingerprint!r})",
                )
            self._models[key] = _Model(info, self._ready(info))
            if self._models[key] is not next(iter(self._models.values())):  # the creator warns for the first
                warn_of_default(self._models[key].ready.best)
        return self._models[key]

    @asked.told_as_arguments()
    def _ready(self, info: DeviceInfo) -> Ready:
        problem = Problem(self.study, self._size, self._choices, info)
        known = (self.study.text, problem.size, problem.choices, info.fingerprint)
        return Ready(problem, lookup.best(*known, database=self._database, device=info))


def warn_of_default(best: Best) -> None:
    """Warn if nothing stored could answer the look-up."""
    if best.match is Match.DEFAULT:
        warnings.warn(
            f"nothing is stored for {best.study} on {best.device} in {best.database}: it runs with its defaults, "
            "not tuned; search=40 searches for 40 s at first use",
            stacklevel=_caller(),
        )


def _caller() -> int:
    """Return the stack level of the first frame outside this package."""
    level, frame = 1, sys._getframe(1)
    # A decorator that is a context manager has a frame of its own, between our own.
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).startswith(("autotune.", "contextlib")):
        level, frame = level + 1, frame.f_back
    return level
