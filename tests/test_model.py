from __future__ import annotations

import math
from dataclasses import replace

import pytest

from autotune.model import Measurement, Outcome, Trial
from autotune.study import GENERIC_DEVICE

H200 = replace(
    GENERIC_DEVICE, name="NVIDIA H200", vendor="NVIDIA Corporation", compute_units=132, memory=150_120_955_904
)


def test_the_fingerprint_is_the_model_and_nothing_else() -> None:
    assert H200.fingerprint == "nvidia-h200-132cu-140g"
    assert replace(H200, index=7, driver="1.2", platform="other", uuid="x", pci="y").fingerprint == H200.fingerprint
    assert replace(H200, compute_units=114).fingerprint != H200.fingerprint


@pytest.mark.parametrize(
    "name", ["pthread-AMD EPYC", "cpu-haswell-AMD EPYC", "cpu-znver3-AMD EPYC", "AMD EPYC Processor"]
)
def test_one_cpu_has_one_fingerprint_under_all_versions_of_pocl(name: str) -> None:
    device = replace(GENERIC_DEVICE, name=name, vendor="AuthenticAMD", kind="cpu", compute_units=2, memory=len(name))
    assert device.fingerprint == "amd-epyc-2cu"


@pytest.mark.parametrize(
    ("vendor", "word"),
    [
        ("NVIDIA Corporation", "nvidia"),
        ("Advanced Micro Devices, Inc.", "amd"),
        ("GenuineIntel", "intel"),
        ("Intel(R) Corporation", "intel"),
        ("ARM", "arm"),
        ("Some Vendor", "some-vendor"),
    ],
)
def test_vendors_in_one_word(vendor: str, word: str) -> None:
    assert replace(GENERIC_DEVICE, vendor=vendor).vendor_name == word


def test_the_time_that_ranks_is_the_retimed_median() -> None:
    measured = Trial({}, Outcome.OK, measurement=Measurement((3, 1, 2)))
    assert measured.time_ns == 2
    assert replace(measured, retimed=Measurement((4, 5))).time_ns == 4.5
    assert math.isnan(Trial({}, Outcome.CRASH).time_ns)


def test_outcomes_that_failed_and_those_tried_again() -> None:
    unfailed = {Outcome.OK, Outcome.STOPPED, Outcome.PENDING, Outcome.LOST}
    assert {outcome for outcome in Outcome if not outcome.failed} == unfailed
    assert {outcome for outcome in Outcome if outcome.retriable} == {
        Outcome.TIMEOUT,
        Outcome.LAUNCH_ERROR,
        Outcome.CRASH,
    }
