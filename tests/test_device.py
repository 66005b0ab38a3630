"""Finding devices, and what is wrong if there is none."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pyopencl as cl
import pytest

from autotune.devices import (
    BackendError,
    BuildError,
    Session,
    diagnose,
    drivers,
    find_device,
    find_devices,
    linker,
    list_devices,
    open_session,
    opencl,
    require_usable,
    selector_of,
)
from autotune.devices.opencl_objects import OpenCLProgram, error_name
from autotune.errors import DeviceError, SetupError
from autotune.model import DeviceInfo
from tests.devices import device_here

pytestmark = pytest.mark.device

H200 = DeviceInfo(
    index=0, name="NVIDIA H200", vendor="NVIDIA Corporation", platform="NVIDIA CUDA, OpenCL 3.0", driver="580.1",
    kind="gpu", opencl_version="OpenCL 3.0", compute_units=132, memory=140 * 2**30, local_memory=48 * 1024,
    max_work_group_size=1024, max_work_item_sizes=(1024, 1024, 64), clock=1980, uuid="aa",
)  # fmt: skip
RTX = replace(H200, index=2, name="NVIDIA GeForce RTX 3090", compute_units=82, memory=24 * 2**30, uuid="cc")
POCL = replace(
    H200, index=3, name="pthread-AMD EPYC 9534", vendor="AuthenticAMD", kind="cpu", driver="3.0-rc2", uuid="",
    platform="Portable Computing Language, OpenCL 3.0 PoCL 3.0-rc2", compute_units=4,
)  # fmt: skip
NEWER = replace(
    POCL, index=4, name="cpu-znver4-AMD EPYC 9534", driver="5.0", platform="Portable Computing Language, 5.0 PoCL"
)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    here = [H200, replace(H200, index=1, uuid="bb"), RTX, POCL, NEWER]
    monkeypatch.setattr(opencl.BACKEND, "devices", lambda: here)


def test_this_machine_has_a_device_that_says_what_it_is() -> None:
    device = find_device(None)
    assert device in list_devices()
    assert device.kind in ("gpu", "cpu", "accelerator")
    assert device.compute_units > 0
    assert device.memory > 0
    assert device.local_memory > 0
    assert find_device(device.fingerprint).fingerprint == device.fingerprint
    assert find_device(str(device.index)) == device


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize(
    ("selector", "index"),
    [(None, 0), ("1", 1), ("h200", 0), ("3090", 2), ("bb", 1), ("nvidia-h200-132cu-140g", 0), ("epyc", 4)],
)
def test_a_selector_is_an_index_a_name_a_fingerprint_or_a_uuid(selector: str | None, index: int) -> None:
    assert find_device(selector).index == index


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("selector", ["9", "radeon", "", "nvidia"])
def test_an_unknown_or_ambiguous_selector_lists_the_choices(selector: str) -> None:
    with pytest.raises(DeviceError, match="choose with -d"):
        find_device(selector)


@pytest.mark.usefixtures("machine")
def test_several_devices_are_of_one_model() -> None:
    assert [device.index for device in find_devices("0,1")] == [0, 1]
    assert [device.index for device in find_devices("all")] == [0, 1]
    assert find_devices("All") == find_devices("all")
    assert [device.index for device in find_devices("1,1")] == [1]
    with pytest.raises(DeviceError, match="different devices"):
        find_devices("0,2")


INTEL = replace(
    POCL, index=5, name="AMD EPYC 9534", platform="Intel(R) OpenCL, OpenCL 3.0 LINUX", driver="2026.22"
)  # fmt: skip


def test_of_several_drivers_of_a_model_its_name_means_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl.BACKEND, "devices", lambda: [POCL, INTEL])
    assert POCL.fingerprint == INTEL.fingerprint
    assert [find_device(selector).index for selector in (None, INTEL.fingerprint, "3", "5")] == [5, 5, 3, 5]
    assert [selector_of(device) for device in (INTEL, POCL, RTX)] == [INTEL.fingerprint, "3", RTX.fingerprint]
    with pytest.raises(DeviceError, match=r"different drivers: 3 \(PoCL 3.0-rc2\), 5 \(Intel.* 2026.22\)"):
        find_devices("3,5")


@pytest.mark.usefixtures("machine")
def test_of_two_pocls_the_newer_is_used_and_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert find_device("amd").driver == "5.0"
    assert "two PoCL drivers here, using 5.0 (-d 4), not 3.0-rc2 (-d 3)" in capsys.readouterr().err


def test_without_a_device_the_cure_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(opencl.BACKEND, "devices", list)
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.setattr(drivers, "VENDORS", tmp_path)
    monkeypatch.setattr(drivers, "_loadable", lambda library: False)
    with pytest.raises(SetupError, match="pip install pocl-binary-distribution"):
        find_device(None)
    monkeypatch.setattr(drivers, "_loadable", lambda library: True)
    (tmp_path / "removed.icd").symlink_to("nowhere")  # as a driver leaves it that was removed
    with pytest.raises(SetupError, match=r"echo libnvidia-opencl.so.1 > .*/nvidia.icd"):
        find_device(None)
    (tmp_path / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")
    with pytest.raises(SetupError, match="nvidia-smi"):
        find_device(None)


@pytest.mark.parametrize("index", [0, 99])
def test_a_device_that_is_gone_is_said(index: int) -> None:
    gone = replace(find_device(None), index=index, name="Lost GPU")  # another may have its number now
    with pytest.raises(BackendError, match=f"device {index}, Lost GPU, is no longer there"):
        open_session(gone)


def test_pocl_on_a_machine_that_cannot_link_is_diagnosed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl.BACKEND, "devices", lambda: [POCL])
    monkeypatch.setattr(drivers, "_loadable", lambda library: False)  # a driver of NVIDIA's that is not registered
    monkeypatch.setattr(linker, "missing", list)
    assert diagnose() == []
    require_usable(POCL)
    monkeypatch.setattr(linker, "missing", lambda: ["no linker: `apt-get install gcc`"])
    assert diagnose() == ["no linker: `apt-get install gcc`"]
    with pytest.raises(SetupError, match="`apt-get install gcc`"):
        require_usable(POCL)
    require_usable(H200)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (-36, "CL_INVALID_COMMAND_QUEUE"),
        (-11, "CL_BUILD_PROGRAM_FAILURE"),
        (-5, "CL_OUT_OF_RESOURCES"),
        (-4321, "unknown error"),
    ],
)
def test_errors_have_the_names_of_the_headers(code: int, name: str) -> None:
    assert error_name(code) == name


@pytest.mark.parametrize("home", ["/dev/null", "/proc/nobody"])
def test_pocl_is_found_where_it_could_write_nothing(home: str, tmp_path: Path) -> None:
    nowhere = {"HOME": home, "XDG_CACHE_HOME": home, "TMPDIR": str(tmp_path)}
    variables = {name: value for name, value in os.environ.items() if name != "POCL_CACHE_DIR"} | nowhere
    code = "from autotune import devices; print(len(devices.list_devices()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables)
    assert done.stdout.strip() != "0"
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_cache_folder_of_pocl_that_is_none_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl.BACKEND, "devices", list)
    monkeypatch.setattr(drivers, "_loadable", lambda library: False)
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.setenv("POCL_CACHE_DIR", "/dev/null/x")
    (line,) = diagnose()
    assert line.startswith("PoCL cannot write to /dev/null/x: set POCL_CACHE_DIR to ")


def test_what_hides_every_device_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "_loadable", lambda library: False)
    monkeypatch.delenv("OCL_ICD_VENDORS", raising=False)
    monkeypatch.setenv("POCL_DEVICES", "none")
    assert drivers.diagnose([]) == ["POCL_DEVICES='none' may hide every device: `unset POCL_DEVICES`"]
    assert not any("POCL_DEVICES" in line for line in drivers.diagnose([POCL]))


@pytest.mark.parametrize("home", ["/" + "n" * 300, "", "link"])
def test_pocl_gets_a_cache_where_home_cannot_be_looked_at(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str
) -> None:
    """As in a container whose HOME is another user's or links to an unmounted place: PoCL would find no device."""
    (tmp_path / "link").symlink_to(tmp_path / "away")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("POCL_CACHE_DIR", "")
    monkeypatch.setenv("HOME", home)
    make = tempfile.TemporaryFile

    def made(dir: Path) -> object:
        if dir.is_absolute():  # "/", or a cache there: nobody but root makes a file in it
            raise PermissionError
        return make(dir=dir)

    monkeypatch.setattr(tempfile, "TemporaryFile", made)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / "autotune-pocl-left"
    left.mkdir()
    (left / "lock").touch()
    folder = Path(given_cache(monkeypatch))
    assert folder.is_dir()
    assert folder.parent == tmp_path
    assert not left.exists()  # its process was killed
    assert given_cache(monkeypatch) != str(folder)
    assert folder.is_dir()  # its process lives


def test_pocl_gets_a_cache_where_its_own_is_on_a_disk_that_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """An empty file can still be made there."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: io.FileIO("/dev/full", "w"))
    assert Path(given_cache(monkeypatch)).parent == tmp_path
    assert drivers.unbuildable()[0].endswith("(No space left on device)")


def given_cache(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("POCL_CACHE_DIR", "")
    monkeypatch.setattr(drivers, "_before", [])
    drivers.give_pocl_a_cache()
    return os.environ["POCL_CACHE_DIR"]


def test_a_cache_that_pyopencl_cannot_write_is_told_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise NotADirectoryError(20, "Not a directory", "/dev/null/.cache")

    session = open_session(device_here())
    program = session.build("kernel void k(global int *x) { x[0] = 1; }")
    monkeypatch.setattr("autotune.devices.opencl_objects.cl.Kernel", fails)
    with pytest.raises(BackendError, match=r"cannot write its cache: .*/dev/null/\.cache.*; set XDG_CACHE_HOME"):
        program.kernel("k")


@pytest.mark.processor
def test_an_option_that_is_refused_without_a_word_is_named(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotune.devices.opencl_session.OpenCLProgram", lambda *_: SimpleNamespace(log=""))
    with pytest.raises(BuildError, match=r"CL_INVALID_BUILD_OPTIONS \(-43\): .*-no-such-option"):
        session.build("kernel void k(global int *x) { x[0] = 1; }", ["-DX=1", "-no-such-option"])


def test_no_names_are_asked_for_where_there_is_no_kernel() -> None:
    """NVIDIA's driver then answers with nothing, not even an empty text, and pyopencl crashes."""

    class Program:
        def get_build_info(self, *_: object) -> str:
            return ""

        def get_info(self, asked: int) -> int:
            assert asked == cl.program_info.NUM_KERNELS
            return 0

    assert OpenCLProgram(Program(), None).entries == []  # type: ignore[arg-type]
