"""The processor that PoCL compiles for where its compiler has no name for the one it runs on."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.devices import processor

ROOT = Path(__file__).parent.parent

# What LLVM does on a processor that it does not know: the name is "generic" before the first build.
UNNAMED = """
import ctypes
import numpy as np
import pyopencl as cl
from autotune.devices import processor
from autotune.devices.opencl_session import OpenCLSession, describe

platform = next(one for one in cl.get_platforms() if "Portable" in one.name)
device = platform.get_devices()[0]
field, before = processor.processor_of(device.int_ptr)
ctypes.c_void_p.from_address(field).value = processor._kept(b"generic")
session = OpenCLSession(describe(device))
print(processor.processor_of(device.int_ptr)[1].decode())
memory = session.allocate(4)
kernel = session.build("kernel void f(global float *y) { y[0] = sqrt(16.0f) + (float8)(3).s7; }").kernel("f")
session.set_arguments(kernel, [memory])
session.launch(kernel, (1,), None)
found = np.empty(1, np.float32)
session.read(memory, found)
print(found[0])
"""


@pytest.mark.device
def test_kernels_build_on_a_processor_that_the_compiler_has_no_name_for(tmp_path: Path) -> None:
    if not processor._alike(processor._instructions()):
        pytest.skip("no x86-64 processor")
    words = [sys.executable, "-c", UNNAMED]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    name, computed = done.stdout.split()
    assert name.encode() in {known for known, _ in processor._NAMES}
    assert computed == "7.0"


def description(*texts: bytes) -> tuple[ctypes.Array[ctypes.c_char_p], int]:
    """A description of a device of which some fields point to texts, and where it lies."""
    words = (ctypes.c_char_p * processor._FIELDS)(*texts)
    return words, ctypes.addressof(words)


@pytest.mark.parametrize(
    ("texts", "known"),
    [
        ((b"OpenCL 3.0", b"x86_64-unknown-linux-gnu", b"znver3"), b"znver3"),  # a name is left alone
        ((b"OpenCL 3.0", b"aarch64-unknown-linux-gnu", b"generic"), b""),  # there it is a name
        ((b"generic",), b""),
        ((), b""),
    ],
)
def test_other_descriptions_stay_as_they_are(texts: tuple[bytes, ...], known: bytes) -> None:
    words, address = description(*texts)
    processor.name(address)
    assert tuple(words)[: len(texts)] == texts
    assert processor.processor_of(address)[1] == known


def test_a_name_is_put_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_instructions", lambda: {"avx", "avx2", "bmi2", "fma", "sse4_2"})
    words, address = description(b"OpenCL 3.0", b"x86_64-unknown-linux-gnu", b"generic", b"generic")
    processor.name(address)
    assert tuple(words)[:4] == (b"OpenCL 3.0", b"x86_64-unknown-linux-gnu", b"haswell", b"generic")


def test_no_instructions_are_assumed() -> None:
    everything = set().union(*(needed for _, needed in processor._NAMES))
    assert processor._alike(everything) == b"skylake-avx512"
    assert processor._alike(everything - {"avx512dq"}) == b"haswell"
    assert processor._alike(everything - {"avx512f", "fma"}) == b"sandybridge"
    assert processor._alike(set()) == b""


def test_memory_that_cannot_be_read_is_no_error() -> None:
    processor.name(0)
    assert processor.processor_of(description()[1]) == (0, b"")
