"""The arguments of kernels: what each kind declares, holds and makes, and the types they have."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from autotune.errors import StudyError
from autotune.study import Argument, Buffer, Local, Scalar, numpy_type
from autotune.study.arguments import KINDS
from autotune.study.schema import ArgumentTable, Scope

NAMES = {"N": 5, "T": "float", "WG": 4}
TABLES: dict[str, dict[str, Any]] = {
    "shape": {"type": "{T}4", "shape": ["N"], "allocate": ["round_up(N, WG)"], "access": "inout"},
    "value": {"type": "T", "value": "N / 2"},
    "local": {"type": "{T}2", "local": "WG * 2"},
}
CONCRETE: dict[str, Argument] = {
    "shape": Buffer("x", "float4", (5,), (8,), "inout"),
    "value": Scalar("x", "float", 2.5),
    "local": Local("x", "float2", 8),
}


class Memory:
    """A session that notes what is asked of it."""

    def allocate(self, nbytes: int) -> str:
        return f"{nbytes} bytes"


@pytest.fixture(params=KINDS, ids=lambda kind: kind.key)
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


def declared(kind: type[Argument], **changes: Any) -> Argument:
    table = ArgumentTable(**{**TABLES[kind.key], **changes})
    return kind.declare("x", table, Scope({"N", "T"}), Scope(NAMES))


def test_what_is_declared_becomes_concrete_and_travels(kind: type[Argument]) -> None:
    found = declared(kind).concrete(NAMES)
    assert found == CONCRETE[kind.key]
    assert type(found) is kind
    assert pickle.loads(pickle.dumps(found)) == found
    assert len({found, CONCRETE[kind.key]}) == 1


def test_what_does_not_fit_is_told_with_its_place(kind: type[Argument]) -> None:
    for type_, message in (("flaot", "unknown type 'flaot'"), ("float{NOPE}", "names 'NOPE'")):
        with pytest.raises(StudyError, match=rf"^arguments\.x\.type: {message}"):
            declared(kind, type=type_)
    given: Any = {"shape": ["NOPE"], "value": "NOPE", "local": "NOPE"}[kind.key]
    with pytest.raises(StudyError, match=rf"^arguments\.x\.{kind.key}: names 'NOPE'"):
        declared(kind, **{kind.key: given})


def test_what_is_on_the_device() -> None:
    session: Any = Memory()
    assert CONCRETE["shape"].create(session) == "128 bytes"
    assert CONCRETE["local"].create(session) == CONCRETE["local"].local_bytes == 64
    assert CONCRETE["shape"].local_bytes == CONCRETE["value"].local_bytes == 0
    half = Scalar("x", "half", 2).create(session)
    assert (half, half.dtype) == (2, np.float16)
    assert Scalar("x", "int3", 7).create(session).tolist() == [7, 7, 7, 7]


def test_what_an_access_reads_and_writes() -> None:
    every = [Buffer("x", "float", (1,), (1,), access) for access in ("in", "out", "inout", "scratch", "zeroed")]
    assert [buffer.access for buffer in every if buffer.reads] == ["in", "inout"]
    assert [buffer.access for buffer in every if buffer.writes] == ["out", "inout"]
    assert not any(argument.reads or argument.writes for argument in (CONCRETE["value"], CONCRETE["local"]))


def test_bytes_and_shapes_count_padding_and_vectors() -> None:
    assert Buffer("x", "float4", (3,), (4,)).nbytes == 64
    assert Buffer("x", "float4", (3,), (4,)).data_shape == (3, 4)
    assert Buffer("x", "int", (3, 5), (4, 8)).nbytes == 128
    assert Buffer("x", "int", (3, 5), (4, 8)).data_shape == (3, 5)
    assert Scalar("x", "double2", 1).nbytes == 16


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
