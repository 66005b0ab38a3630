"""The devices of a cluster that a search holds: claims devices that join, and releases devices that leave.

A claim is a Dask task whose result the search holds. If the connection ends, Dask drops the result, and the device is
free again.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import platform
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autotune.cluster import tasks
from autotune.cluster.failures import claimed, heard, lost
from autotune.cluster.roster import OTHER, Found, fits
from autotune.cluster.travel import Packed, versions
from autotune.errors import AutotuneError, SetupError, SpaceError, StudyError, WorkerError
from autotune.model import DeviceInfo
from autotune.text import count

_AGAIN_S = 0.2
"""Pause before a device that was lost meanwhile is asked again."""

_BUSY_S = 1.0
"""Pause before a device that another search holds is asked again."""

_ENDING_S = 10.0
"""How long a device may take to become free after a search of this process, which runs a search for each size."""


class Busy(NamedTuple):
    """A device that another search holds: since when, when to ask again, and the owner.

    The owner is empty for a search of this process that is ending.
    """

    since: float
    again: float
    owner: str


@dataclass
class Member:
    """A device that serves this search; it stays claimed as long as the token is held."""

    found: Found
    token: Any
    slots: int
    usage: Mapping[str, float] = field(default_factory=dict)
    anchor: asyncio.Task[None] | None = None


class Claims:
    """The devices of one model that serve a search, at most `most` of them.

    `fail` gets the error that ends the search; `say` lines for the user; `changed` the wanted number of trials in
    flight; `left` the worker of a device that has left. Everything runs in one event loop; `client` is the current
    connection.
    """

    def __init__(
        self,
        device: DeviceInfo,
        packed: Packed,
        *,
        fail: Callable[[AutotuneError], None],
        say: Callable[[str], None],
        changed: Callable[[int], None],
        left: Callable[[str], None],
        most: int | None = None,
    ) -> None:
        self.search = f"autotune-{uuid.uuid4().hex[:12]}"
        self.client: Any = None
        self.members: dict[str, Member] = {}
        self.there = asyncio.Event()  # set while a device serves the search
        self._device = device
        self._packed = packed
        self._fail, self._say, self._changed, self._left = fail, say, changed, left
        self._most = most
        self._claiming: dict[str, asyncio.Task[None]] = {}
        self._refused: dict[str, AutotuneError] = {}
        self._spent: dict[str, float] = {}  # usage of devices that have left
        self._said: set[str] = set()
        self._found: Mapping[str, Found] = {}
        self._busy: dict[str, Busy] = {}

    @property
    def waits(self) -> bool:
        """Whether it waits for devices to join: none serves, is being asked, or is held by another search."""
        return not self.members and not self._claiming and not self._busy

    def refusal(self, workers: Iterable[str]) -> AutotuneError | None:
        """Return why one of these workers cannot serve, or None if none has refused."""
        return next((self._refused[worker] for worker in workers if worker in self._refused), None)

    def usage(self) -> dict[str, float]:
        """Return the seconds that devices spent, by activity."""
        total = dict(self._spent)
        for member in self.members.values():
            _add(total, member.usage)
        return total

    def muster(self, found: Mapping[str, Found]) -> None:
        """Release devices that have left, and claim devices that may serve and do not yet."""
        for worker in [worker for worker in self.members if worker not in found]:
            gone = self._dismiss(worker)
            self._say(f"{gone.found.place} has left; {count(len(self.members), 'device')} left")
        self._found = found
        self._busy = {worker: busy for worker, busy in self._busy.items() if worker in found}
        self._claim_more()

    def refuse(self, found: Found, error: AutotuneError) -> None:
        """Leave out a device whose machine is at fault; end the search if the study is, which is so on each device."""
        if found.worker in self.members:
            self._dismiss(found.worker)
        self._busy.pop(found.worker, None)
        self._refused[found.worker] = error
        if isinstance(error, StudyError | SpaceError):
            self._fail(error)
        else:
            self._say_once(f"{found.place} is left out: {error}")

    def lose(self) -> Any:
        """Forget what was known through the connection, and return the connection."""
        client, self.client = self.client, None
        for worker in list(self.members):
            self._dismiss(worker)
        for task in self._claiming.values():
            task.cancel()
        self._found = {}
        self._busy.clear()
        self._refused.clear()
        return client

    def _claim_more(self) -> None:
        """Claim devices that may serve and do not yet; those that were busy come last, in turn."""
        now, again = time.monotonic(), {worker: busy.again for worker, busy in self._busy.items()}
        for worker in sorted(self._found, key=lambda worker: again.get(worker, 0.0)):
            if worker in self.members or worker in self._claiming or worker in self._refused:
                continue
            if self._most is not None and len(self.members) + len(self._claiming) >= self._most:
                return
            one = self._found[worker]
            reason = fits(one, self._device)
            if reason and reason != OTHER:
                self._say_once(f"{one.place} is left out: {reason}")
            if not reason and again.get(worker, 0.0) <= now:
                self._claiming[worker] = asyncio.create_task(self._claim(one))
        if not self.members and not self._claiming:
            self._tell_busy()

    def _tell_busy(self) -> None:
        """Say which searches hold the devices that this one waits for."""
        for worker, busy in self._busy.items():
            if busy.owner:
                place = self._found[worker].place
                self._say_once(f"{place} is in use by another search ({busy.owner}); waiting")

    async def _claim(self, found: Found) -> None:
        """Have a device open an evaluator for this search; its answer comes once the evaluator is open."""
        held = None
        try:
            held = self._ask(found.worker)
            answer = claimed(await held)
            if "lacks" in answer:
                held.release()
                held = None
                answer = await self._packed.luggage.send(self.client, found.worker, answer["lacks"])
                if not answer:
                    held = self._ask(found.worker)
                    answer = claimed(await held)
            if "slots" in answer:
                self._enlist(found, held, answer["slots"])
                held = None
            elif "refused" in answer:
                self.refuse(found, heard(answer, found.host))
            else:
                self._put_off(found.worker, answer.get("busy", ""))
        except (*lost(), _killed()):  # the next look at the cluster will show it
            await asyncio.sleep(_AGAIN_S)
        except AutotuneError as error:  # a file to be sent has changed, or the answer makes no sense
            self.refuse(found, error)
        except Exception as error:  # raised by the worker, or by the scheduler if it could not read the request
            if "deserialization" in str(error):
                self._fail(SetupError("the scheduler has no autotune", hint="install the same version there"))
            else:
                self.refuse(found, WorkerError(f"the claim failed: {type(error).__name__}: {error}"))
        finally:
            self._claiming.pop(found.worker, None)
            if held is not None:
                held.release()
            if found.worker in self._busy:  # then it does not count towards `most`, and another may be free
                self._claim_more()

    def _ask(self, worker: str) -> Any:
        """Ask a device to serve this search; return Dask's future of its answer."""
        token = f"{self.search}-claim-{uuid.uuid4().hex[:8]}"
        request = {
            "token": token,
            "search": self.search,
            "owner": _owner(),
            "versions": versions(),
            "problem": self._packed.problem,
            "luggage": [*self._packed.luggage.sizes],
        }
        return self.client.submit(tasks.claim, pickle.dumps(request), key=token, workers=[worker], pure=False)

    def _put_off(self, worker: str, owner: str) -> None:
        """Have a device asked again later, which another search holds or a search of ours that is ending."""
        now = time.monotonic()
        since = self._busy[worker].since if worker in self._busy else now
        ending = owner == _owner() and now - since < _ENDING_S
        self._busy[worker] = Busy(since, now + (_AGAIN_S if ending else _BUSY_S), "" if ending else owner)

    def _enlist(self, found: Found, token: Any, slots: int) -> None:
        self._busy.pop(found.worker, None)
        self.members[found.worker] = Member(found, token, slots)
        self.there.set()
        self._count()

    def _dismiss(self, worker: str) -> Member:
        """Release a device."""
        member = self.members.pop(worker)
        member.token.release()
        if member.anchor is not None:
            member.anchor.cancel()
        _add(self._spent, member.usage)
        if not self.members:
            self.there.clear()
        self._left(worker)
        self._count()
        return member

    def _count(self) -> None:
        self._changed(sum(member.slots for member in self.members.values()))

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)


def _killed() -> type[Exception]:
    from distributed import KilledWorker

    found: type[Exception] = KilledWorker
    return found


def _owner() -> str:
    return f"process {os.getpid()} of {platform.node()}"


def _add(total: dict[str, float], usage: Mapping[str, float]) -> None:
    for name, seconds in usage.items():
        total[name] = total.get(name, 0.0) + seconds
