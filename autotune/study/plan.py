"""What a worker is told to build and run: frozen, plain data that pickles, no OpenCL in it.

Types are OpenCL's names (`float`, `int`, `float4`). The data of a vector buffer of shape `(n,)` is a NumPy
array of shape `(n, 4)`; a three-component vector takes the room of four, as OpenCL lays it out.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import DTypeLike

from autotune.errors import StudyError
from autotune.study.library import did_you_mean

SCALAR_TYPES: dict[str, DTypeLike] = {
    "char": np.int8,
    "uchar": np.uint8,
    "short": np.int16,
    "ushort": np.uint16,
    "int": np.int32,
    "uint": np.uint32,
    "long": np.int64,
    "ulong": np.uint64,
    "half": np.float16,
    "float": np.float32,
    "double": np.float64,
}
_OTHER_NAMES = {
    "unsigned": "uint", "bool": "uchar", "size_t": "ulong", "ptrdiff_t": "long", "float16": "half", "float32": "float",
    "float64": "double", "int8_t": "char", "int16_t": "short", "int32_t": "int", "int64_t": "long",
}  # fmt: skip
"""What other languages call them, and C where OpenCL takes it for no argument."""

_NAME = re.compile(rf"({'|'.join(SCALAR_TYPES)})(2|3|4|8|16)?")


def numpy_type(name: str) -> tuple[np.dtype[np.generic], int]:
    """Return the NumPy type of one component and the number of components stored (`float3`: float32, 4)."""
    found = _NAME.fullmatch(name)
    if found is None:
        raise StudyError(
            f"unknown type {name!r}{_suggestion(name)}",
            hint=f"use one of {', '.join(SCALAR_TYPES)}, or a vector of them such as float4",
        )
    width = int(found[2] or 1)
    return np.dtype(SCALAR_TYPES[found[1]]), 4 if width == 3 else width


def _suggestion(name: str) -> str:
    """Return ` (did you mean 'uint'?)` for C's `unsigned int` and the like, else for what is spelt nearly so."""
    words = [word for word in name.split() if word not in ("signed", "const", "__global", "global")]
    plain = " ".join(words).removesuffix(" int") if words != ["int"] else "int"
    unsigned = plain.startswith("unsigned ") or re.fullmatch(r"uint\d+_t", plain) is not None
    known = _OTHER_NAMES.get(plain.removeprefix("unsigned ").removeprefix("u" if unsigned else ""), "")
    known = known or plain.removeprefix("unsigned ").replace("long long", "long").strip()
    if unsigned and f"u{known}" in SCALAR_TYPES:
        known = f"u{known}"
    return f" (did you mean {known!r}?)" if known in SCALAR_TYPES else did_you_mean(name, SCALAR_TYPES)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A value `x` is right where `|x - ref| <= absolute + relative * |ref|`; both 0 means exact."""

    relative: float = 0.0
    absolute: float = 0.0


@dataclass(frozen=True, slots=True)
class Buffer:
    """A global buffer: its data fills `shape`; the kernel sees `allocate`, each extent >= that of `shape`.

    `access` is `in`, `out`, `inout` (restored before each verified run), `scratch` or `zeroed` (before each
    run). What lies in `allocate` and not in `shape` is zero.
    """

    name: str
    type: str
    shape: tuple[int, ...]
    allocate: tuple[int, ...]
    access: str = "in"

    @property
    def nbytes(self) -> int:
        """Bytes of the padded allocation."""
        dtype, width = numpy_type(self.type)
        return math.prod(self.allocate) * width * dtype.itemsize


@dataclass(frozen=True, slots=True)
class Scalar:
    """A kernel argument passed by value."""

    name: str
    type: str
    value: int | float


@dataclass(frozen=True, slots=True)
class Local:
    """A `__local` argument of `count` elements."""

    name: str
    type: str
    count: int

    @property
    def nbytes(self) -> int:
        """Bytes of local memory this argument takes."""
        dtype, width = numpy_type(self.type)
        return self.count * width * dtype.itemsize


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch: `global_size` in work-items; `arguments` names those of the plan, in order."""

    entry: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """A configuration made concrete: source, build options (`-D...` included), launches in order.

    `local_memory` is a limit in bytes that the study states instead of the device's own report (NVIDIA takes
    more than the 48 KiB it tells); None: the device's.
    """

    source: str
    options: tuple[str, ...]
    launches: tuple[Launch, ...]
    arguments: dict[str, Buffer | Scalar | Local]
    outputs: dict[str, Tolerance] = field(default_factory=dict)
    cache: str = "warm"
    local_memory: int | None = None
