"""The devices of a cluster, as its workers announce them, and which of them one search may use."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.cluster.address import Address, connect, keep_quiet, require_distributed
from autotune.cluster.travel import KEY, difference
from autotune.errors import DeviceError, SetupError, StoreError
from autotune.model import DeviceInfo
from autotune.store import device_of
from autotune.study import GENERIC_DEVICE

OTHER = "other"

_POLL_S = 0.5

PATIENCE_S = 20.0
"""Seconds to wait for the first worker of a cluster; a tenth of it if workers of other models are there."""


@dataclass(frozen=True)
class Found:
    """A device of the cluster: its Dask worker, its machine, and what keeps it from being used here."""

    worker: str
    host: str
    device: DeviceInfo
    unfit: str = ""

    @property
    def place(self) -> str:
        """The device and its machine in words."""
        return f"{self.device.name} {self.device.number} of {self.host}"


def read(identity: Mapping[str, Any]) -> dict[str, Found]:
    """Return the devices in a scheduler's own description, by worker; workers of other kinds are left out."""
    found = {}
    for worker, told in identity.get("workers", {}).items():
        facts = told.get(KEY)
        if not isinstance(facts, Mapping) or not isinstance(facts.get("versions"), Mapping):
            continue
        wrong, device = difference(facts["versions"]), facts.get("device")
        try:
            known = device_of(device if isinstance(device, Mapping) else {})
        except StoreError as error:  # of another version, so only its name is shown
            name = device.get("name", "device") if isinstance(device, Mapping) else "device"
            known = replace(GENERIC_DEVICE, name=str(name), index=0)
            wrong = wrong or f"it is announced in another way: {error}"
        found[worker] = Found(worker, str(facts.get("host", "")), known, wrong)
    return found


def list_devices(address: Address) -> list[Found]:
    """Return every device of a cluster. Raises SetupError if its scheduler does not answer."""
    require_distributed()

    async def ask() -> dict[str, Found]:
        keep_quiet()
        client = await connect(address)
        try:
            return read(await client.scheduler.identity(n_workers=-1))
        finally:
            await client.close(timeout=1)

    return list(asyncio.run(ask()).values())


def list_models(address: Address) -> tuple[list[DeviceInfo], list[str]]:
    """Return a device for each model of a cluster as `choose` does, best first, and what is wrong, a line each.

    Does not wait for workers. Raises SchedulerAway, SetupError.
    """
    found = list_devices(address)
    amiss = [f"{one.place} is left out: {one.unfit}" for one in found if one.unfit]
    if not found:
        amiss.append(f"the cluster at {address} has no device; start a worker: autotune worker --on {address}")
    return _models([one for one in found if not one.unfit]), amiss


def choose(address: Address, selector: str | None, stop: threading.Event | None = None) -> list[DeviceInfo]:
    """Return one device for each model that a selector names; it represents all devices of its model in the cluster.

    `selector`: a fingerprint, a UUID or part of a name; `all`: every model; None: the best. The device has no number
    and identity of its own; its driver is the most frequent one. Waits a little for the first worker. Raises
    DeviceError if no device answers, SetupError if those that answer have other versions.
    """
    waited = 0.0
    while True:
        found = list_devices(address)
        models = _models([one for one in found if not one.unfit])
        chosen = _matching(models, selector)
        if chosen or waited >= (PATIENCE_S / 10 if models else PATIENCE_S) or (stop is not None and stop.is_set()):
            break
        (stop or threading.Event()).wait(_POLL_S)
        waited += _POLL_S
    if chosen:
        return chosen
    unfit = [one for one in found if one.unfit]
    if unfit and not models:
        workers = "its one worker is" if len(unfit) == 1 else f"all {len(unfit)} workers are"
        raise SetupError(
            f"{workers} left out, {unfit[0].host} for this: {unfit[0].unfit}",
            where=str(address),
            hint="install the same on every machine",
        )
    if not models:
        raise DeviceError(
            "the cluster has no device", where=str(address), hint=f"start a worker: autotune worker --on {address}"
        )
    known = ", ".join(f"{model.fingerprint} ({model.name})" for model in models)
    raise DeviceError(f"no device {selector!r} in the cluster", where=str(address), hint=f"choose with -d: {known}")


def choose_one(address: Address, selector: str | None, stop: threading.Event | None = None) -> DeviceInfo:
    """Return the one model that a selector names, as `choose`. Also raises DeviceError if several answer."""
    chosen = choose(address, selector, stop)
    if len(chosen) > 1:
        hint = "times of different devices do not compare; choose one with -d: "
        known = ", ".join(model.fingerprint for model in chosen)
        raise DeviceError(f"{len(chosen)} models of the cluster answer {selector!r}", hint=hint + known)
    return chosen[0]


def fits(found: Found, device: DeviceInfo) -> str:
    """Return why a device cannot serve a search on a model: OTHER for another model, an empty string if it can."""
    if found.unfit:
        return found.unfit
    if (found.device.backend, found.device.fingerprint) != (device.backend, device.fingerprint):
        return OTHER
    if found.device.driver != device.driver:
        return f"driver {found.device.driver}, the search is for driver {device.driver}"
    return ""


def _models(found: Sequence[Found]) -> list[DeviceInfo]:
    """Return a representative for each model, best first."""
    by_model: dict[tuple[str, str], list[DeviceInfo]] = {}
    for one in found:
        by_model.setdefault((one.device.backend, one.device.fingerprint), []).append(one.device)
    models = [_stand_in(devices) for devices in by_model.values()]
    return sorted(models, key=lambda device: (device.order, device.fingerprint))


def _stand_in(devices: Sequence[DeviceInfo]) -> DeviceInfo:
    """Return a representative of devices of one model, with the least of what they offer."""
    driver = Counter(device.driver for device in devices).most_common(1)[0][0]
    ours = [device for device in devices if device.driver == driver]
    return replace(
        ours[0],
        index=0,
        uuid="",
        pci="",
        memory=min(device.memory for device in ours),
        max_allocation=min(device.max_allocation for device in ours),
    )


def _matching(models: Sequence[DeviceInfo], selector: str | None) -> list[DeviceInfo]:
    if selector is None:
        return list(models[:1])
    text = selector.strip().lower()
    if text == "all":
        return list(models)
    exact = [model for model in models if text and text == model.fingerprint]
    return exact or [model for model in models if text and (text in model.name.lower() or text in model.fingerprint)]
