"""What has no room is refused in one line before any data is drawn."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.errors import DeviceError
from autotune.pool import memory
from autotune.pool.memory import require_room
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
    monkeypatch.setattr(memory, "available", lambda: 8.0 * 2**30)
    require_room(PLAN, ROOMY, on_host=True)
    monkeypatch.setattr(memory, "available", lambda: 7.5 * 2**30)
    with pytest.raises(DeviceError, match=r"needs 8\.0 GiB of host memory, 7\.5 GiB are available; .*--size"):
        require_room(PLAN, ROOMY, on_host=True)
    monkeypatch.setattr(memory, "available", lambda: 2.0 * 2**30)
    require_room(PLAN, ROOMY, on_host=False)


def test_the_device_must_hold_the_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 64.0 * 2**30)
    with pytest.raises(DeviceError, match=r"the buffers take 3\.0 GiB, Big has 2\.0 GiB"):
        require_room(PLAN, replace(ROOMY, memory=2**31), on_host=True)
    with pytest.raises(DeviceError, match=r"buffer x takes 1\.0 GiB, Big allows 1\.0 GiB"):
        require_room(PLAN, replace(ROOMY, max_allocation=2**30), on_host=True)


def test_memory_that_is_free_is_told() -> None:
    assert 2**20 < memory.available() < 2**50
