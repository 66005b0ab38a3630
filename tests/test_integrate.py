"""docs/integrate.md and its examples: the page shows what the files say, and each builds and runs on PoCL."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from autotune.devices import find_device
from autotune.exchange import READERS, WRITERS
from autotune.model import Outcome, Trial
from autotune.store import Store
from autotune.study import Problem, Study
from autotune.text import pairs
from tests import pocl
from tests.stored import DEVICE, ok, put

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "integrate.md").read_text()
EXAMPLES = [path for name in ("integrate", "clblast") for path in sorted((ROOT / "examples" / name).rglob("*.*"))]
SCALE = {"WG": 128, "WPT": 4}
XGEMM = {
    "GEMMK": 0, "MWG": 16, "NWG": 16, "KWG": 16, "MDIMC": 2, "NDIMC": 2, "MDIMA": 2, "NDIMB": 2, "KWI": 2,
    "VWM": 8, "VWN": 1, "STRM": 0, "STRN": 0, "SA": 0, "SB": 0, "KREG": 1,
}  # fmt: skip


def test_the_page_shows_what_the_examples_say() -> None:
    texts = [path.read_text() for path in [*EXAMPLES, ROOT / "examples" / "integrate" / "Makefile"] if path.is_file()]
    shown = re.findall(r"^```\w+\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(shown) >= 9
    for block in shown:
        assert any(block in text for text in texts), block


def test_the_page_names_every_file_and_format() -> None:
    linked = re.findall(r"\]\(\.\./(examples/[^)]+)\)", PAGE)
    assert all((ROOT / path).exists() for path in linked)
    assert all(f"`{name}`" in PAGE for name in READERS)
    assert all(f"`{name}`" in PAGE for name in WRITERS)


@pytest.mark.skipif(find_spec("kernel_tuner") is None, reason="needs Kernel Tuner: pip install '.[bench]'")
@pytest.mark.device
@pytest.mark.parametrize("strategy", ["brute_force", "genetic_algorithm"])
def test_kernel_tuner_replays_what_a_search_has_timed(tmp_path: Path, strategy: str) -> None:
    study = ROOT / "examples" / "integrate" / "scale.toml"
    problem = Problem(Study.load(str(study)), None, None, DEVICE)
    valid = [problem.space.configuration(row) for row in range(len(problem.space))]
    trials = [
        replace(ok(one, 5000 + row), outcome=Outcome.STOPPED) if row % 3 == 1 else ok(one, 5000 + row)
        for row, one in enumerate(valid)
    ]
    trials[0] = Trial(valid[0], Outcome.COMPILE_ERROR)
    own = {**os.environ, "PYTHONPATH": str(ROOT), "AUTOTUNE_DB": str(tmp_path / "a.db")}
    with Store.open(own["AUTOTUNE_DB"]) as store:
        put(store, trials, key=problem.key)
    script = f"{sys.executable} {study.parent / 'replay.py'} cache.json {strategy}"
    export = f"autotune export cache.json --format kernel-tuner --study {study} -d {DEVICE.fingerprint}"
    shown = output(tmp_path, own, f"{sys.executable} -m {export}", script).splitlines()[-1]
    passed = {
        f"best {trial.time_ns / 1e6:g} ms with {pairs(trial.configuration)}"
        for trial in trials
        if trial.outcome is Outcome.OK
    }
    assert shown.partition(" evaluations, ")[2] in passed
    if strategy == "brute_force":
        assert shown.startswith("13 evaluations, best 0.005002 ms")


# What needs a compiler, build tools and CLBlast ------------------------------------------------------------


def require(program: str, package: str) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}: apt-get install {package}")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with which `autotune` is this checkout's, and pip's PoCL is the only OpenCL of a C program."""
    require("cc", "gcc libc6-dev")
    if not Path("/usr/include/CL/cl.h").exists():
        pytest.skip("needs OpenCL's headers and loader: apt-get install ocl-icd-opencl-dev")
    if pocl.driver() is None:
        pytest.skip("needs PoCL: pip install pocl-binary-distribution")
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "autotune").write_text(
        f'#!/bin/sh\nexec env -u OCL_ICD_VENDORS -u LD_PRELOAD {sys.executable} -m autotune "$@"\n'
    )
    (programs / "autotune").chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        **pocl.environment(tmp_path / "drivers"),
        "AUTOTUNE_DB": str(tmp_path / "a.db"),
    }


@pytest.fixture
def scale(tmp_path: Path, environment: dict[str, str]) -> Path:
    """The example's folder, and a database with its best for the device here."""
    folder = tmp_path / "scale"
    shutil.copytree(ROOT / "examples" / "integrate", folder)
    keep(folder / "scale.toml", SCALE, environment)
    return folder


def keep(study: Path, configuration: dict[str, int], environment: dict[str, str], **size: int) -> None:
    """Store a configuration as the only trial of a study on the device here."""
    device = find_device(None)
    problem = Problem(Study.load(str(study)), size, None, device)
    assert configuration in problem.space
    with Store.open(environment["AUTOTUNE_DB"]) as store:
        put(store, [ok(configuration, 1000)], key=problem.key, device=device)


def output(folder: Path, environment: dict[str, str], *commands: str) -> str:
    """Return what the last of some shell commands prints."""
    for command in commands:
        done = subprocess.run(
            ["sh", "-euc", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def leave_another(folder: Path) -> None:
    """Leave a header from another build beside the sources, as Make does."""
    (folder / "scale_tuned.h").write_text("#define WG 64\n#define WPT 1\n")


RIGHT = "right with WG=128 WPT=4"


@pytest.mark.device
@pytest.mark.toolchain
class TestBuilds:
    def test_make(self, scale: Path, environment: dict[str, str]) -> None:
        require("make", "make")
        assert RIGHT in output(scale, environment, "make", "./scale scale.cl")

    def test_one_program_for_many_sizes(self, scale: Path, environment: dict[str, str]) -> None:
        require("make", "make")
        assert "right with -DWG=128 -DWPT=4 (exact)" in output(scale, environment, "make many", "./many 65536")
        assert "right with -DWG=128 -DWPT=4 (nearest size)" in output(scale, environment, "./many 1001")

    def test_cmake(self, scale: Path, environment: dict[str, str]) -> None:
        require("cmake", "cmake")
        leave_another(scale)
        commands = ("cmake -B build", "cmake --build build", "./build/scale scale.cl")
        assert RIGHT in output(scale, environment, *commands)

    def test_a_device_that_is_not_here(self, scale: Path, environment: dict[str, str]) -> None:
        require("cmake", "cmake")
        commands = (
            "cmake -B build -DAUTOTUNE_DEVICE=nvidia-h200-132cu-140g",
            "cmake --build build",
            "cat build/scale_tuned.h",
        )
        assert "for nvidia-h200-132cu-140g; match: default" in output(scale, environment, *commands)

    def test_meson(self, scale: Path, environment: dict[str, str]) -> None:
        require("meson", "meson")
        leave_another(scale)
        assert RIGHT in output(scale, environment, "meson setup b", "meson compile -C b", "./b/scale scale.cl")

    def test_a_build_fails_where_autotune_does_and_leaves_no_header(
        self, scale: Path, environment: dict[str, str]
    ) -> None:
        require("make", "make")
        (scale / "scale.toml").write_text("name = 3")
        done = subprocess.run(["make"], cwd=scale, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "scale.toml" in done.stderr
        assert not (scale / "scale_tuned.h").exists()

    def test_pyopencl(self, scale: Path, environment: dict[str, str]) -> None:
        own = {name: value for name, value in environment.items() if name not in pocl.VARIABLES}
        assert f"{RIGHT} (exact)" in output(scale, own, f"{sys.executable} program.py")

    def test_a_ci_job(self, scale: Path, environment: dict[str, str]) -> None:
        own = {name: value for name, value in environment.items() if name not in pocl.VARIABLES}
        output(scale, own, "sh ci.sh")
        assert len((scale / "trials.jsonl").read_text().splitlines()) >= 5
        assert "run: sh ci.sh" in (scale / ".github" / "workflows" / "tune.yml").read_text()
        (scale / "scale.cl").write_text((scale / "scale.cl").read_text().replace("factor * x", "x"))
        wrong = subprocess.run(["sh", "ci.sh"], cwd=scale, env=own, capture_output=True, text=True, check=False)
        assert wrong.returncode == 1

    @pytest.mark.timeout(900)
    def test_clblast_takes_what_was_tuned(self, tmp_path: Path, environment: dict[str, str]) -> None:
        require("make", "make")
        if not Path("/usr/include/clblast_c.h").exists():
            pytest.skip("needs CLBlast: apt-get install libclblast-dev")
        folder = tmp_path / "clblast"
        shutil.copytree(ROOT / "examples" / "clblast", folder)
        output(folder, environment, "make xgemm.cl")
        keep(folder / "xgemm.toml", XGEMM, environment, M=64, N=64, K=64)
        told = output(folder, environment, "make SIZE=64", "./gemm 64")
        assert re.fullmatch(r"CLBlast's own parameters +[\d.]+ ms\nautotune's +[\d.]+ ms  \([\d.]+ x as fast\)\n", told)
        assert "#define MWG   16" in (folder / "xgemm_tuned.h").read_text()
        checked = output(folder, environment, "autotune check ./xgemm.toml --size 64")
        assert "verified against the reference" in checked
