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
    ("name", "version"),
    [
        ("AMD EPYC Processor", "OpenCL 3.0"),
        ("pthread-AMD EPYC", "OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3"),
        ("cpu-znver3-AMD EPYC", "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-znver3"),
        ("cpu-skylake-avx512-AMD EPYC", "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-skylake-avx512"),
        ("cpu-raptorlake-AMD EPYC", "OpenCL 3.0 PoCL HSTR: cpu-x86_64-pc-linux-gnu-raptorlake"),
    ],
)
def test_one_cpu_has_one_fingerprint_under_all_versions_of_pocl(name: str, version: str) -> None:
    device = replace(GENERIC_DEVICE, name=name, vendor="AuthenticAMD", kind="cpu", compute_units=2, memory=len(name))
    assert replace(device, opencl_version=version).fingerprint == "amd-epyc-2cu"


@pytest.mark.parametrize(
    ("name", "vendor", "model"),
    [
        ("llvmpipe (LLVM 19.1.7, 256 bits)", "Mesa", "mesa-llvmpipe-"),
        ("AMD Radeon RX 6700 XT (radeonsi, navi22, ACO, DRM 3.54, 6.5.0-14-generic)", "AMD", "amd-radeon-rx-6700-xt-"),
        ("Mesa Intel(R) UHD Graphics 620 (KBL GT2)", "Intel", "intel-mesa-uhd-graphics-620-kbl-gt2-"),
    ],
)
def test_a_device_of_mesa_is_the_same_after_an_update(name: str, vendor: str, model: str) -> None:
    assert replace(GENERIC_DEVICE, name=name, vendor=vendor).fingerprint.startswith(model)


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
