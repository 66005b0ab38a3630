from __future__ import annotations

import numpy as np
import pytest

from autotune.errors import StudyError
from autotune.study.plan import Buffer, Local, numpy_type


@pytest.mark.parametrize(
    ("name", "dtype", "width"),
    [("float", np.float32, 1), ("half", np.float16, 1), ("uchar16", np.uint8, 16), ("double3", np.float64, 4)],
)
def test_opencl_types_as_numpy_sees_them(name: str, dtype: type, width: int) -> None:
    assert numpy_type(name) == (np.dtype(dtype), width)


@pytest.mark.parametrize("name", ["", "float5", "flaot", "float 4", "void"])
def test_other_types_are_refused(name: str) -> None:
    with pytest.raises(StudyError, match="unknown type"):
        numpy_type(name)


def test_bytes_count_padding_and_vectors() -> None:
    assert Buffer("x", "float4", (3,), (4,)).nbytes == 64
    assert Buffer("x", "int", (3, 5), (4, 8)).nbytes == 128
    assert Local("tile", "double2", 10).nbytes == 160


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("unsigned int", "uint"),
        ("unsigned", "uint"),
        ("unsigned char", "uchar"),
        ("uint32_t", "uint"),
        ("size_t", "ulong"),
    ],
)
def test_what_c_calls_it_is_suggested_as_opencl_does(name: str, meant: str) -> None:
    with pytest.raises(StudyError, match=f"did you mean '{meant}'"):
        numpy_type(name)
