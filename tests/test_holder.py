"""The quickest of several sessions, on the device that is here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autotune.bench import clock, holder, pace
from autotune.bench.holder import Holder, can_hold, quickest
from autotune.bench.messages import Retime
from autotune.bench.serving import _launch_ns
from autotune.bench.trial import NOTICED_NS, Bench
from autotune.devices import BackendError, Session, list_devices, open_session
from autotune.model import DeviceInfo, Measurement, Outcome
from tests.test_clock import bench_of, spin


def opened() -> Session:
    """A session on a CPU that passes for a device with cores of its own."""
    session = open_session(next(device for device in list_devices() if device.kind == "cpu"))
    session.traits = replace(session.traits, shares_cores=False)
    return session


def takes(monkeypatch: pytest.MonkeyPatch, *launch_ns: float) -> list[Session]:
    """Let the sessions that are opened from here on be so quick, one after another; they are listed."""
    times: Iterator[float] = iter(launch_ns)
    there: list[Session] = []

    def open_another(info: DeviceInfo) -> Session:
        if len(there) == len(launch_ns) - 1:
            raise BackendError("no room")
        there.append(opened())
        return there[-1]

    def launch_of(_: Holder) -> float:
        return next(times)

    monkeypatch.setattr(holder, "open_session", open_another)
    monkeypatch.setattr(Holder, "launch_ns", property(launch_of))
    return there


def test_an_empty_launch_takes_some_time_and_less_than_a_kernel_that_computes() -> None:
    session = opened()
    found = Holder(session)
    assert 0 <= found.launch_ns < 10_000_000
    assert found.launch_ns == found.launch_ns  # measured once


def test_the_session_with_the_quickest_launches_is_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    others = takes(monkeypatch, 3.6, 3.5, 3.3, 3.7)
    chosen = quickest(opened())
    assert len(others) == 3
    assert chosen is others[1]
    assert chosen.busy_ns() == 0


def test_a_session_that_is_the_quickest_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    takes(monkeypatch, 3.2, 3.5, 3.3, 3.7)
    session = opened()
    assert quickest(session) is session


def test_a_device_with_room_for_two_sessions_chooses_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    others = takes(monkeypatch, 3.6, 3.5)
    assert quickest(opened()) is others[0]


def test_finalists_of_short_launches_are_compared_on_the_quickest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "QUEUED_NS", 10**10)
    bench = bench_of(opened(), out=5)
    bench.run(spin(30_000), None)
    others = takes(monkeypatch, 3.6, 3.5, *[3.0] * 20)
    chosen = bench.settled(NOTICED_NS)
    assert chosen is not bench
    assert chosen.anchor is not bench.anchor
    assert (chosen.anchor.plan, chosen.anchor.pace) == (spin(30_000), bench.anchor.pace)
    assert chosen.settled(NOTICED_NS) is chosen  # once
    assert bench.settled(NOTICED_NS) is bench
    assert len(others) == 3
    measured = chosen.retime([spin(30_000), spin(60_000)], None, 60.0)
    assert [type(one) for one in measured] == [Measurement, Measurement]
    monkeypatch.setattr(pace.Pace, "is_due", True)  # read at once: with kernels, buffers and a clock of this session
    assert chosen.run(spin(90_000), None).outcome is Outcome.OK
    assert chosen.anchor.plan == spin(30_000)


def test_a_launch_of_a_loop_counts_as_often_as_it_is_launched() -> None:
    once, looped = spin(1), replace(spin(1), order=(0,) * 10)
    assert _launch_ns(Retime((once, once), 5000.0, 1.0)) == 5000
    assert _launch_ns(Retime((looped, looped), 5000.0, 1.0)) == 500
    assert _launch_ns(Retime((once, once), None, 1.0)) == math.inf
    assert _launch_ns(Retime((once,), 5000.0, 1.0)) == math.inf  # nothing to compare


@pytest.mark.parametrize(("launch_ns", "shares_cores"), [(NOTICED_NS + 1, False), (NOTICED_NS, True)])
def test_what_does_not_notice_stays_where_it_is(launch_ns: float, shares_cores: bool) -> None:
    session = opened()
    session.traits = replace(session.traits, shares_cores=shares_cores)
    bench: Bench = bench_of(session, out=5)
    assert bench.settled(launch_ns) is bench
    assert can_hold(session) is not shares_cores
