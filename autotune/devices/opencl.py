"""The backend OpenCL. It tells traits of a device without pyopencl, whose import would take longer than the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.devices import drivers, linker
from autotune.devices.backend import Traits
from autotune.devices.guest import Guest
from autotune.model import DeviceInfo

if TYPE_CHECKING:
    from autotune.devices.opencl_session import OpenCLSession


class OpenCL:
    """The backend; its methods are documented in `backend.Backend`."""

    name = "opencl"

    def prepare(self) -> None:
        from autotune.devices import opencl_session  # noqa: F401  (imports pyopencl)

    def devices(self) -> list[DeviceInfo]:
        from autotune.devices import opencl_session

        return opencl_session.devices()

    def traits(self, info: DeviceInfo) -> Traits:
        return drivers.traits(info)

    def open(self, info: DeviceInfo) -> OpenCLSession:
        from autotune.devices import opencl_session

        return opencl_session.OpenCLSession(info)

    def attach(self, queue: object) -> Guest | None:
        from autotune.devices import opencl_guest

        return opencl_guest.attach(queue)

    def environment(self, caches: Path, *, worker: bool) -> Mapping[str, str]:
        return drivers.environment(caches, worker=worker)

    def diagnose(self, devices: Sequence[DeviceInfo]) -> list[str]:
        return drivers.diagnose(devices)

    def missing(self, info: DeviceInfo) -> list[str]:
        return linker.missing() if drivers.is_pocl(info) else []


BACKEND = OpenCL()
