"""A search beside a program, in a thread that ends with the program."""

from __future__ import annotations

import atexit
import threading
import weakref
from collections.abc import Callable

from autotune import tuner
from autotune.errors import AutotuneError, WorkerError
from autotune.tuner import Request, Result

_PATIENCE_S = 10.0
"""How long the end of a program waits for a search to end in order, which usually takes half a second."""


class Tuning:
    """A search in the background; `done` is called in its thread with the result.

    An error is kept, and raised by `wait`.
    """

    def __init__(self, request: Request, done: Callable[[Result], None]) -> None:
        self._request = request
        self._done = done
        self._stop = threading.Event()
        self._result: Result | None = None
        self._error: AutotuneError | None = None
        self._thread = threading.Thread(target=self._run, name="autotune-search", daemon=True)
        _running.add(self)
        self._thread.start()

    @property
    def running(self) -> bool:
        """Whether it still searches."""
        return self._thread.is_alive()

    def wait(self, timeout: float | None = None) -> Result | None:
        """Return the result, or None if there is none within `timeout` seconds. Raises AutotuneError."""
        self._thread.join(timeout)
        if self._error is not None:
            raise self._error
        return self._result

    def stop(self) -> None:
        """End it in order; what it found is kept."""
        self._stop.set()

    def _run(self) -> None:
        try:
            result = tuner.run(self._request, self._stop)
            self._done(result)
            self._result = result
        except AutotuneError as error:
            self._error = error
        except Exception as error:  # a thread's traceback would not be noticed
            self._error = WorkerError(f"the search failed: {type(error).__name__}: {error}")


_running: weakref.WeakSet[Tuning] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    """End all searches in order: otherwise their workers would be killed in the middle of a trial."""
    tunings = list(_running)
    for tuning in tunings:
        tuning.stop()
    for tuning in tunings:
        tuning._thread.join(_PATIENCE_S)
