"""The devices of this machine, as a child process saw them: a driver may take a process down, and not the server's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.devices import choose
from autotune.errors import SetupError
from autotune.model import DeviceInfo
from autotune.service.answers import Refused
from autotune.store import device_of


class Machine:
    """What is here. `amiss` says what keeps more from being here, one line each."""

    def __init__(self, told: Mapping[str, Any] | None = None) -> None:
        self.amiss: list[str] = list(told["amiss"]) if told else []
        self._queue_of: dict[str, str] = {}
        self.devices: list[DeviceInfo] = []
        for entry in told["devices"] if told else ():
            info = device_of(entry["facts"])
            self.devices.append(info)
            self._queue_of[info.number] = str(entry["queue"])

    def queues(self) -> list[str]:
        """Return the queues: one per piece of hardware."""
        return list(dict.fromkeys(self._queue_of.values()))

    def queue_of(self, device: DeviceInfo) -> str:
        """Return the queue of a device."""
        return self._queue_of[device.number]

    def find(self, selector: str | None) -> DeviceInfo:
        """Return one device: by number, fingerprint, UUID or part of its name; None: the best here.

        Raises DeviceError, SetupError.
        """
        if not self.devices:
            raise SetupError("no OpenCL device on the server's machine", hint="; ".join(self.amiss))
        return choose(self.devices, selector)

    def of_model(self, fingerprint: str) -> DeviceInfo | None:
        """Return a device of that model, where one is here."""
        return next((info for info in self.devices if info.fingerprint == fingerprint), None)

    def require(self, selector: str | None) -> DeviceInfo:
        """Return one device to search on, as `find`; Refused also for several at once."""
        if selector is not None and ("," in selector or selector == "all"):
            raise Refused(422, "a search of a server runs on one device", where="device", hint="send one per device")
        return self.find(selector)
