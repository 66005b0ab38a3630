"""OpenCL's types as NumPy types, and their names in other languages.

The data of a vector buffer of shape `(n,)` is a NumPy array of shape `(n, 4)`; a three-component vector takes the
room of four, as OpenCL lays it out.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from autotune.errors import StudyError
from autotune.study.scope import GAP, UNWRITTEN
from autotune.text import did_you_mean

SCALAR_TYPES: dict[str, DTypeLike] = {
    "char": np.int8, "uchar": np.uint8, "short": np.int16, "ushort": np.uint16, "int": np.int32, "uint": np.uint32,
    "long": np.int64, "ulong": np.uint64, "half": np.float16, "float": np.float32, "double": np.float64,
}  # fmt: skip
_OTHER_NAMES = {
    "unsigned": "uint", "bool": "uchar", "size_t": "ulong", "ptrdiff_t": "long", "float16": "half", "float32": "float",
    "float64": "double", "int8_t": "char", "int16_t": "short", "int32_t": "int", "int64_t": "long",
    "atomic_int": "int", "atomic_uint": "uint", "atomic_long": "long", "atomic_ulong": "ulong", "atomic_float": "float",
    "atomic_double": "double",
}  # fmt: skip
"""Names in other languages, and names in C that OpenCL does not accept for arguments."""

_NAME = re.compile(rf"({'|'.join(SCALAR_TYPES)})(2|3|4|8|16)?")


@cache
def numpy_type(name: str) -> tuple[np.dtype[Any], int]:
    """Return the NumPy type of one component and the number of components stored (`float3`: float32, 4).

    A struct, given as its whole text (structs.py), is one component of NumPy's type with fields.
    """
    if name.startswith("struct "):
        from autotune.study.structs import struct_dtype

        return struct_dtype(name), 1
    dtype, _, width = scalar_type(name)
    return dtype, 4 if width == 3 else width


@cache
def scalar_type(name: str) -> tuple[np.dtype[Any], str, int]:
    """Return the NumPy type of one component, OpenCL's name of it, and the number of components (`float3`: 3)."""
    found = _NAME.fullmatch(name)
    if name == GAP:
        raise StudyError(UNWRITTEN)
    if found is None:
        raise StudyError(
            f"unknown type {name!r:.60}{_suggestion(name)}",
            hint=f"use one of {', '.join(SCALAR_TYPES)}, a vector of them such as float4, or a name of [structs]",
        )
    return np.dtype(SCALAR_TYPES[found[1]]), found[1], int(found[2] or 1)


def scalar_name(dtype: np.dtype[Any]) -> str:
    """Return OpenCL's name of a NumPy type of numbers."""
    return next(name for name, kind in SCALAR_TYPES.items() if np.dtype(kind) == dtype)


def holds(dtype: np.dtype[Any], value: float) -> bool:
    """Whether a type holds a number: whole and within its range, or a float that stays finite, at any precision."""
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return bool(np.isfinite(dtype.type(value))) or not math.isfinite(value)
    least, most = _range(dtype)
    return least <= value <= most and value == int(value)


@cache
def _range(dtype: np.dtype[Any]) -> tuple[int, int]:
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def is_plain(name: str) -> bool:
    """Whether a name is one of OpenCL's types for numbers."""
    return _NAME.fullmatch(name) is not None


def _suggestion(name: str) -> str:
    """Return ` (did you mean 'uint'?)` for C's `unsigned int` and the like, else for a similar spelling."""
    words = [word for word in name.split() if word not in ("signed", "const", "__global", "global")]
    plain = " ".join(words).removesuffix(" int") if words != ["int"] else "int"
    unsigned = plain.startswith("unsigned ") or re.fullmatch(r"uint\d+_t", plain) is not None
    known = _OTHER_NAMES.get(plain.removeprefix("unsigned ").removeprefix("u" if unsigned else ""), "")
    known = known or plain.removeprefix("unsigned ").replace("long long", "long").strip()
    if unsigned and f"u{known}" in SCALAR_TYPES:
        known = f"u{known}"
    return f" (did you mean {known!r}?)" if known in SCALAR_TYPES else did_you_mean(name, SCALAR_TYPES)
