"""The devices that a server searches on: those of this machine, or the models of a cluster.

A child process lists them, because a driver may crash its process, which must not be the server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.devices import choose
from autotune.errors import SetupError
from autotune.model import DeviceInfo
from autotune.service.answers import Refused
from autotune.store import device_of


class Machine:
    """The devices here. `amiss` says what keeps more devices from being here, one line each."""

    def __init__(self) -> None:
        self.amiss: list[str] = []
        self.devices: list[DeviceInfo] = []
        self._queue_of: dict[str, str] = {}

    def update(self, told: Mapping[str, Any]) -> None:
        """Take over what a child process has found."""
        self.amiss = list(told["amiss"])
        self.devices = [device_of(entry["facts"]) for entry in told["devices"]]
        queues = (str(entry["queue"]) for entry in told["devices"])
        self._queue_of = dict(zip((info.number for info in self.devices), queues, strict=True))

    def queues(self) -> list[str]:
        """Return the queues: one per piece of hardware here, or per model of a cluster."""
        return list(dict.fromkeys(self._queue_of.values()))

    def queue_of(self, device: DeviceInfo) -> str:
        """Return the queue of a device."""
        return self._queue_of[device.number]

    def find(self, selector: str | None) -> DeviceInfo:
        """Return one device: by number, fingerprint, UUID or part of its name; None: the best here.

        Raises DeviceError, SetupError.
        """
        if not self.devices:
            raise SetupError("the server has no device to search on", hint="; ".join(self.amiss))
        return choose(self.devices, selector)

    def of_model(self, fingerprint: str) -> DeviceInfo | None:
        """Return a device of that model, or None if none is here."""
        return next((info for info in self.devices if info.fingerprint == fingerprint), None)

    def require(self, selector: str | None) -> DeviceInfo:
        """Return one device to search on, as `find`. Also raises Refused for several devices at once."""
        if selector is not None and ("," in selector or selector == "all"):
            raise Refused(422, "a search of a server runs on one device", where="device", hint="send one per device")
        return self.find(selector)
