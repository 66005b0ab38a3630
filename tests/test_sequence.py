"""One run of a study: loops unrolled, swapped buffers followed, values that change in a loop; computed names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.errors import StudyError, UsageError
from autotune.study import GENERIC_DEVICE, Buffer, Plan, Problem, Scalar, Study, check_reference, made_of
from tests.studies import study, table

BUFFER = {"type": "float", "shape": ["N"]}
ARGUMENTS: dict[str, Any] = {
    "a": {**BUFFER, "access": "inout"},
    "b": {**BUFFER, "access": "scratch"},
    "c": {**BUFFER, "access": "scratch"},
    "k": {"type": "int", "value": "10 * turn"},
}
LAUNCH: dict[str, Any] = {"entry": "f", "global": ["N"], "local": ["WG"], "arguments": ["a", "b"]}


def looped(*launches: dict[str, Any], **tables: Any) -> Study:
    small = {
        "sizes": {"N": 64}, "size_lists": {}, "choices": {}, "constraints": [], "defines": {}, "options": [],
        "parameters": {"WG": {"values": [16, 32]}, "TB": {"values": [1, 2, 4]}}, "arguments": ARGUMENTS, "work": {},
    }  # fmt: skip
    if "'k'" not in repr(launches):
        small["arguments"] = {name: entry for name, entry in ARGUMENTS.items() if name != "k"}
    reference = {"numpy": {"a": "a"}}
    source = "kernel void f() {}"
    return Study(**{**table(), **small, "source": source, "reference": reference, "launch": [*launches], **tables})


def buffer(found: Plan, name: str) -> Buffer:
    argument = found.arguments[name]
    assert isinstance(argument, Buffer)
    return argument


def plan(*launches: dict[str, Any], configuration: Any = None, **tables: Any) -> Plan:
    problem = Problem(looped(*launches, **tables))
    return problem.plan({**problem.default, **(configuration or {})})


@pytest.mark.parametrize(
    ("changes", "hint"),
    [
        ({"repeat": 0}, "look at the repeat of launch.1"),
        ({"when": "0"}, "look at the when of launch.1"),
        ({"when": "0", "repeat": 3}, "look at the when of launch.1"),
    ],
)
def test_where_nothing_is_launched_its_reason_is_named(changes: dict[str, Any], hint: str) -> None:
    with pytest.raises(StudyError, match=f"launch: no launch applies; {hint}$"):
        plan({**LAUNCH, **changes})


@given(turns=st.integers(1, 9), group=st.permutations(["a", "b", "c"]), many=st.integers(2, 3))
@settings(max_examples=20)
def test_a_name_goes_with_its_buffer(turns: int, group: list[str], many: int) -> None:
    """As with pointers in C that are swapped after each turn: what `a` points to is compared."""
    group = group[:many]
    arguments = ["a", "b", "c"]
    found = plan({**LAUNCH, "arguments": arguments, "repeat": turns, "swap": [group]})
    memory = {name: buffer(found, name).filled or name for name in arguments}  # what lies in each at first
    pointers = {name: name for name in arguments}
    expected = []
    for _ in range(turns):
        expected.append([pointers[name] for name in arguments])
        there = [pointers[name] for name in group]
        pointers |= dict(zip(group, [*there[1:], there[0]], strict=True))
    launched = [[memory[name] for name in found.launches[place].arguments] for place in found.sequence]
    assert launched == expected
    assert memory == {name: pointers[name] for name in arguments}
    assert len(found.launches) <= many
    assert [buffer(found, name).access for name in arguments if memory[name] == "a"] == ["inout"]
    assert buffer(found, "a").access == ("inout" if memory["a"] == "a" else "out")
    assert set(found.outputs) == {"a"}


def test_a_step_counts_for_extents_offsets_conditions_and_scalars() -> None:
    found = plan(
        {**LAUNCH, "global": ["64 * (turn + 1)"], "offset": ["turn"], "arguments": ["a", "k"], "repeat": 4,
         "step": "turn", "when": "1"},
    )  # fmt: skip
    assert [launch.global_size for launch in found.launches] == [(64,), (128,), (192,), (256,)]
    assert [launch.offset for launch in found.launches] == [(0,), (1,), (2,), (3,)]
    assert [launch.counted for launch in found.launches] == [((1, Scalar("k", "int", 10 * n)),) for n in range(4)]
    assert found.order == ()
    inner = {**LAUNCH, "when": "turn != 1 and j <= turn", "repeat": "turn + 1", "step": "j"}
    assert plan({"repeat": 3, "step": "turn", "turn": [{**inner, "when": "turn != 1"}]}).order == (0, 0, 0, 0)


def test_turns_of_several_launches_and_loops_in_loops() -> None:
    other = {**LAUNCH, "arguments": ["b", "a"]}
    found = plan(LAUNCH, {"repeat": 2, "turn": [{**other, "repeat": 2}, LAUNCH]}, other)
    assert [found.launches[place].arguments[0] for place in found.sequence] == list("a" + "bba" * 2 + "b")
    made = made_of(Problem(looped(LAUNCH)), found, {"WG": 16, "TB": 1})
    assert made["times"] == [3, 5]
    assert [entry for entry, *_ in made["launches"]] == ["f", "f"]


def test_repeats_may_use_parameters_and_be_none() -> None:
    many = {**LAUNCH, "repeat": "8 // TB", "swap": [["a", "b"]]}
    assert len(plan(many, configuration={"TB": 4}).sequence) == 2
    assert len(plan(LAUNCH, {**many, "repeat": 0}).sequence) == 1


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"swap": [["a", "b"]]}, "launch.1: turn, step and swap belong to a loop: add repeat"),
        ({"repeat": 2, "swap": [["a"]]}, r"launch\.1\.swap\.1: "),
        ({"repeat": 2, "swap": [["a", "d"]]}, r"launch\.1\.swap: 'd' is not a buffer"),
        ({"repeat": 2, "swap": [["a", "b"], ["b", "c"]]}, r"launch\.1\.swap: names a buffer twice"),
        ({"repeat": 2, "step": "WG"}, "the step 'WG' already has another meaning"),
        ({"repeat": 2, "step": "j", "arguments": ["j"]}, "'j' is the step, not an argument; add .* value = \"j\""),
        ({"repeat": "turn", "step": "turn"}, r"launch\.1\.repeat: names 'turn'"),
        ({"repeat": 2, "step": "turn", "local": ["turn + 1"]}, r"launch\.1\.local: names 'turn'"),
        ({"repeat": 2, "turn": [LAUNCH]}, r"launch\.1: turn holds the launches of a loop"),
        ({"arguments": ["k"]}, r"launch\.1\.arguments: k counts with turn, which no loop around"),
        ({"offset": [0, 0]}, r"launch\.1: global and offset need equally many"),
        ({"entry": None}, r"launch\.1: a launch needs entry"),
    ],
)
def test_what_is_no_loop_is_told(launch: dict[str, Any], message: str) -> None:
    counts = {**LAUNCH, "arguments": ["k"], "repeat": 1, "step": "turn"}
    with pytest.raises(StudyError, match=message):
        looped({**LAUNCH, **launch}, *([counts] if "step" not in launch else []))


@pytest.mark.parametrize(
    ("launch", "message"),
    [
        ({"repeat": -1}, "repeat: -1 gives -1, not a whole number of at least 0"),
        ({"repeat": "N / 3"}, "not a whole number"),
        ({"repeat": 100_001}, "one run is more than 100,000 launches"),
        ({"repeat": 10_001, "step": "turn", "offset": ["turn"]}, "10,000 different ones"),
        ({"repeat": 2**31, "when": "0"}, "no launch applies"),
        ({"repeat": 2**31, "turn": [{**LAUNCH, "when": 0}], "entry": None}, "one run is more than 1,000,000 turns"),
        (
            {"repeat": 2, "swap": [["a", "d"]]},
            r"^saxpy\.toml: launch\.1\.swap: a has shape \(64,\), d has \(65,\): they cannot",
        ),
    ],
)
def test_what_cannot_be_unrolled_is_told(launch: dict[str, Any], message: str) -> None:
    whole = {**LAUNCH, **launch} if launch.get("entry", 1) else {key: launch[key] for key in launch if key != "entry"}
    more = {**ARGUMENTS, "k": {"type": "int", "value": 1}, "d": {**BUFFER, "shape": ["N + 1"], "access": "scratch"}}
    with pytest.raises(UsageError, match=message):
        plan(whole, arguments=more)


# -- computed names --------------------------------------------------------------------------------------


def test_computed_names_stand_in_every_expression() -> None:
    arguments = {**table()["arguments"], "t": {"type": "float", "local": "TILE"}}
    arguments["x"]["allocate"] = ["PADDED"]
    launch = [{"entry": "saxpy", "global": ["PADDED"], "local": ["WG"], "arguments": ["N", "alpha", "x", "y", "t"]}]
    problem = Problem(
        study(
            defines={"PADDED": "round_up(N, TILE)", "TILE": "WPT * WG", "HALF": "N // 2", "N": "N"},
            constraints=[{"require": "TILE <= 128"}], arguments=arguments, launch=launch,
            options=[{"flag": "-DX", "when": "TILE == 128"}], reference={"numpy": {"y": "alpha * x + y + HALF - HALF"}},
        )
    )  # fmt: skip
    found = problem.plan({"WPT": 4, "WG": 32, "FAST": 0})
    assert buffer(found, "x").allocate == found.launches[0].global_size == (1024,)
    assert {"-DTILE=128", "-DX", "-DN=1000"} <= set(found.options)
    assert len(problem.space) == len([1 for wpt in (1, 2, 4, 8) for wg in (32, 64, 128, 256) if wpt * wg <= 128]) * 2
    assert problem.defined == {"HALF": 500}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"defines": {"A": "B + 1", "B": "A"}}, r"defines\.\w: is computed from itself: . <- . <- ."),
        ({"defines": {"A": "Q"}}, r"defines\.A: names 'Q'"),
        ({"defines": {"TILE": "WG * 2"}, "tolerance": {"relative": "TILE"}}, r"tolerance\.relative: names 'TILE'"),
        ({"defines": {"WG": "1"}}, r"defines: 'WG' is already in \[parameters\]; choose another name"),
        ({"defines": {"N": "7"}}, r"defines: 'N' is already in \[sizes\]"),
        ({"defines": {"T": "1"}, "choices": {"T": [2, 3]}}, r"defines: 'T' is already in \[choices\]"),
        ({"defines": {"x": "1"}}, r"arguments: 'x' is already in \[defines\]"),
        ({"parameters": {"x": {"values": [1, 2]}}}, r"arguments: 'x' is already in \[parameters\]"),
        ({"defines": {f"D{n}": f"D{n + 1} + D{n + 1}" for n in range(20)} | {"D20": "N"}}, "more than 500|longer than"),
    ],
)
def test_bad_computed_names_are_told(tables: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        study(**tables)


def test_an_argument_may_be_called_like_a_size_or_a_function() -> None:
    arguments = {**table()["arguments"], "N": {"type": "long", "value": "N"}, "max": {"type": "int", "value": "1"}}
    assert study(arguments=arguments, defines={"N": "N"}).arguments["max"].name == "max"


def test_constant_buffers_fit_the_device() -> None:
    arguments = table()["arguments"]
    arguments["x"] |= {"constant": True, "allocate": ["N * WPT"]}
    found = study(arguments=arguments, constraints=[])
    tight = Problem(found, device=replace(GENERIC_DEVICE, constant_memory=8000))
    assert {tight.space.configuration(row)["WPT"] for row in range(len(tight.space))} == {1, 2}
    arguments["x"]["constant"] = "0 if WPT % 4 == 0 else 1"  # the others leave it in global memory
    some = Problem(study(arguments=arguments, constraints=[]), device=tight.device)
    assert {some.space.configuration(row)["WPT"] for row in range(len(some.space))} == {1, 2, 4, 8}
    placed = {wpt: some.plan(some.default | {"WPT": wpt}).arguments["x"].constant for wpt in (2, 4)}  # type: ignore[attr-defined]
    assert placed == {2: True, 4: False}
    arguments["y"] |= {"constant": True}
    with pytest.raises(StudyError, match="constant memory is read only"):
        study(arguments=arguments)


# -- checks ----------------------------------------------------------------------------------------------

PART = {"type": "float", "shape": ["TB"], "access": "out"}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"check": {"part": "sum(part)"}}, "check.part: is an argument or a size"),
        ({"check": {"s": "sum(b) + sum(part)", "t": "sum(b)"}}, "check.t: names no output: a, part"),
        ({"check": {"s": "sum(prt)"}}, r"check\.s: unknown name 'prt' \(did you mean 'part'\?\)"),
        ({"check": {"s": "sum(part"}}, "check.s: not an expression"),
        ({"check": {"s": "sum(part)"}}, "reference.numpy: must give exactly: a, s; it lacks s$"),
        (
            {"check": {"s": "sum(part)"}, "reference": {"numpy": {"a": "b", "part": "b", "k": "b", "S": "b"}}},
            r"a, s; it lacks s; leave out S \(did you mean 's'\?\); leave out k; leave out part, which \[check\]",
        ),
        ({}, "arguments.part.shape: TB is a parameter"),
    ],
)
def test_bad_checks_are_told(tables: dict[str, Any], message: str) -> None:
    arguments = {**ARGUMENTS, "k": {"type": "int", "value": 1}, "part": PART}
    with pytest.raises(StudyError, match=message):
        looped({**LAUNCH, "arguments": ["a", "part"]}, arguments=arguments, **tables)


def test_a_check_stands_for_its_outputs() -> None:
    arguments = {**ARGUMENTS, "k": {"type": "int", "value": 1}, "part": PART}
    launch = {**LAUNCH, "arguments": ["a", "part"]}
    reference = {"numpy": {"a": "a", "s": "sum(a)"}}
    found = plan(launch, arguments=arguments, check={"s": "sum(part) + TB"}, reference=reference)
    assert set(found.outputs) == {"a"}
    assert found.checks["s"].numbers == (("TB", 1),)
    check_reference(Problem(looped(launch, arguments=arguments, check={"s": "sum(part) + TB"}, reference=reference)))
    assert buffer(found, "part").shape == (1,)
