from __future__ import annotations

from typing import Any

import pytest

from autotune.errors import StudyError
from autotune.study.validation import validate
from tests.studies import table


def test_a_good_table_passes() -> None:
    assert validate(table(), "x.toml").name == "saxpy"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parametres": {}}, "parametres: unknown key .did you mean 'parameters'"),
        ({"parameters": {"WG": {}}}, "parameters.WG.values: missing"),
        (
            {"parameters": {"WG": {"value": [1]}}},
            r"parameters.WG.value: unknown key \(did you mean 'values'\?\) \(and 1 more\)",
        ),
        ({"launch": [{"entry": "f", "global_size": ["1"], "arguments": []}]}, r"launch\.1\.global_size: unknown key"),
        ({"parameters": {"WG": {"values": {}}}}, r"parameters.WG.values: needs a list, such as \[1, 2, 4\]"),
        ({"parameters": {"WG": {"values": "A, 2"}}}, r'parameters.WG.values: needs a list, such as \["A", 2\], got'),
        ({"requires": {"extensions": "e"}}, r'requires.extensions: needs a list, such as \["e"\], got'),
        ({"size_lists": {"all": {"N": [1, 2]}}}, r"size_lists.all: needs a list of sizes, such as \[\{ N = 1024 \}"),
        ({"parameters": {"WG": {"values": 64}}}, r"parameters.WG.values: needs a list, such as \[64\], got 64"),
        ({"parameters": {}}, "parameters: "),
        (
            {"parameters": {"WG": {"values": [True]}}},
            "parameters.WG.values: true and false are not values; write 1 and 0; docs",
        ),
        ({"parameters": {"WG": {"values": [[]]}}}, "parameters.WG.values.1: needs a whole number or a number or text"),
        ({"sizes": {"N": 0}}, "sizes.N: "),
        ({"sizes": {"9N": 1}}, "sizes.9N"),
        ({"sizes": {"PATH": 1}}, "sizes.PATH.*: is a name with a meaning to shells or loaders"),
        ({"defines": {"LD_PRELOAD": "1"}}, "defines.LD_PRELOAD.*: is a name with"),
        ({"choices": {"T": ["float\n#include </etc/passwd>"]}}, "choices.T.1: cannot stand in a #define"),
        ({"parameters": {"A": {"values": [1], "default": "1\x1b"}}}, "parameters.A.default: cannot stand in a #define"),
        ({"parameters": {"A": {"values": [1, 2**63]}}}, "parameters.A.values.2: .*64 bits"),
        ({"x\x1b[2J\nerror: y": 1}, r"x\\x1b\[2J error: y: unknown key"),
        ({"": 1}, '"": unknown key'),
        ({"float": {}}, "float: unknown key"),
        ({"arguments": {"list": {"type": "int", "value": 1, "str": 1}}}, "arguments.list.str: unknown key"),
        ({"k" * 5000: 1}, "(?<!k)k{80}: unknown key"),
        ({"launch": []}, "launch: "),
        ({"launch": [{"entry": "f", "global": [1], "arguments": [], "locl": [1]}]}, "launch.1.locl: unknown key"),
        ({"arguments": {"x": {"type": "float"}}}, "arguments.x: .*exactly one of shape"),
        ({"arguments": {"x": {"type": "float", "shape": [1]}}}, "arguments.x: .*needs access"),
        ({"arguments": {"x": {"type": "float", "value": 1, "access": "in"}}}, "arguments.x: .*belong to buffers"),
        (
            {"arguments": {"x": {"type": "float", "shape": [1], "access": "out", "data": {"low": 0}}}},
            'arguments.x: data does not apply to access = "out": write "inout"',
        ),
        (
            {"tolerance": {"about": "x"}},
            r"tolerance.about: not a key of this table; about belongs above the .* .table.",
        ),
        ({"reference": {}}, "reference: .*exactly one of numpy"),
        ({"reference": {"y": "2 * x"}}, r'reference.y: unknown key: .* belongs into numpy = \{ y = "..." \}'),
        ({"reference": {"kernel": "k.cl"}}, "reference: .*reference.launch"),
        (
            {"options": [{"flag": "cl-mad-enable"}]},
            'options.1.flag: needs a compiler.s option, such as "-cl-mad-enable"',
        ),
        ({"timing": {"cache": "hot"}}, "timing.cache: "),
        ({"timing": {"cache": "clod"}}, r"timing.cache: .*, got 'clod' \(did you mean 'cold'\?\)"),
        ({"sizes": {"N": {"file": "m.mtx", "prt": "rows"}}}, r"sizes.N.prt: unknown key \(did you mean 'part'\?\)"),
        ({"arguments": {"x": {"type": "float", "shape": "N", "access": "in"}}}, "arguments.x.shape: needs a list"),
        (
            {"launch": [{"repeat": 2, "swap": ["x", "y"]}]},
            r'launch\.1\.swap\.1: needs lists of names, such as \[\["now", "next"\]\], got',
        ),
        ({"constraints": {"require": "1"}}, r"constraints: .*; write \[\[constraints\]\], with double brackets"),
        ({"launch": {"entry": "f"}}, r"launch: .*; write \[\[launch\]\]"),
        ({"reference": {"kernel": "k.cl", "launch": {}}}, r"reference.launch: .*; write \[\[reference.launch\]\]"),
        ({"sizes": {"N": 1.5}}, "sizes.N: needs a whole number, got 1.5"),
        (
            {"arguments": {"x": {"type": "int", "shape": [1], "access": "in", "constant": 1}}},
            "arguments.x.constant: needs true or false or text in quotes, got 1",
        ),
    ],
)
def test_each_error_names_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=rf"^x\.toml: {message}"):
        validate(table(**changes), "x.toml")


def test_all_errors_are_told_at_once() -> None:
    with pytest.raises(StudyError, match="and 1 more") as caught:
        validate(table(launch=[], sizes={"N": 0}), "x.toml")
    assert len(caught.value.detail.splitlines()) == 2


def test_a_union_is_told_once() -> None:
    with pytest.raises(StudyError, match="values: true and false are not values; write 1 and 0; docs") as caught:
        validate(table(parameters={"WG": {"values": [True, False]}}), "x.toml")
    assert caught.value.detail == ""


def test_many_errors_are_told_by_the_first() -> None:
    with pytest.raises(StudyError, match="and 999 more") as caught:
        validate(table(parameters={"WG": {"values": [[]] * 1000}}), "x.toml")
    assert len(caught.value.detail.splitlines()) == 21
