from __future__ import annotations

import re
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from autotune.errors import ExpressionError, StudyError
from autotune.expression import syntax
from autotune.study import Problem, Study, check_entries, effects, expected_data, is_builtin, replaced_names
from tests.studies import SOURCE, study, table


def test_a_study_holds_what_its_tables_say() -> None:
    found = study()
    assert found.parameters["WG"].default == 64
    assert found.parameters["WPT"].default == 1
    assert found.choices == {"T": ("float", "double")}
    assert found.launches[0].arguments == ("N", "alpha", "x", "y")
    assert found.arguments["x"].type == "{T}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"parameters": {"WPT": {"values": [1]}}}, "constraints.1.require: names 'WG'"),
        ({"constraints": [{"require": "WPTT > 1"}]}, "constraints.1.require: names 'WPTT'.*did you mean 'WPT'"),
        ({"sizes": {"N": 1, "WG": 1}}, "parameters: 'WG' is already in .sizes."),
        ({"sizes": {"N": 1, "vendor": 1}}, "sizes: 'vendor' is already a device fact"),
        ({"sizes": {"N": 1, "min": 1}}, "sizes: 'min' is already a function"),
        ({"sizes": {"N": 1, "for": 1}}, "sizes: 'for' is a word of expressions; choose another name$"),
        ({"choices": {"T": ["float"], "and": [1]}}, "choices: 'and' is a word of expressions"),
        ({"defines": {"kernel": 1}}, "defines: 'kernel' is a word of OpenCL C; choose another name$"),
        ({"defines": {"has_extension": 1}}, "defines: 'has_extension' is already a function"),
        ({"defines": {"__local": 1}}, "defines: '__local' is a word of OpenCL C"),
        ({"choices": {"T": ["float"], "saxpy": [1]}}, "choices: 'saxpy' is a kernel's own name"),
        ({"size_lists": {"a": [{"Q": 1}]}}, "size_lists.a: no size named 'Q'"),
        ({"tolerance": {"absolute": "WG * 1e-6"}}, "tolerance.absolute: names 'WG'"),
        ({"options": [{"flag": "-D{NOPE}"}]}, "options.1.flag: names 'NOPE'"),
        (
            {"options": [{"flag": "-DWG=8"}]},
            r"options.1.flag: sets WG, which \[parameters\] ",
        ),
        ({"options": [{"flag": "-cl-mad-enable"}, {"flag": "-UWG"}]}, "options.2.flag: sets WG"),
        (
            {"choices": {"T": ["float"]}, "options": [{"flag": "-DT=int"}]},
            r"options.1.flag: sets T, which \[choices\]",
        ),
        ({"device": {"local_mem": 1}}, "device: no device fact 'local_mem'.*did you mean 'local_memory'.*; known: "),
        ({"reference": {"numpy": {"x": "y"}}}, "reference.numpy: must give every output"),
        (
            {"choices": {"T": ["float", "unsigned int"]}},
            "choices.T: 'unsigned int' has a space, which build options cannot carry; write uint$",
        ),
        ({"source": 5}, "source: int is not text of a kernel; write source="),
        ({"source": b"kernel"}, "source: bytes is not text of a kernel"),
        ({"arguments": ["x"]}, r"arguments: needs a table, got \['x'\]"),
        (
            {"parameters": {"P": [1, 2]}},
            r"parameters.P: needs a table, as P = \{ values = \[1, 2\] \} is one, got \[1, 2\]",
        ),
        ({"arguments": None}, "arguments: needs a table, got None"),
        ({"constraints": ["WPT < 4"]}, r"constraints.1: needs a table, as \{ require = 'WPT < 4' \} is one"),
        (
            {"constraints": [{"require": len}]},
            "constraints.1.require: .*, got a function: write its expression as text",
        ),
        (
            {"launch": [table()["launch"][0] | {"global": [len]}]},
            "launch.1.global.1: .*, got a function: write its expr",
        ),
        (
            {"reference": [[1.0], None]},
            "reference: needs a table, got a list: arrays come from a file, in Python from reference=lambda",
        ),
        ({"tolerance": {"atol": 1e-3}}, "tolerance.atol: unknown key; there are relative and absolute"),
        ({"source": None, "kernel": SOURCE}, "kernel: is text, not the name of a file; source= takes the text"),
        ({"parameters": {"P": {"values": ['"a"']}}}, "parameters.P: '\"a\"' has a quotation mark or a backslash"),
        ({"options": [{"flag": "-DX=1 -DY=2"}]}, "options.1.flag: '-DX=1 -DY=2' is not a single -DNAME=VALUE"),
        ({"parameters": {"P": {"values": ["a b"]}}}, "parameters.P: 'a b' has a space.*; write one word"),
        (
            {"tolerance": {"absolute": "WPT"}},
            "tolerance.absolute: names 'WPT', which cannot be used here; k",
        ),
        (
            {"reference": {"python": "gen.py"}},
            'reference.python: needs a file and its function, as "FILE.py:NAME", got ',
        ),
    ],
)
def test_what_does_not_fit_together_is_told_with_its_place(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=rf"^saxpy\.toml: {message}"):
        study(**changes)


def test_what_the_kernel_defines_itself_is_not_tuned() -> None:
    with pytest.raises(StudyError, match=r"parameters\.WPT: the kernel defines it itself.*; write #ifndef WPT before"):
        study(source=SOURCE.replace("#ifndef WPT\n#define WPT 1\n#endif", "#define WPT 1"))
    with pytest.raises(StudyError, match=r"parameters\.WPT: the kernel defines it itself"):
        study(source="#undef WPT\n#define WPT 8\n" + SOURCE)


@pytest.mark.parametrize(
    ("parameter", "message"),
    [
        ({"values": [1, 1, 1]}, "has a value twice: 1$"),
        ({"values": [1, 2, 1.0]}, r"has a value twice: 1\.0"),
        ({"values": [1], "default": 2}, "2 is not one of the values"),
    ],
)
def test_bad_values(parameter: dict[str, Any], message: str) -> None:
    parameters = {**table()["parameters"], "X": parameter}
    with pytest.raises(StudyError, match=rf"parameters\.X\.\w+: {message}"):
        study(parameters=parameters)


def test_a_parameter_cannot_shape_data() -> None:
    arguments = table()["arguments"]
    arguments["x"]["shape"] = ["N + WG"]
    with pytest.raises(StudyError, match=r"arguments\.x\.shape: WG is a parameter, and .*; pad with allocate"):
        study(arguments=arguments)
    for type_ in ("WG", "float{WG}"):
        arguments = table()["arguments"]
        arguments["x"]["type"] = type_
        with pytest.raises(StudyError, match=r"arguments\.x\.type: WG is a parameter, and .*; make it a choice"):
            study(arguments=arguments)


def test_a_name_that_no_shape_knows_is_told_with_those_that_it_may_have() -> None:
    arguments = table()["arguments"]
    arguments["x"]["shape"] = ["M"]
    with pytest.raises(StudyError, match=r"arguments\.x\.shape: names 'M'.*known here: N, T, ") as caught:
        study(arguments=arguments)
    assert "WG" not in str(caught.value)


def test_an_output_that_no_launch_takes_is_told() -> None:
    arguments = {**table()["arguments"], "z": {"type": "float", "shape": ["N"], "access": "out"}}
    with pytest.raises(StudyError, match=r"arguments\.z: is an output that no launch takes"):
        study(arguments=arguments, reference={"numpy": {"y": "x", "z": "x"}})


def test_a_function_that_reads_a_file_given_as_source_is_followed(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "fac.h").write_text("#define FAC 1\n")
    given = {"source": f"#include <fac.h>\n{SOURCE}", "options": [{"flag": "-Iinc"}]}
    before = study(**given).text.kernel_hash
    (tmp_path / "inc" / "fac.h").write_text("#define FAC 2\n")
    assert study(**given).text.kernel_hash != before


def test_a_launch_names_its_arguments() -> None:
    launch = table()["launch"]
    launch[0]["arguments"].append("z")
    with pytest.raises(StudyError, match=r"launch\.1\.arguments: no argument or size named 'z'"):
        study(launch=launch)
    launch = table()["launch"]
    launch[0]["local"] = ["WG", "1"]
    with pytest.raises(StudyError, match="equally many dimensions"):
        study(launch=launch)


def test_a_type_that_is_none_is_told_with_its_place() -> None:
    arguments = table()["arguments"]
    arguments["alpha"]["type"] = "flaot"
    with pytest.raises(
        StudyError, match=r"^saxpy\.toml: arguments\.alpha\.type: unknown type 'flaot' .did you mean 'float'"
    ):
        study(arguments=arguments)


def test_a_parameter_cannot_be_named_like_a_type() -> None:
    with pytest.raises(StudyError, match=r"parameters: 'float' is already an OpenCL type"):
        study(parameters={**table()["parameters"], "float": {"values": [1]}})


def test_a_bad_expression_is_told_with_its_place() -> None:
    with pytest.raises(ExpressionError, match=r"^saxpy\.toml: work\.flops"):
        study(work={"flops": "9**9**9"})


def test_without_an_output_nothing_can_be_verified() -> None:
    arguments = table()["arguments"]
    arguments["y"]["access"] = "in"
    with pytest.raises(StudyError, match="no argument has access"):
        study(arguments=arguments)


def test_a_parameter_that_nothing_uses_is_known() -> None:
    assert study().unused == []
    idle = {"values": [1, 2]}
    assert study(parameters={**table()["parameters"], "IDLE": idle}).unused == ["IDLE"]
    for require, unused in (("WG * WPT == IDLE ", []), ("IDLE < WG", ["IDLE"]), ("IDLE % WG == 0", ["IDLE"])):
        constraints = [{"require": require}]
        assert study(parameters={**table()["parameters"], "IDLE": idle}, constraints=constraints).unused == unused
    default = "// IDLE\n#ifndef IDLE\n#define IDLE 1\n#endif\n"
    assert study(source=default + SOURCE, parameters={**table()["parameters"], "IDLE": idle}).unused == ["IDLE"]
    asked = default + "#ifdef IDLE\n#endif\n" + SOURCE  # which each value answers alike
    assert study(source=asked, parameters={**table()["parameters"], "IDLE": idle}).unused == ["IDLE"]
    used = default + "#define TWICE (2 * IDLE)\n" + SOURCE
    assert study(source=used, parameters={**table()["parameters"], "IDLE": idle}).unused == []


def digest(code: str, **names: Any) -> str:
    """Return the digest of the `f` that some code defines, with these names in its module."""
    space = {"np": np, **names}
    exec(compile(dedent(code), "own.py", "exec"), space)
    found = study(reference=space["f"])
    assert found.reference.function is space["f"]
    return found.text.study_hash


CALLED = "def g(x):\n    return x * {}\ndef f(x):\n    return g(x)"
CLOSED = "def make(k):\n    def f(x):\n        return k * x\n    return f\nf = make({})"
NESTED = "def f(x):\n    return sum(y * {} for y in x)"
PARTIAL = "from functools import partial\ndef g(k, x):\n    return k * x\nf = partial(g, {})"
OBJECT = """
class F:
    def __init__(self, k):
        self.k = k
    def __call__(self, x):
        return {} * x
f = F({})
"""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("f = lambda x: 2.5 * x", "f = lambda x: 2.0 * x"),
        ("f = lambda x: np.sin(x)", "f = lambda x: np.cos(x)"),
        ("f = lambda x: x.T.sum()", "f = lambda x: x.T.max()"),
        ("def f(x, k=1): return k * x", "def f(x, k=2): return k * x"),
        ("def f(x, *, k=1): return k * x", "def f(x, *, k=2): return k * x"),
        (CALLED.format(2), CALLED.format(3)),
        (CLOSED.format(2), CLOSED.format(3)),
        (CLOSED.format("np.arange(3)"), CLOSED.format("np.arange(1, 4)")),
        (CLOSED.format("{'a': [1, 2]}"), CLOSED.format("{'a': [1, 3]}")),
        (NESTED.format(2), NESTED.format(3)),
        (PARTIAL.format(2), PARTIAL.format(3)),
        (OBJECT.format(2, 1), OBJECT.format(3, 1)),
        (OBJECT.format(2, 1), OBJECT.format(2, 4)),
        ("K = 1\ndef f(x): return K * x", "K = 2\ndef f(x): return K * x"),
    ],
)
def test_a_function_can_be_the_reference_and_what_it_computes_enters_the_hash(one: str, other: str) -> None:
    assert digest(one) == digest(f"unused = 1\n\n{one}")  # another line and other objects
    assert digest(one) != digest(other)


def test_a_function_of_a_module_beside_it_enters_the_hash() -> None:
    own = ModuleType("own")
    hashes = set()
    for factor in (2, 3, 2):
        exec(f"def scale(x): return {factor} * x", own.__dict__)
        own.__file__ = "/somewhere/own.py"
        hashes.add(digest("f = lambda x: own.scale(x)", own=own))
    assert len(hashes) == 2


def test_a_function_that_holds_itself_ends() -> None:
    assert digest("def f(x, n=3):\n    return f(x, n - 1) if n else held") == digest(
        "def f(x, n=3):\n    return f(x, n - 1) if n else held"
    )
    circle: list[Any] = []
    circle.append(circle)
    assert digest("f = lambda x: held", held=circle) != digest("f = lambda x: held", held=[])


def test_a_file_cannot_smuggle_a_function() -> None:
    with pytest.raises(StudyError, match="cannot hold a function"):
        study(reference={"function": "0" * 32})


def test_a_kernel_can_be_the_reference(tmp_path: Path) -> None:
    (tmp_path / "ref.cl").write_text(SOURCE)
    launch = {"entry": "saxpy", "global": ["N"], "arguments": ["N", "alpha", "x", "y"]}
    found = study(reference={"kernel": str(tmp_path / "ref.cl"), "launch": [launch]})
    assert found.reference.source == f'#line 1 "ref.cl"\n{SOURCE}'  # compilers name the author's file
    assert found.reference.launches[0].entry == "saxpy"


@pytest.mark.parametrize("name", ["sgemm", "matmul", "matmul_rect", "product_sum", "element_mult"])
def test_the_bundled_studies_are_sound(name: str) -> None:
    found = Study.load(name)
    assert found.name == name
    assert found.about
    assert all(parameter.about for parameter in found.parameters.values())


def entry(name: str) -> dict[str, object]:
    return {"launch": [{**table()["launch"][0], "entry": name}]}


def test_an_entry_that_the_kernel_lacks_is_told() -> None:
    check_entries(study())
    with pytest.raises(
        StudyError, match=r"launch\.1\.entry: the kernel has no function .saxpi.*did you mean.*; it has saxpy"
    ):
        check_entries(study(**entry("saxpi")))
    with pytest.raises(StudyError, match="has no function 'other'"):
        check_entries(study(source=f"{SOURCE}// kernel void other()\n", **entry("other")))


def test_an_empty_kernel_is_told() -> None:
    with pytest.raises(StudyError, match=r"saxpy\.cl: the file is empty; write kernel void"):
        check_entries(study(source="// nothing\n"))


def test_an_entry_that_a_macro_may_make_is_left_to_the_compiler() -> None:
    check_entries(study(source="#define K(n) kernel void f_##n() {}\nK(x)", **entry("f_x")))
    check_entries(study(source="kernel void ENTRY() {}", options=[{"flag": "-DENTRY=f"}], **entry("f")))


def test_tables_from_python_may_hold_numbers_of_numpy() -> None:
    parameters = {**table()["parameters"], "WPT": {"values": 2 ** np.arange(3), "default": np.int32(2)}}
    found = study(parameters=parameters, sizes={"N": np.int32(1000)}, tolerance={"relative": np.float32(0.5)})
    assert found.parameters["WPT"].values == (1, 2, 4)
    assert (found.parameters["WPT"].default, found.sizes) == (2, {"N": 1000})
    with pytest.raises(StudyError, match=r"sizes.N: needs a whole number, got 0.5"):
        study(sizes={"N": np.float64(0.5)})


def test_a_size_that_the_kernel_defines_itself_is_told() -> None:
    assert list(effects(Problem(study()))) == []
    (line,) = effects(Problem(study(source=f"#define N 8\n{SOURCE}")))
    assert line.startswith("the kernel defines N itself")
    assert list(effects(Problem(study(source=f"// #define N 8\n/*\n#define N 8\n*/{SOURCE}")))) == []


def test_arguments_that_nothing_takes_are_told_however_many() -> None:
    many = {f"a{n}": {"type": "int", "value": "1"} for n in range(10_000)}  # minutes, where each asks all others
    own = {"type": "float", "shape": ["N"], "access": "in", "data": {"numpy": "sort(z) + shared"}}
    arguments = {**table()["arguments"], **many, "shared": {"type": "int", "value": "2"}, "z": own}
    told = effects(Problem(study(arguments=arguments)))
    assert {*told} == {f"arguments.{name}: no launch takes it" for name in [*many, "z"]}


def test_a_define_called_as_an_argument_of_the_kernel_is_told() -> None:
    (line,) = effects(Problem(study(defines={"N": "N", "i": "N"})))
    assert line.startswith("defines.N: saxpy has an argument of that name in the kernel's text, and -DN")
    header = "kernel __attribute__((reqd_work_group_size(WPT, 1, 1))) void saxpy(int {0}, global T *y{1})"
    both = f"#ifdef A\n{header.format('n', ', int k')}\n#else\n{header.format('n', '')}\n#endif\n{{ }}"
    assert list(effects(Problem(study(source=both)))) == []
    (line,) = effects(Problem(study(source=both.replace("int n", "int WPT"))))
    assert line.startswith("parameters.WPT: saxpy has an argument of that name")


@pytest.mark.parametrize(
    ("defined", "told"),
    [
        ("#define TREE 1\n#define SCAN 2\n", ""),
        ("#define TREE 1\n", "parameters.HOW: an #if takes SCAN as 0, since no #define gives a number: write one"),
        ("enum { TREE, SCAN };\n", "parameters.HOW: an #if takes SCAN and TREE as 0"),
        ("#define SCANS 1\n#define TREE 2\n#if SCANS == HOW\n#endif\n", r"takes SCAN as 0, .* \(did you mean 'SCANS'"),
    ],
)
def test_words_that_an_if_compares_are_macros(defined: str, told: str) -> None:
    source = f"{defined}{SOURCE}\n#if N == 4 || \\\n  HOW != TREE\n#elif OTHER(HOW) == SUM // HOW == NONE\n#endif\n"
    parameters = {**table()["parameters"], "HOW": {"values": ["TREE", "SCAN", "2"]}}
    lines = list(effects(Problem(study(source=source, parameters=parameters))))
    assert len(lines) == bool(told)
    assert re.search(told, "".join(lines))
    assert "HOW" not in "".join(effects(Problem(study(source=SOURCE + "// HOW", parameters=parameters))))


def test_what_a_macro_makes_a_name_of_is_no_argument() -> None:
    source = "#define CAT(a, b) a##b\nkernel void CAT(f_, CAT(T, v))(global T *{0}, int n) {{ }}"
    choices = {"T": ["float"], "K": [1]}
    assert list(effects(Problem(study(source=source.replace("{0}", "y"), choices=choices)))) == []
    (line,) = effects(Problem(study(source=source.replace("{0}", "K"), choices=choices)))
    assert line.startswith("choices.K: CAT has an argument of that name")


def test_one_value_for_all_components_is_told() -> None:
    arguments = {**table()["arguments"], "alpha": {"type": "float3", "value": "2.5"}}
    assert list(effects(Problem(study(arguments=arguments)))) == ["arguments.alpha: every component of float3 is 2.5"]


def test_a_kernel_named_like_a_function_of_opencl_is_told() -> None:
    assert [is_builtin(name) for name in ("distance", "as_float4", "half_sum", "saxpy")] == [True, True, False, False]
    hidden = study(source="kernel void distance(int N) {}", **entry("distance"))
    assert "distance is a function of OpenCL C too" in "".join(effects(Problem(hidden)))


def test_macros_that_replace_names_of_the_kernel_are_found() -> None:
    body = "int at = get_global_id(0); x[at] = mad(x[at], W, 1);"
    source = f"#ifndef T\ntypedef float T;\n#endif\nkernel void f(global T *x) {{ {body} }}"
    choices = {name: [1] for name in ("T", "at", "get_global_id", "mad", "fma", "W")}
    made = study(source=source, choices=choices, **entry("f"))
    assert replaced_names(made) == ["choices.at", "choices.get_global_id", "choices.mad"]


def test_a_parameter_named_like_a_qualifier_of_opencl_is_told() -> None:
    parameters = {**table()["parameters"], "read_only": {"values": [0, 1]}}
    (line,) = effects(Problem(study(parameters=parameters)))
    assert line.startswith("parameters.read_only is a word of OpenCL C, and -Dread_only breaks the headers")


def test_an_image_turned_around_is_told() -> None:
    image = {"type": "float", "image": ["N", "M"], "access": "out"}
    launch = [{"entry": "saxpy", "global": ["N", "M"], "local": [8, 8], "arguments": ["y"]}]

    def told(**changes: Any) -> list[str]:
        tables = {"arguments": {"y": image}, "launch": launch, "reference": {"numpy": {"y": "zeros((N, M, 4))"}}}
        return list(effects(Problem(study(sizes={"N": 64, "M": 32}, **{**tables, **changes}))))

    (line,) = told()
    assert line.startswith("arguments.y.image has 64 rows of 32 pixels, and launch 1 counts 64 columns and 32 rows: ")
    assert told(launch=[{**launch[0], "global": ["M", "N"]}]) == []


CONFIGURATION = {"WPT": 2, "WG": 64, "FAST": 0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"WPT": 3}, "WPT cannot be 3; it can be 1, 2, 4, 8"),
        ({"WTP": 2}, r"no parameter named 'WTP' \(did you mean 'WPT'\?\)"),
        ({"WPT": None}, "lacks WPT: it gives every parameter; add WPT = 1"),
        (
            {"WPT": 8, "WG": 256},
            "WPT=8 WG=256 FAST=0 is not a valid configuration: a work-group covers at most 512 elements",
        ),
    ],
)
def test_a_configuration_that_is_the_reference_is_one(changes: dict[str, Any], message: str) -> None:
    given = {name: value for name, value in {**CONFIGURATION, **changes}.items() if value is not None}
    with pytest.raises(StudyError, match=rf"^saxpy\.toml: reference\.configuration: {message}"):
        Problem(study(reference={"configuration": given})).reference_plan()


def test_a_configuration_is_the_reference_whatever_is_kept_of_the_values() -> None:
    given = study(reference={"configuration": CONFIGURATION})
    plan = Problem(given, fix={"WPT": [4]}).reference_plan()
    assert plan is not None
    assert "-DWPT=2" in plan.options
    assert expected_data(Problem(given), {}) is None
    assert "an error in all of them goes unnoticed" in "".join(effects(Problem(given)))


@pytest.mark.parametrize("name", ["--help", "-x", "..", ".", ".hidden", "", "a/b", "x" * 65])
def test_a_name_that_commands_take_for_something_else_is_refused(name: str) -> None:
    with pytest.raises(StudyError, match=r"name: needs only letters, digits, _, - and \., at most 64, .*, got "):
        study(name=name)
    assert study(name="_a.b-2").name == "_a.b-2"


def test_chained_defines_are_each_read_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    chained = {"D0": "N"} | {f"D{n}": f"D{n - 1} + 1" if n % 50 else f"N + {n}" for n in range(1, 256)}
    texts: list[str] = []
    read = syntax.read
    monkeypatch.setattr(syntax, "read", lambda text, where: texts.append(text) or read(text, where))
    assert len(study(defines=chained).defines) == 256
    assert len(texts) < 20 * 256
    with pytest.raises(StudyError, match=r"^saxpy\.toml: defines: has 257 names, more than 256$"):
        study(defines=chained | {"MORE": "N"})
