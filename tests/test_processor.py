"""The processor that PoCL compiles for if its compiler does not know the one that it runs on."""

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
words = device.version.strip().split("-")  # it ends by the name
names = ("-".join(words[at:]).encode() for at in range(len(words)))
field = next(filter(None, (processor.field_of(device.int_ptr, name) for name in names)))
ctypes.c_void_p.from_address(field).value = processor._kept(b"generic")
session = OpenCLSession(describe(device))
print(next(name.decode() for name, _ in processor._NAMES if processor.field_of(device.int_ptr, name)))
memory = session.allocate(4)
kernel = session.build("kernel void f(global float *y) { y[0] = sqrt(16.0f) + (float8)(3).s7; }").kernel("f")
session.set_arguments(kernel, [memory])
session.launch(kernel, (1,), None)
found = np.empty(1, np.float32)
session.read(memory, found)
print(found[0])
"""


@pytest.mark.device
@pytest.mark.usefixtures("links")
def test_kernels_build_on_a_processor_that_the_compiler_has_no_name_for() -> None:
    if not processor._alike(processor._instructions()):
        pytest.skip("no x86-64 processor")
    words = [sys.executable, "-c", UNNAMED]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    name, computed = done.stdout.split()
    assert name.encode() in {known for known, _ in processor._NAMES}
    assert computed == "7.0"


def description(*texts: bytes) -> tuple[ctypes.Array[ctypes.c_char_p], int]:
    """Return a description of a device, of which some fields point to texts, and its address."""
    words = (ctypes.c_char_p * processor._FIELDS)(*texts)
    return words, ctypes.addressof(words)


@pytest.mark.parametrize(
    "texts",
    [
        (b"OpenCL 3.0", b"x86_64-unknown-linux-gnu", b"znver3"),  # a name is left alone
        (b"OpenCL 3.0", b"aarch64-unknown-linux-gnu", b"generic"),  # there it is a name
        (b"x86_64-pc-linux-gnu", b"kernel-avx2", b"kernel-generic", b"host", b"znver3", b"", b"generic"),  # too far
        (b"generic",),
        (),
    ],
)
def test_other_descriptions_stay_as_they_are(texts: tuple[bytes, ...]) -> None:
    words, address = description(*texts)
    processor.name(address)
    assert tuple(words)[: len(texts)] == texts


@pytest.mark.parametrize("libraries", [(), (b"kernel-avx2", b"kernel-generic", b"host")])  # of PoCL 3.0; 6.0 and 7.1
def test_a_name_is_put_where_there_is_none(libraries: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_instructions", lambda: {"avx", "avx2", "bmi2", "fma", "sse4_2"})
    before = b"OpenCL 3.0", b"x86_64-unknown-linux-gnu", *libraries
    words, address = description(*before, b"generic", b"generic")
    processor.name(address)
    assert tuple(words)[: len(before) + 2] == (*before, b"haswell", b"generic")


def test_no_instructions_are_assumed() -> None:
    everything = set().union(*(needed for _, needed in processor._NAMES))
    assert processor._alike(everything) == b"skylake-avx512"
    assert processor._alike(everything - {"avx512dq"}) == b"haswell"
    assert processor._alike(everything - {"avx512f", "fma"}) == b"sandybridge"
    assert processor._alike(set()) == b""


def test_memory_that_cannot_be_read_is_no_error() -> None:
    processor.name(0)
    assert processor.field_of(description()[1], b"generic") == 0
