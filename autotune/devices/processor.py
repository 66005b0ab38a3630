"""Sets the processor that PoCL compiles for, if the real one is newer than PoCL's compiler.

LLVM has no name for an AMD family that is newer than itself: it says "generic", which its own C compiler then refuses.
So no kernel builds at all (pip's newest PoCL on Zen 5, and Debian 13's). PoCL has no option for the name. It keeps
the name in its description of the device, after the target's triplet, and reads it there at each build. So a name that
the compiler knows is written there: the processor for which PoCL's own library for these instructions was compiled.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress
from pathlib import Path

_UNNAMED = b"generic"
_FIELDS = 256
"""Pointers of a device's description that are read: in PoCL 3.0 the triplet is the 80th, in 7.1 the 91st."""

_BEHIND = 5
"""Fields after the triplet in which the processor's name is searched: it is the first in PoCL 3.0, and the fourth since
6.0, after the names of libraries."""

_LONGEST = 64
"""Bytes of a name at most."""

# As PoCL chooses its library: the first whose instructions the processor has.
_NAMES = (
    (b"skylake-avx512", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
    (b"haswell", {"avx2", "bmi2", "fma"}),
    (b"sandybridge", {"avx"}),
    (b"nehalem", {"sse4_2"}),
)


def name(device: int) -> None:
    """Make PoCL's device (a cl_device_id) compile for a processor that its compiler knows, if it has no name yet."""
    with suppress(OSError):  # some systems forbid a process to read itself: PoCL then reports what it lacks
        field = field_of(device, _UNNAMED)
        if field and (known := _alike(_instructions())):
            ctypes.c_void_p.from_address(field).value = _kept(known)


def field_of(device: int, processor: bytes) -> int:
    """Return the address of the field of a PoCL device that points to the name of its processor, if it is `processor`.

    0 if the name is another, or the device is not an x86-64. Raises OSError if this process may not read its own
    memory. The memory is read through a file, which gives an error at an invalid address and not a crash.
    """
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        found = os.pread(memory.fileno(), 8 * _FIELDS, device)  # less if the memory ends before
        words = struct.unpack_from(f"={len(found) // 8}Q", found)
        behind = 0
        for place, word in enumerate(words):
            text = _text(memory.fileno(), word)
            if behind and text == processor:
                return device + 8 * place
            behind = _BEHIND if text.startswith(b"x86_64-") else max(0, behind - 1)
    return 0


def _text(memory: int, address: int) -> bytes:
    """Return the text at an address; empty if there is no memory."""
    try:
        return os.pread(memory, _LONGEST, address).partition(b"\0")[0]
    except (OSError, OverflowError):
        return b""


def _kept(text: bytes) -> int:
    """Return the address of a copy of a text, allocated so that PoCL may free it."""
    copy = ctypes.CDLL(None).strdup
    copy.restype = ctypes.c_void_p
    return int(copy(text))


def _instructions() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return set(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def _alike(instructions: set[str]) -> bytes:
    """Return the newest of the known processors that needs only these instructions; empty if there is none."""
    return next((known for known, needed in _NAMES if needed <= instructions), b"")
