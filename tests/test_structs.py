"""Structs: what a study declares, C's layout as the compiler has it, and members in the language of references."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.bench.signature import _measured
from autotune.devices import Session
from autotune.errors import StudyError
from autotune.pool.caller import Caller
from autotune.study import Plan, Problem, Study, check_reference, expected_data, input_data, leaves, numpy_type, offsets
from autotune.study.arrays import evaluate, shape_of
from autotune.study.structs import astride, struct_texts
from autotune.study.types import SCALAR_TYPES

MEMBER = st.tuples(
    st.sampled_from([name for name in SCALAR_TYPES if name != "half"]),
    st.sampled_from(["", "2", "3", "4", "16"]),
    st.sampled_from(["", "[1]", "[3]", "[2][3]"]),
)


def declared(kinds: list[tuple[str, str, str]], prefix: str = "m") -> list[str]:
    return [f"{scalar}{width} {prefix}{n}{array}" for n, (scalar, width, array) in enumerate(kinds)]


@pytest.mark.device
class TestLayout:
    def test_structs_lie_as_the_compiler_lays_them_out(self, session: Session) -> None:
        """Many structs in one build, because the compiler is the slow part."""
        found: list[tuple[list[str], list[str]]] = []

        @settings(max_examples=12, database=None)
        @given(st.lists(MEMBER, min_size=1, max_size=5), st.lists(MEMBER, min_size=1, max_size=4))
        def collect(inner: list[tuple[str, str, str]], outer: list[tuple[str, str, str]]) -> None:
            found.append((declared(inner), [*declared(outer, "o"), "Inner nested[2]", "char last"]))

        collect()
        for inner, outer in found[-2:]:
            texts = struct_texts({"Inner": inner, "Outer": outer}, {})
            bodies = [
                "typedef struct { " + "".join(f"{member}; " for member in members) + f"}} {name};"
                for name, members in (("Inner", inner), ("Outer", outer))
            ]
            plan = Plan("\n".join(bodies), (), (), {})
            size, *places = _measured(session, plan, "Outer", list(offsets(texts["Outer"]))) or [0]
            assert size == numpy_type(texts["Outer"])[0].itemsize, outer
            assert places[::2] == list(offsets(texts["Outer"]).values()), outer

    @pytest.mark.parametrize(
        ("attributes", "size"), [(["packed"], 22), (["aligned(64)"], 64), (["packed", "aligned(4)"], 24)]
    )
    def test_what_is_packed_or_aligned_lies_as_the_compiler_has_it(
        self, session: Session, attributes: list[str], size: int
    ) -> None:
        members = ["uchar tag", "float4 place", "Inner inner"]
        texts = struct_texts({"Inner": ["packed", "uchar a", "uint b"], "S": [*attributes, *members]}, {})
        source = (
            "typedef struct { uchar a; uint b; } __attribute__((packed)) Inner;\n"
            f"typedef struct __attribute__(({', '.join(attributes)})) {{ {'; '.join(members)}; }} S;"
        )
        found = _measured(session, Plan(source, (), (), {}), "S", ["tag", "place", "inner"]) or [0]
        assert found[0] == numpy_type(texts["S"])[0].itemsize == size
        assert found[1::2] == list(offsets(texts["S"]).values())


@pytest.mark.parametrize(
    ("members", "message"),
    [
        (["packed"], r"^structs\.S: has no members"),
        (["aligned(3)", "float x"], r"^structs\.S\.1: 'aligned\(3\)': no power of two"),
        (["aligned(N)", "float x"], r"^structs\.S\.1: 'aligned\(N\)' is not a member"),
        (["flaot x"], r"^structs\.S\.1: unknown type 'flaot'"),
        (["float x", "int x"], r"^structs\.S: has 'x' twice"),
        (["float"], r"^structs\.S\.1: 'float' is not a member"),
        (["float x[N]"], r"^structs\.S\.1: 'float x\[N\]' is not a member"),
        (["float x[0]"], r"^structs\.S: x has an extent of 0"),
        (["float x[1000000]"], r"^structs\.S: S takes more than 1048576 bytes"),
        (["Fist a"], r"^structs\.S\.1: no struct 'Fist' before it \(did you mean 'First'\?\)"),
        (["S again"], r"^structs\.S\.1: the struct S is not defined before it"),
        (["float *p"], "is not a member"),
        ([f"int m{n}" for n in range(129)], "more than 128 members"),
    ],
)
def test_members_that_are_none(members: list[str], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        struct_texts({"First": ["int a"], "S": members}, {})


def test_numbers_that_no_device_reads_at_once_are_no_output() -> None:
    given = study(structs={"Point": ["packed", "uchar tag", "float3 place", "int count[2]"]})
    with pytest.raises(StudyError, match=r"p\.place is not aligned to its size.* is not packed"):
        Problem(given, {"N": 4}).plan({"WG": 1})
    assert astride("float4") is None
    assert astride(struct_texts({"S": ["packed", "int a", "int4 b[2]"]}, {})["S"]) is None


def test_a_name_of_opencl_is_no_struct() -> None:
    with pytest.raises(StudyError, match="'float4' is already an OpenCL type"):
        struct_texts({"float4": ["float x"]}, {})


def test_a_choice_may_be_the_type_of_a_member() -> None:
    text = struct_texts({"S": ["T x", "{T}4 y"]}, {"T": ("float",)})["S"]
    assert text == "struct S { {T} x; {T}4 y; }"


PARTICLE = numpy_type("struct P { float3 place; struct Q { int tag[2]; } q; }")[0]


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("p.place", (5, 4)),
        ("p['place'][:, 2]", (5,)),
        ("p.q.tag + 1", (5, 2)),
        ("p[1:].q['tag'].T", (2, 4)),
        ("p[0].place", (4,)),
    ],
)
def test_members_are_named_in_references(text: str, shape: tuple[int, ...]) -> None:
    assert shape_of(text, {"p": np.zeros(5, PARTICLE)}) == shape
    assert np.shape(evaluate(text, {"p": np.zeros(5, PARTICLE)})) == shape


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p.plac", r"no member 'plac' \(did you mean 'place'\?\)"),
        ("n.place", "may not contain"),
        ("sum(n.y)", r"`n\.y`: an array has no components by name; components are the last axis: write n\[\.\.\., 1\]"),
        ("p.place.sA", r"write p\.place\[\.\.\., 10\]"),
        ("n['place']", "no struct has 'place'"),
        ("p + 1", "p \\+ 1: "),
        ("n ^ 2", r"n \^ 2: ufunc 'bitwise_xor' .*; powers are written \*\*$"),
        ("p.__class__", "no member '__class__'"),
    ],
)
def test_members_that_are_not_there(text: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        evaluate(text, {"p": np.zeros(5, PARTICLE), "n": np.zeros(5)})


def study(**changes: Any) -> Study:
    tables: Mapping[str, Any] = {
        "name": "points",
        "source": "kernel void f(global void *p) {}",
        "sizes": {"N": 4},
        "parameters": {"WG": {"values": [1, 2]}},
        "structs": {"Point": ["float3 place", "uchar tag", "int count[2]"]},
        "arguments": {
            "p": {
                "type": "Point",
                "shape": ["N"],
                "access": "inout",
                "data": {"low": 0, "high": 1, "fields": {"count": {"distribution": "constant", "value": 7}}},
            }
        },
        "launch": [{"entry": "f", "global": ["N"], "local": ["WG"], "arguments": ["p"]}],
        "reference": {"numpy": {"p": {"tag": "p.tag + 255", "place": "p.place * 2"}}},
    }
    return Study(**{**tables, **changes})


def test_members_are_drawn_and_expected_each_by_itself() -> None:
    problem = Problem(study())
    check_reference(problem)
    inputs = input_data(problem)
    assert (inputs["p"]["count"] == 7).all()
    assert (inputs["p"]["place"][:, 3] == 0).all()
    assert len(np.unique(inputs["p"]["place"][:, :3])) == 12
    expected = (expected_data(problem, inputs) or {})["p"]
    assert (expected["count"] == 7).all()  # kept
    assert (expected["tag"] == inputs["p"]["tag"] + np.uint8(255)).all()  # wrapped
    assert np.allclose(expected["place"], inputs["p"]["place"] * 2)
    assert len(leaves(problem.inputs["p"].type)) == 3


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"low": 0, "fields": {"tag": {"high": 999}}}, r"p\.data\.fields\.tag\.high: 999, which uchar cannot hold"),
        ({"low": -2}, r"p\.data\.fields\.tag\.low: -2, which uchar cannot hold; write another there"),
    ],
)
def test_bounds_that_a_member_does_not_hold(data: dict[str, Any], message: str) -> None:
    points = {"p": {"type": "Point", "shape": ["N"], "access": "inout", "data": data}}
    with pytest.raises(StudyError, match=message):
        input_data(Problem(study(arguments=points)))


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ({"p": {"tagg": "p.tag"}}, r"reference\.numpy\.p: Point has no 'tagg' \(did you mean 'tag'\?\)"),
        ({"p": {"tag": "p.count"}}, r"reference\.numpy\.p\.tag: has shape \(4, 2\), the output has \(4,\)"),
        ({"p": {"tag": "p.tga"}}, "no member 'tga'"),
    ],
)
def test_references_to_members_that_do_not_fit(reference: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        check_reference(Problem(study(reference={"numpy": reference})))


def test_a_function_takes_and_returns_members(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a study made in Python is
    code = (
        "def f(p):\n    return {'p': {'tag': p.tag + 255, 'place': p.place * 2}}\n"
        "def make(N):\n    return {'p': {'place': [[1, 2, 3, 0]] * N, 'tag': range(N), 'count': [[5, 6]] * N}}\n"
    )
    Path("ref.py").write_text(code)
    points = {"p": {"type": "Point", "shape": ["N"], "access": "inout", "data": {"python": "ref.py:make"}}}
    made = study(arguments=points, reference={"python": "ref.py:f"})
    problem, python = Problem(made), Caller(tmp_path, 60.0)
    inputs = input_data(problem, python=python)
    assert inputs["p"]["count"].tolist() == [[5, 6]] * 4
    expected = (expected_data(problem, inputs, python=python) or {})["p"]
    assert expected["tag"].tolist() == [255, 0, 1, 2]
    assert expected["place"].tolist() == [[2, 4, 6, 0]] * 4
    wrong: dict[str, Any] = {"place": np.zeros((4, 3)), "tag": 1, "count": np.zeros((4, 2))}
    with pytest.raises(StudyError, match=r"^points\.toml: arguments\.p\.data: place: could not broadcast"):
        input_data(Problem(study(arguments={"p": {**points["p"], "data": lambda N: {"p": wrong}}})))
    told = r"reference of p\.place: has shape \(4, 3\), the output has \(4, 4\): .*a fourth component, 0$"
    with pytest.raises(StudyError, match=told):
        expected_data(Problem(study(reference=lambda p: {"p": {"place": p.place[:, :3]}})), inputs)


def test_members_of_nested_structs_go_by_their_names_and_hold_what_they_are_given() -> None:
    structs = {"Inner": ["float a", "float b"], "Point": ["uchar tag", "Inner inside"]}
    turned = np.dtype([("b", np.float32), ("a", np.float32)])
    given = np.array([((2, 1), 255)] * 4, [("inside", turned), ("tag", np.int32)])

    def reference(p: Any) -> Any:
        return {"p": {"tag": p.tag + 1, "inside": p.inside.astype(turned)}}

    def holding(data: Any) -> Problem:
        point = {"type": "Point", "shape": ["N"], "access": "inout", "data": data}
        return Problem(study(structs=structs, arguments={"p": point}, reference=reference))

    problem = holding(given)
    found = input_data(problem)
    assert found["p"]["inside"]["a"].tolist() == [1] * 4
    expected = (expected_data(problem, found) or {})["p"]
    assert (expected["tag"].tolist(), expected["inside"]["b"].tolist()) == ([0] * 4, [1] * 4)
    given["tag"][2] = 300
    with pytest.raises(StudyError, match=r"arguments\.p\.data: tag: holds 300, which uchar cannot"):
        input_data(holding(given))
    plain = np.zeros(4, [("inside", np.float32), ("tag", np.int32)])
    with pytest.raises(StudyError, match=r"arguments\.p\.data: inside holds float32, its members are a, b"):
        input_data(holding(plain))


def test_an_output_that_holds_structs_is_given_by_its_members() -> None:
    problem = Problem(study(reference={"numpy": {"p": "p.tag"}}))
    with pytest.raises(StudyError, match=r'Point is a struct.*give its members: p = \{ place = "..." \}'):
        expected_data(problem, input_data(problem))
    whole = Problem(study(reference={"numpy": {"p": "p"}}))
    inputs = input_data(whole)
    assert ((expected_data(whole, inputs) or {})["p"] == inputs["p"]).all()


def test_the_order_of_members_is_part_of_what_results_belong_to() -> None:
    other = {"Point": ["uchar tag", "float3 place", "int count[2]"]}
    assert study().text.study_hash != study(structs=other).text.study_hash
