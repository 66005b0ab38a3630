"""What does not fit is refused in one line before any data is made; how many builders, how many in flight."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from autotune.bench import GUARD
from autotune.errors import DeviceError
from autotune.model import DeviceInfo
from autotune.pool import sizing
from autotune.pool.sizing import count_builders, require_room
from autotune.study import GENERIC_DEVICE, Buffer, Plan

COUNT = 2**28
PLAN = Plan(
    "",
    (),
    (),
    {name: Buffer(name, "float", (COUNT,), (COUNT,), access) for name, access in (("x", "in"), ("y", "inout"))},
)
ROOMY = replace(GENERIC_DEVICE, name="Big", memory=2**33)


def test_the_host_must_hold_the_data_and_its_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "available", lambda: 8.0 * 2**30)
    require_room(PLAN, ROOMY, on_host=True)
    monkeypatch.setattr(sizing, "available", lambda: 7.5 * 2**30)
    with pytest.raises(DeviceError, match=r"needs 8\.0 GiB of host memory, 7\.5 GiB are available; .*--size"):
        require_room(PLAN, ROOMY, on_host=True)
    monkeypatch.setattr(sizing, "available", lambda: 2.0 * 2**30)
    require_room(PLAN, ROOMY, on_host=False)


def test_the_device_must_hold_the_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "available", lambda: 64.0 * 2**30)
    with pytest.raises(DeviceError, match=r"the buffers take 3\.0 GiB, Big has 2\.0 GiB"):
        require_room(PLAN, replace(ROOMY, memory=2**31), on_host=True)
    with pytest.raises(DeviceError, match=r"Big has 2\.0 GiB; use a smaller file"):
        require_room(PLAN, replace(ROOMY, memory=2**31), on_host=True, hint="use a smaller file")
    with pytest.raises(DeviceError, match=f"buffer x takes {2**30 + 2 * GUARD:,} bytes, Big allows {2**30:,};"):
        require_room(PLAN, replace(ROOMY, max_allocation=2**30), on_host=True)


H200 = DeviceInfo(
    index=0, name="NVIDIA H200", vendor="NVIDIA Corporation", platform="NVIDIA CUDA, OpenCL 3.0", driver="580.159.04",
    kind="gpu", opencl_version="OpenCL 3.0", compute_units=132, memory=140 * 2**30, local_memory=48 * 1024,
    max_work_group_size=1024, max_work_item_sizes=(1024, 1024, 64), clock=1980, extensions=(), uuid="", pci="",
)  # fmt: skip
SMALL = replace(H200, memory=8 * 2**30)
POCL = replace(H200, kind="cpu", platform="Portable Computing Language, OpenCL 3.0 PoCL 3.0", memory=2**34)
OTHER_CPU = replace(POCL, platform="Intel(R) OpenCL, OpenCL 3.0")


@pytest.mark.parametrize(
    ("devices", "cores", "expected"),
    [
        ([H200], 16, 16),
        ([H200], 128, 16),
        ([H200, H200], 32, 32),
        ([H200, H200], 8, 8),
        ([SMALL], 16, 4),
        ([POCL], 2, 2),
        ([POCL], 1, 0),
        ([OTHER_CPU], 8, 0),
        ([POCL], 64, 7),
    ],
)
def test_builders_fit_the_cores_and_the_memory_of_each_device(
    devices: list[DeviceInfo], cores: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))  # of more that the machine has
    monkeypatch.setattr(sizing, "available", lambda: 3.9 * 2**30)  # of a container on a machine with more
    assert count_builders(devices, None) == expected
    assert count_builders(devices, 3) == 3
