"""The processor that PoCL compiles for, where it is newer than PoCL's compiler.

LLVM has no name for an AMD family that came after it: it says "generic", which its own C compiler then refuses, so that
no kernel builds at all (pip's newest PoCL on Zen 5, and Debian 13's). PoCL has no option for the name. It keeps it in
its description of the device, behind the target's triplet, and reads it there at each build; so a name that the
compiler knows is put there, of the processor that PoCL's own library for these instructions was compiled for.
"""

from __future__ import annotations

import ctypes
import os
import struct
from contextlib import suppress
from pathlib import Path

_UNNAMED = b"generic"
_FIELDS = 256
"""Pointers of a device's description that are looked at: in PoCL 3.0 the triplet is the 80th, in 7.1 the 91st."""

_BEHIND = 5
"""Fields behind the triplet among which the processor's name is: the first in PoCL 3.0, the fourth from 6.0 on, after
the names of libraries."""

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
    """Have PoCL's device, a cl_device_id, compile for a processor that its compiler knows, where it knows none."""
    with suppress(OSError):  # not everywhere may a process read itself like this: PoCL then says what it lacks
        field = field_of(device, _UNNAMED)
        if field and (known := _alike(_instructions())):
            ctypes.c_void_p.from_address(field).value = _kept(known)


def field_of(device: int, processor: bytes) -> int:
    """Return where a device of PoCL points to the name of the processor that it compiles for, where that is this one.

    0 where it is another, or the description is not of an x86-64. Raises OSError where this process may not look at its
    own memory, which is read through a file because that answers where there is none.
    """
    with Path("/proc/self/mem").open("rb", buffering=0) as memory:
        found = os.pread(memory.fileno(), 8 * _FIELDS, device)  # less where the memory ends before
        words = struct.unpack_from(f"={len(found) // 8}Q", found)
        behind = 0
        for place, word in enumerate(words):
            text = _text(memory.fileno(), word)
            if behind and text == processor:
                return device + 8 * place
            behind = _BEHIND if text.startswith(b"x86_64-") else max(0, behind - 1)
    return 0


def _text(memory: int, address: int) -> bytes:
    """The text at an address, empty where nothing is."""
    try:
        return os.pread(memory, _LONGEST, address).partition(b"\0")[0]
    except (OSError, OverflowError):
        return b""


def _kept(text: bytes) -> int:
    """The address of a text that PoCL may free, as it made its own."""
    copy = ctypes.CDLL(None).strdup
    copy.restype = ctypes.c_void_p
    return int(copy(text))


def _instructions() -> set[str]:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return set(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def _alike(instructions: set[str]) -> bytes:
    """The newest of the known processors that these instructions suffice for; empty: none."""
    return next((known for known, needed in _NAMES if needed <= instructions), b"")
