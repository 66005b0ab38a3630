"""A small study, databases of its bests, and programs in C, for tests of exports for programs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.lookup import collect
from autotune.lookup.artefacts import Catalogue
from autotune.model import DeviceInfo, Value
from autotune.store import Store
from autotune.study import StudyText, problem_key
from tests.stored import DEVICE, ok, put
from tests.studies import SOURCE, table

CHOICES = {"T": "float"}
WINDOWS = ["-Dnear=", "-Dfar=", "-Dsmall=char", "-Dinterface=struct"]
"""Words that windows.h defines as macros: a header must not use them as names."""
STRICT = ["-Wall", "-Wextra", "-Werror", "-Wconversion", "-pedantic", "-Wno-overlength-strings", *WINDOWS]
COMPILERS = {"c": ["gcc", "-std=c99", *STRICT], "c++": ["g++", "-std=c++11", "-x", "c++", *STRICT]}
SANITIZED = ["gcc", "-std=c99", *STRICT, "-fsanitize=undefined,signed-integer-overflow", "-fno-sanitize-recover=all"]


needs_compilers = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("g++")), reason="no gcc, g++: apt-get install g++"
)


needs_opencl = pytest.mark.skipif(
    not Path("/usr/include/CL/cl.h").exists(), reason="no CL/cl.h: apt-get install ocl-icd-opencl-dev"
)


def text(**changes: object) -> StudyText:
    return StudyText("saxpy", Path("saxpy.toml"), table(**changes), Path("saxpy.cl"), SOURCE)


H100 = replace(DEVICE, name="NVIDIA H100 PCIe", compute_units=114, memory=80 * 2**30)


def stored(path: Path, *entries: tuple[DeviceInfo, int, dict[str, Value]], study: StudyText | None = None) -> Path:
    """Return a database with one trial of each device, size and configuration."""
    with Store.open(str(path)) as store:
        for device, n, configuration in entries:
            put(store, [ok(configuration, 50, 51)],
                key=problem_key(study or text(), {"N": n}, CHOICES, device.fingerprint), device=device)  # fmt: skip
    return path


def collected(
    path: Path, *entries: tuple[DeviceInfo, int, dict[str, Value]], study: StudyText | None = None
) -> Catalogue:
    """Return the bests of a study in such a database."""
    return collect(study or text(), CHOICES, database=str(stored(path, *entries, study=study)))


def compiled(folder: Path, program: str, language: str = "c", libraries: Sequence[str] = ()) -> Path:
    (folder / "host.c").write_text(program)
    words = [*(COMPILERS | {"sanitized": SANITIZED})[language], "-I", str(folder), "host.c", "-o", "host", *libraries]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "host"


def printed(program: Path, *words: str, **variables: str) -> list[str]:
    done = subprocess.run([program, *words], capture_output=True, text=True, env=os.environ | variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def answers(folder: Path, written: str, program: str, *words: str, language: str = "c") -> list[str]:
    """Return the output of a program that includes this header."""
    (folder / "saxpy_tuned.h").write_text(written)
    return printed(compiled(folder, program, language), *words)


def swapping(turns: int | str, groups: Sequence[str], **access: str) -> StudyText:
    """Return a study of a loop whose kernel takes all of the groups' buffers, which are swapped after each turn."""
    every = "".join(groups)
    buffers = {name: {"type": "float", "shape": ["N"], "access": access.get(name, "inout")} for name in every}
    loop = {"entry": "saxpy", "global": ["round_up(N, WG)"], "local": ["WG"], "arguments": list(every), "repeat": turns}
    numpy = {name: name for name in every if name not in access}
    return text(
        launch=[loop | {"swap": [list(group) for group in groups]}], arguments=buffers, reference={"numpy": numpy},
        constraints=[], work={},
    )  # fmt: skip


def launched(turns: int, groups: Sequence[str]) -> tuple[list[list[str]], dict[str, str]]:
    """Return the pointers that a C program passes in each turn while it swaps them, and where they point at the end."""
    points = {name: name for group in groups for name in group}
    passed = []
    for _ in range(turns):
        passed.append(list(points.values()))
        for group in groups:
            there = [points[name] for name in group]
            points |= dict(zip(group, [*there[1:], there[0]], strict=True))
    return passed, points


GROUPS = [["ab"], ["abc"], ["ab", "cd"], ["abc", "de"], ["abc", "def"]]
