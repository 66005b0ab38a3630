"""NVIDIA's sensors: what is read from a made-up library, and what happens to times measured on a throttled device."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from autotune.bench import finals
from autotune.bench.clock import EventClock
from autotune.bench.report import Report
from autotune.bench.settling import SETTLE_S, Settling, gets_slower
from autotune.bench.timing import Limits, Rules, Timed
from autotune.bench.tour import retime
from autotune.bench.trial import Bench
from autotune.devices import Reading
from autotune.devices.sensors import Sensors, sensors_of
from autotune.model import THROTTLED, Measurement, Outcome, Trial, with_retiming
from autotune.study import Buffer, Launch, Plan, Tolerance
from autotune.tuner.finale import settle_s
from tests import numpy_backend

H200 = replace(numpy_backend.INFO, name="NVIDIA H200", vendor="NVIDIA Corporation", pci="0000:3b:00.0")

APPLICATION_CLOCKS, POWER_CAP, HW_SLOWDOWN, HW_THERMAL = 0x02, 0x04, 0x08, 0x40


class NVMLError(Exception):
    """The error that the library raises."""


class Nvml(ModuleType):
    """A made-up `pynvml` with one GPU, throttled by `reasons` in turn. The functions in `refused` raise."""

    NVMLError = NVMLError
    NVML_TEMPERATURE_GPU, NVML_CLOCK_SM, NVML_CLOCK_MEM = 0, 1, 2
    FUNCTIONS = (
        "nvmlInit",
        "nvmlDeviceGetHandleByPciBusId",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
    )

    def __init__(self, reasons: Iterable[int] = ()) -> None:
        super().__init__("pynvml")
        self.reasons: Iterator[int] = itertools.chain(reasons, itertools.repeat(0))
        self.refused: set[str] = set()
        self.asked: list[str] = []
        for name in self.FUNCTIONS:
            setattr(self, name, lambda *taken, name=name: self._answer(name, *taken))

    def _answer(self, name: str, *taken: Any) -> Any:
        self.asked.append(name)
        if name in self.refused:
            raise NVMLError(name)
        if name == "nvmlDeviceGetClockInfo":
            return {1: 1980, 2: 3201}[taken[1]]
        if "Reasons" in name:
            return next(self.reasons)
        return {"nvmlDeviceGetHandleByPciBusId": taken, "nvmlDeviceGetPowerUsage": 345_678}.get(name, 61)


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    """The library, installed."""
    made = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", made)
    return made


def gpu() -> Sensors:
    """The GPU's sensors, which must exist."""
    found = sensors_of(H200)
    assert found is not None
    return found


# The library ----------------------------------------------------------------------------------------------


def test_a_reading_tells_all_that_the_gpu_does(nvml: Nvml) -> None:
    nvml.reasons = iter([1 | POWER_CAP | HW_SLOWDOWN | HW_THERMAL])
    found = gpu().read()
    assert found == Reading(1980, 3201, 61, 345.7, "hw_slowdown, hw_thermal_slowdown", "sw_power_cap")
    assert list(found.facts()) == [
        "clock_mhz", "memory_clock_mhz", "temperature_c", "power_w", "throttled", "clock_limits",
    ]  # fmt: skip


def test_the_gpu_is_found_where_it_is_plugged_in(nvml: Nvml, monkeypatch: pytest.MonkeyPatch) -> None:
    handles: list[Any] = []
    monkeypatch.setattr(nvml, "nvmlDeviceGetHandleByPciBusId", handles.append)
    sensors_of(H200)
    assert handles == [b"00000000:3b:00.0"]


@pytest.mark.parametrize("device", [replace(H200, vendor="Advanced Micro Devices, Inc."), replace(H200, pci="")])
def test_other_devices_ask_for_no_library(nvml: Nvml, device: Any) -> None:
    assert sensors_of(device) is None
    assert not nvml.asked


def test_without_the_package_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert sensors_of(H200) is None


@pytest.mark.parametrize("refused", ["nvmlInit", "nvmlDeviceGetHandleByPciBusId"])
def test_without_the_library_or_the_gpu_nothing_is_read(nvml: Nvml, refused: str) -> None:
    nvml.refused = {refused}
    assert sensors_of(H200) is None
    assert nvml.asked[-1] == refused


def test_what_a_gpu_does_not_tell_is_asked_once(nvml: Nvml) -> None:
    nvml.refused = {"nvmlDeviceGetPowerUsage"}
    sensors = gpu()
    assert [sensors.read() for _ in range(3)] == [Reading(1980, 3201, 61)] * 3
    assert nvml.asked.count("nvmlDeviceGetPowerUsage") == 1


@pytest.mark.parametrize("newer", ["nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons"])
@pytest.mark.parametrize("lacks", ["driver", "package"])
def test_older_drivers_and_packages_are_asked_by_older_names(nvml: Nvml, newer: str, lacks: str) -> None:
    nvml.reasons = iter([HW_SLOWDOWN])
    if lacks == "driver":
        nvml.refused = {newer}
    else:
        delattr(nvml, newer)
    assert gpu().read() == Reading(1980, 3201, 61, 345.7, "hw_slowdown")


def test_a_gpu_that_is_lost_says_no_more(nvml: Nvml) -> None:
    sensors = gpu()
    assert sensors.read().clock_mhz == 1980
    nvml.refused = set(Nvml.FUNCTIONS)
    assert sensors.read() == Reading()
    nvml.asked.clear()
    assert sensors.read() == Reading()
    assert not nvml.asked


def test_the_made_up_library_is_like_the_real_one() -> None:
    real = pytest.importorskip("pynvml", reason="pip install '.[nvml]'")
    assert all(callable(getattr(real, name)) for name in Nvml.FUNCTIONS)
    for name in ("NVML_TEMPERATURE_GPU", "NVML_CLOCK_SM", "NVML_CLOCK_MEM"):
        assert getattr(real, name) == getattr(Nvml, name)
    told = {
        "HwSlowdown": Reading(throttled="hw_slowdown"),
        "SwThermalSlowdown": Reading(throttled="sw_thermal_slowdown"),
        "HwThermalSlowdown": Reading(throttled="hw_thermal_slowdown"),
        "HwPowerBrakeSlowdown": Reading(throttled="hw_power_brake_slowdown"),
        "ApplicationsClocksSetting": Reading(clock_limits="applications_clocks_setting"),
        "SwPowerCap": Reading(clock_limits="sw_power_cap"),
        "SyncBoost": Reading(clock_limits="sync_boost"),
        "DisplayClockSetting": Reading(clock_limits="display_clock_setting"),
        "GpuIdle": Reading(),
    }
    for name, reading in told.items():
        nvml = Nvml([getattr(real, f"nvmlClocksEventReason{name}")])
        found = Sensors(nvml, None).read()
        assert (found.throttled, found.clock_limits) == (reading.throttled, reading.clock_limits)
    assert issubclass(real.NVMLError_GpuIsLost, real.NVMLError)


# Trials ---------------------------------------------------------------------------------------------------

COPY = "def copy(source, target):\n    target.view(np.int32)[:] = source.view(np.int32)\n"


class Session(numpy_backend.Session):
    """The NumPy device with NVIDIA's sensors, and with its own cores, as a GPU has."""

    def __init__(self, nvml: Nvml) -> None:
        super().__init__(numpy_backend.INFO)
        self.traits = replace(self.traits, shares_cores=False)
        self._sensors = Sensors(nvml, None)

    def sense(self) -> Reading:
        return self._sensors.read()


def bench_of(nvml: Nvml) -> Bench:
    data = np.arange(1, 101, dtype=np.int32)
    # So few samples that none are seen to drift.
    rules = Rules(maximum=5, most=5, warmup=3, least_s=0.0)
    return Bench(Session(nvml), {"source": data}, {"target": data}, rules, Limits(), lambda *_: None)


def copying() -> Plan:
    arguments = {
        "source": Buffer("source", "int", (100,), (100,)),
        "target": Buffer("target", "int", (100,), (100,), "out"),
    }
    return Plan(COPY, (), (Launch("copy", (1,), (1,), tuple(arguments)),), arguments, {"target": Tolerance()})


def readings(nvml: Nvml) -> int:
    return nvml.asked.count("nvmlDeviceGetPowerUsage")


def test_a_trial_keeps_the_readings_and_what_limits_its_clocks_spoils_nothing() -> None:
    nvml = Nvml(itertools.repeat(APPLICATION_CLOCKS))
    report = bench_of(nvml).run(copying(), None)
    assert (report.outcome, report.reason) == (Outcome.OK, "")
    facts = Reading(1980, 3201, 61, 345.7, "", "applications_clocks_setting").facts()
    assert {name: report.environment.get(name) for name in facts} == facts
    assert THROTTLED not in report.environment
    assert readings(nvml) == 1


def test_throttled_times_are_taken_again() -> None:
    nvml = Nvml([HW_SLOWDOWN])
    report = bench_of(nvml).run(copying(), None)
    assert report.outcome is Outcome.OK
    assert report.reason == "the device was throttled (hw_slowdown): measured again, steady then"
    assert THROTTLED not in report.environment
    assert readings(nvml) == 2


def test_a_trial_of_a_device_that_stays_throttled_keeps_its_times_and_says_so() -> None:
    nvml = Nvml(itertools.repeat(HW_THERMAL))
    report = bench_of(nvml).run(copying(), None)
    assert report.outcome is Outcome.OK
    assert report.measurement is not None
    assert report.reason == "the device was throttled (hw_thermal_slowdown): measured again, and still throttled"
    assert report.environment[THROTTLED] == "hw_thermal_slowdown"
    assert readings(nvml) == 2


def test_nothing_is_stopped_for_what_throttling_made_slow() -> None:
    nvml = Nvml([HW_SLOWDOWN])
    report = bench_of(nvml).run(copying(), 0.01)
    assert report.outcome is Outcome.STOPPED
    assert report.reason.startswith("clearly slower than the best: ")
    assert report.reason.endswith("; the device was throttled (hw_slowdown): measured again, steady then")
    assert readings(nvml) == 2


def test_a_gpu_lost_among_the_trials_costs_none() -> None:
    nvml = Nvml()
    bench = bench_of(nvml)
    assert bench.run(copying(), None).environment["clock_mhz"] == 1980
    nvml.refused = set(Nvml.FUNCTIONS)
    report = bench.run(copying(), None)
    assert report.outcome is Outcome.OK
    assert "clock_mhz" not in report.environment


class Boosting(numpy_backend.Session):
    """A device that runs at its full clock for 40 ms after a pause, and then slower, at its power limit.

    Its runs take 8 and 9 ms by its events. Reading a buffer is a pause.
    """

    def __init__(self, *, has_sensors: bool) -> None:
        super().__init__(numpy_backend.INFO)
        self.traits = replace(self.traits, shares_cores=False)
        self._has_sensors = has_sensors
        self._spent_ms = 0

    def launch(self, *launched: Any) -> tuple[int, int]:
        super().launch(*launched)
        run_ms = 8 if self._spent_ms < 40 else 9
        self._spent_ms += run_ms
        return 0, run_ms * 10**6

    def read(self, *asked: Any) -> Any:
        self._spent_ms = 0
        return super().read(*asked)

    def sense(self) -> Reading | None:
        reading = Reading(clock_limits="sw_power_cap" if self._spent_ms >= 40 else "")
        return reading if self._has_sensors else None


def boosting(*, has_sensors: bool) -> Bench:
    data, rules = np.arange(1, 101, dtype=np.int32), Rules(maximum=9, most=9)
    session = Boosting(has_sensors=has_sensors)
    return Bench(session, {"source": data}, {"target": data}, rules, Limits(), lambda *_: None)


def samples_of(report: Report) -> set[int]:
    assert report.measurement is not None
    return {round(ns * 1e-6) for ns in report.measurement.samples_ns}


def test_times_at_the_power_limit_are_those_of_the_clock_that_the_device_keeps() -> None:
    bench = boosting(has_sensors=True)
    for _ in range(2):  # the first finds out that there is a limit
        report = bench.run(copying(), None)
        assert samples_of(report) == {9}
        assert report.environment["clock_limits"] == "sw_power_cap"
        assert settle_s(Trial({}, Outcome.OK, environment=report.environment)) == SETTLE_S
    assert report.measurement is not None
    assert report.measurement.warmup_ns[:4] == (8 * 10**6,) * 4


@pytest.mark.parametrize("has_sensors", [True, False])
def test_finalists_find_out_whether_the_device_lowers_its_clock(
    has_sensors: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finals, "_VERIFIED_RUNS", 5)
    bench = boosting(has_sensors=has_sensors)
    (found,) = retime(bench, [copying()], None, 60.0)
    assert isinstance(found, Measurement)
    assert set(found.samples_ns) == {9 * 10**6}
    assert samples_of(bench.run(copying(), None)) == {9}
    assert bench.settling.needed


@pytest.mark.parametrize(
    ("times", "slower"),
    [
        ([80] * 5 + [90] * 8, True),
        ([80] * 4 + [90] * 4, False),  # too few
        ([90] * 5 + [80] * 8, False),
        ([80, 91, 80, 79, 81, 90, 82, 90, 81, 83, 90, 92], False),
        ([100] * 20 + [101] * 20, False),
    ],
)
def test_a_device_gets_slower_if_its_last_runs_are_clearly_slower(times: list[int], slower: bool) -> None:
    assert gets_slower(times) == slower


def test_only_long_runs_on_a_warm_cache_need_to_settle() -> None:
    bench = boosting(has_sensors=True)
    bench.settling.needed = True
    plan, long_ns = copying(), 10**6
    clocks = [EventClock(bench.session, bench.launcher, run_ns) for run_ns in (long_ns, long_ns // 4)]
    assert [bench.settling.seconds(plan, one) for one in clocks] == [SETTLE_S, 0.0]
    assert bench.settling.seconds(replace(plan, cache="cold"), clocks[0]) == 0


def test_a_device_that_keeps_its_clock_need_not_settle() -> None:
    settling, steady = Settling(), Timed(Measurement((9, 9, 9), (9, 9, 9)), stopped=False)
    for reading in (Reading(clock_limits="sw_power_cap"), None):
        settling.learn(steady, Reading(clock_limits="sw_power_cap"), settled=False)
        settling.learn(steady, None, settled=False)
        assert settling.needed
        settling.learn(replace(steady, stopped=True), reading, settled=True)
        assert settling.needed
        settling.learn(steady, None if reading is None else Reading(), settled=True)
        assert not settling.needed


# Finalists ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reasons", "budget_s", "throttled"),
    [
        ([HW_SLOWDOWN], 60.0, ""),  # the round did not count
        ([HW_SLOWDOWN, HW_THERMAL], 60.0, "hw_thermal_slowdown"),  # the next did
        (itertools.repeat(HW_SLOWDOWN), 60.0, "hw_slowdown"),
        ([HW_SLOWDOWN], 0.0, "hw_slowdown"),  # there was time for no other
        ([], 60.0, ""),
    ],
)
def test_a_throttled_round_of_the_finalists_does_not_count_once(
    reasons: Iterable[int], budget_s: float, throttled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finals, "_VERIFIED_RUNS", 5)
    (found,) = retime(bench_of(Nvml(reasons)), [copying()], None, budget_s)
    assert isinstance(found, Measurement)
    assert len(found.samples_ns) >= 3
    assert found.throttled == throttled


@pytest.mark.parametrize("forged", [True, -1.0, float("nan"), 10**400, "0.2", None])
def test_a_time_to_settle_that_no_device_needs_is_none(forged: Any) -> None:
    assert settle_s(Trial({}, Outcome.OK, environment={"settle_s": forged})) == 0


def test_a_retimed_trial_was_throttled_as_it_was_last() -> None:
    before = {THROTTLED: "hw_slowdown", "verified_runs": 2, "clock": "queue"}
    cool, hot = Measurement((9,), verified_runs=3), Measurement((9,), throttled="sw_thermal_slowdown")
    assert with_retiming(before, cool) == {"verified_runs": 5, "clock": "queue"}
    assert with_retiming(before, hot)[THROTTLED] == "sw_thermal_slowdown"


@pytest.mark.parametrize("forged", [-5, 2**63 - 1, "7", 0.5])
def test_a_number_of_verified_runs_that_nobody_counted_is_none(forged: Any) -> None:
    assert Trial({}, Outcome.OK, environment={"verified_runs": forged}).verified_runs == 0
    assert with_retiming({"verified_runs": forged}, Measurement((9,), verified_runs=3)) == {"verified_runs": 3}


@pytest.mark.parametrize("forged", [True, 1, 0.5, None])
def test_what_names_nothing_throttles_nothing(forged: Any) -> None:
    assert Trial({}, Outcome.OK, environment={THROTTLED: forged}).throttled == ""
