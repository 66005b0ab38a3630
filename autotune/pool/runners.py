"""Which device's worker is at which task, and how many devices are left."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from autotune.model import Configuration
from autotune.pool.tasks import Task, Waiting

if TYPE_CHECKING:
    from autotune.pool.keeper import Keeper


class AtWork:
    """The tasks that devices' workers are at. Called by their threads and by whoever withdraws."""

    def __init__(self, devices: int, waiting: Waiting) -> None:
        self._lock = threading.Lock()
        self._tasks: dict[Keeper, Task] = {}
        self._waiting = waiting
        self._sound = devices

    def begin(self, keeper: Keeper, task: Task) -> bool:
        """Note that a device's worker turns to a task; False where that was withdrawn."""
        with self._lock:
            if not self._waiting.claim(task):
                return False
            self._tasks[keeper] = task
            return True

    def stop(self, keeper: Keeper, task: Task) -> bool:
        """Note that a device's worker is done with a task; False where that was withdrawn meanwhile."""
        with self._lock:
            return self._tasks.pop(keeper, None) is task

    def withdraw_building(self) -> list[Configuration]:
        """End the workers that have not come to run the kernel of their task; return what those were of."""
        with self._lock:
            early = [(keeper, task) for keeper, task in self._tasks.items() if keeper.building]
            for keeper, _ in early:
                del self._tasks[keeper]
                keeper.cancel()
            return [task.configuration for _, task in early]

    def lose(self) -> bool:
        """Note that a device is lost, and say whether it was the last."""
        with self._lock:
            self._sound -= 1
            return self._sound == 0
