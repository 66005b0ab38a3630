"""The kernel that holds a device, and the time of an empty launch, on the device here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.bench.holder import Holder, can_hold
from autotune.devices import Session, open_session
from tests.devices import device_here

pytestmark = pytest.mark.device


def opened() -> Session:
    """A session that is treated as one on a device with its own cores."""
    session = open_session(device_here())
    session.traits = replace(session.traits, shares_cores=False)
    return session


def test_an_empty_launch_takes_some_time_and_less_than_a_kernel_that_computes() -> None:
    session = opened()
    found = Holder(session)
    assert 0 <= found.launch_ns < 10_000_000
    assert found.launch_ns == found.launch_ns  # measured once


def test_an_empty_launch_is_timed_behind_a_hold_that_outlasts_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    found, held = Holder(opened()), list[float]()
    monkeypatch.setattr(Holder, "holding", lambda self, ns: held.append(ns))
    monkeypatch.setattr("autotune.bench.holder._HOLD_NS", 1)
    assert found.launch_ns >= 0
    assert len({*held}) == 2
    assert held[0] == 1 < held[-1]


@pytest.mark.parametrize("shares_cores", [True, False])
def test_batches_of_a_device_that_shares_the_hosts_cores_are_not_held(shares_cores: bool) -> None:
    session = opened()
    session.traits = replace(session.traits, shares_cores=shares_cores)
    assert can_hold(session) is not shares_cores
