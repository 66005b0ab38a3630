"""The arguments of kernels: what each kind declares, holds and makes, and their types."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from autotune.errors import StudyError
from autotune.study import Argument, Buffer, Image, Local, Sampler, Scalar, numpy_type
from autotune.study.arguments import KINDS, Members
from autotune.study.schema import ArgumentTable
from autotune.study.scope import Scope

NAMES = {"N": 5, "T": "float", "WG": 4}
TABLES: dict[str, dict[str, Any]] = {
    "shape": {"type": "{T}4", "shape": ["N"], "allocate": ["round_up(N, WG)"], "access": "inout"},
    "image": {"type": "T", "image": ["N", "4"], "channels": "RG", "access": "in"},
    "sampler": {"sampler": {"filter": "linear"}},
    "value": {"type": "T", "value": "N / 2"},
    "local": {"type": "{T}2", "local": "WG * 2"},
}
CONCRETE: dict[str, Argument] = {
    "shape": Buffer("x", "float4", (5,), (8,), "inout"),
    "image": Image("x", "float2", (5, 4), (5, 4), order="RG"),
    "sampler": Sampler("x", "sampler_t", "clamp_to_edge", "linear", False),
    "value": Scalar("x", "float", 2.5),
    "local": Local("x", "float2", 8),
}


class Memory:
    """A session that records the calls."""

    def allocate(self, nbytes: int) -> str:
        return f"{nbytes} bytes"

    def image(self, *kind: object) -> object:
        return kind

    def sampler(self, *kind: object) -> object:
        return kind


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
    if kind is Sampler:
        with pytest.raises(ValueError, match='addressing = "repeat" needs normalized = true'):
            declared(kind, sampler={"addressing": "repeat"})
        return
    told = {"flaot": "unknown type 'flaot'", "atomic_uint": r".*did you mean 'uint'", "float{NOPE}": "names 'NOPE'"}
    for type_, message in told.items():
        with pytest.raises(StudyError, match=rf"^arguments\.x\.type: {message}"):
            declared(kind, type=type_)
    given: Any = {"shape": ["NOPE"], "image": ["NOPE"], "value": "NOPE", "local": "NOPE"}[kind.key]
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
    assert Scalar("x", "int3", (7, 8, 9)).create(session).tolist() == [7, 8, 9, 0]
    assert CONCRETE["image"].create(session) == ((5, 4), "RG", "float", False, "")
    assert CONCRETE["sampler"].create(session) == ("clamp_to_edge", "linear", False)


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


PAIR = "struct Pair { float3 place; int tag[2]; }"


def test_a_struct_is_passed_as_c_lays_it_out() -> None:
    value = Members((("tag", (1, 2)), ("place", (3.0, 4.0, 5.0))))
    found = Scalar("x", PAIR, value).create(Memory())
    assert found.dtype.itemsize == 32
    assert found["place"].tolist() == [3, 4, 5, 0]
    assert found["tag"].tolist() == [1, 2]
    assert Scalar("x", PAIR, value).named["tag"].dtype == np.int64


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        (PAIR, {"place": "0"}, "value: lacks tag"),
        (PAIR, {"place": "0", "tag": "0", "tagg": "0"}, "value: the struct has no member 'tagg' \\(did you mean 'tag'"),
        (PAIR, {"place": "0", "tag": ["0", "1", "2"]}, r"value: x\.tag takes 2 numbers, the value has 3 numbers"),
        (PAIR, "1", "the value of Pair is { MEMBER"),
        ("float4", ["1", "2"], r"value: x takes 4 numbers, the value has 2 numbers"),
        ("float", ["1", "2"], r"value: x takes one number, the value has 2 numbers"),
        ("float2", [["1", "2"], "3"], r"^arguments\.x\.value: is a list of parts of different lengths"),
        (PAIR, {"place": "0", "tag": [["1"], ["1", "2"]]}, r"value\.tag: is a list of parts of different lengths"),
        ("float2", [{"x": "1"}, {"x": "1"}], r"^arguments\.x\.value: holds a table, but is not a struct"),
        ("float4", {"x": "1"}, "the value of float4 is a list"),
        ("float4", ["1", "2", "3", "'4'"], "gives the text '4', not a number"),
        ("uint", "-1", r"^arguments\.x\.value: -1, which uint cannot hold"),
        ("int", "3000000000", "value: 3000000000, which int cannot hold; uint holds it"),
        ("int", "2.5", r"value: 2\.5, which int cannot hold; make it whole"),
        ("float", "1e39", r"value: 1e\+39, which float cannot hold; double holds it"),
        ("half", "65520", "value: 65520, which half cannot hold"),
        ("int4", ["1", "2", "3", "3000000000"], "value: 3000000000, which int cannot hold"),
        ("uchar4", "256", "value: 256, which uchar4 cannot hold"),
        (PAIR, {"place": "0", "tag": ["1", "2**31"]}, r"value\.tag: 2147483648, which int cannot hold"),
        (PAIR, {"place": ["0", "1e39", "0"], "tag": "0"}, r"value\.place: 1e\+39, which float cannot hold"),
    ],
)
def test_values_that_are_not_of_their_type(kind: str, value: Any, message: str) -> None:
    table = ArgumentTable(type=kind, value=value)
    with pytest.raises(StudyError, match=message):
        Scalar.declare("x", table, Scope(()), Scope(())).concrete({})


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("int", "6 / 3"),
        ("int", "3 > 2"),
        ("float", "3 > 2"),
        ("ulong", "2**62"),
        ("float", "0.1"),
        ("float", 3.4028235e38),
        ("half", "65519"),
        ("char2", -128),
    ],
)
def test_values_that_a_type_holds(kind: str, value: Any) -> None:
    table = ArgumentTable(type=kind, value=value)
    found = Scalar.declare("x", table, Scope(()), Scope(())).concrete({})
    assert np.isfinite(found.create(Memory())).all()
    assert type(found.value) in (int, float)
    assert numpy_type(kind)[0].kind == "f" or type(found.value) is int


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"type": "float4"}, "'float4' is not a type of a channel"),
        ({"type": "double"}, "'double' is not a type of a channel"),
        ({"type": "float", "normalized": True}, "a channel of float is not normalized"),
    ],
)
def test_images_that_opencl_does_not_have(changes: dict[str, Any], message: str) -> None:
    table = ArgumentTable(**({"type": "uchar", "image": ["4", "4"], "access": "in"} | changes))
    with pytest.raises(StudyError, match=message):
        Image.declare("x", table, Scope(()), Scope(())).concrete({})


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"type": "float", "value": "1", "channels": "R"}, "belong to images"),
        ({"type": "float", "image": ["4"], "access": "in", "allocate": ["8"]}, "an image has no padding"),
        ({"type": "float", "image": ["4"]}, "an image needs access"),
        ({"type": "float", "shape": ["4"], "form": "buffer"}, r'belongs to images such as image = \["N"\]'),
        ({"type": "float", "image": ["4", "4"], "access": "in", "form": "array"}, r'such as image = \["LAYERS", '),
        ({"type": "float", "image": ["4"], "access": "in", "constant": True}, "constant belongs to buffers"),
        ({"type": "float"}, "needs exactly one of " + ", ".join(rf"{kind.key} \({kind.kind}\)" for kind in KINDS)),
        ({"type": "float", "sampler": {}}, "a sampler has no type"),
        ({"value": "1"}, "needs a type"),
        ({"type": "float", "value": []}, "is empty"),
        ({"type": "float", "value": {"a b": "1"}}, "a b"),
    ],
)
def test_tables_of_no_kind(table: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ArgumentTable(**table)
