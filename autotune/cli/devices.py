"""`autotune devices`: which devices are here, and what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict

from autotune import cluster
from autotune.cli.options import JsonOption, OnOption
from autotune.cli.output import say, table, write_json
from autotune.devices import select
from autotune.errors import SetupError
from autotune.model import DeviceInfo


def list_devices(on: OnOption = None, as_json: JsonOption = False) -> None:
    """List the OpenCL devices, and problems with their drivers.

    Shows index, fingerprint, driver and limits and, for each problem, the command that solves it.

    \b
    Examples:
      autotune devices
      autotune devices --json
      autotune devices --on tcp://head:8786
    """
    if on is not None:
        _list_cluster(cluster.Address.parse(on), as_json)
        return
    found = select.list_devices()
    if as_json:
        write_json([{"fingerprint": info.fingerprint, **asdict(info)} for info in found])
    elif found:
        headings = ("", "device", "fingerprint", "kind", "units", "memory", "local", "group", "driver")
        table(headings, map(_device_row, found), right=("units", "memory", "local", "group"))
    for said in (*_of_several_drivers(found), *select.diagnose()):
        say(said)
    if not found:
        raise SetupError("no OpenCL device", hint="the lines above say how to get one")


def _list_cluster(address: cluster.Address, as_json: bool) -> None:
    found = sorted(cluster.list_devices(address), key=lambda one: (one.host, one.device.index))
    if as_json:
        write_json([{"fingerprint": one.device.fingerprint, "host": one.host, "worker": one.worker, "unfit": one.unfit,
                     **asdict(one.device)} for one in found])  # fmt: skip
    elif found:
        headings = ("host", "", "device", "fingerprint", "driver", "left out")
        table(headings, [(one.host, one.device.number, one.device.name, one.device.fingerprint, one.device.driver,
                          one.unfit) for one in found])  # fmt: skip
    else:
        raise SetupError("no worker serves this cluster", hint=f"start one: autotune worker --on {address}")


def _of_several_drivers(found: Sequence[DeviceInfo]) -> Iterator[str]:
    """Say, of each model with several drivers, which of its devices the name means."""
    for model in dict.fromkeys(info.fingerprint for info in found):
        like = [info for info in found if info.fingerprint == model]
        if len({info.platform for info in like}) > 1:
            drivers = ", ".join(f"-d {info.number} ({select.driver_of(info)})" for info in like)
            meant = next(info for info in like if select.selector_of(info) == model)
            yield f"{model} has several drivers here: {drivers}; -d {model} means {meant.number}"


def _device_row(info: DeviceInfo) -> tuple[str, ...]:
    return (
        info.number,
        info.name,
        info.fingerprint,
        info.kind,
        str(info.compute_units),
        f"{info.memory / 2**30:.1f} GiB",
        f"{info.local_memory / 2**10:.0f} KiB",
        str(info.max_work_group_size),
        select.driver_of(info),
    )
