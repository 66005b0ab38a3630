from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import DeviceError, SpaceError, StudyError, UsageError
from autotune.study import GENERIC_DEVICE, Buffer, Local, Problem, Scalar
from autotune.study.functions import names_declared
from tests.studies import study, table


def test_a_plan_is_concrete() -> None:
    plan = Problem(study()).plan({"WPT": 2, "WG": 32, "FAST": 1})
    assert plan.options == ("-DT=float", "-DWPT=2", "-DWG=32", "-DFAST=1", "-DSPAN=64", "-cl-fast-relaxed-math")
    assert plan.launches[0].global_size == (512,)
    assert plan.launches[0].local_size == (32,)
    assert plan.arguments["N"] == Scalar("N", "int", 1000)
    assert plan.arguments["alpha"] == Scalar("alpha", "float", 2.5)
    assert plan.arguments["x"] == Buffer("x", "float", (1000,), (1000,), "in")
    assert set(plan.outputs) == {"y"}


def test_size_and_choices_override_the_defaults() -> None:
    problem = Problem(study(), {"N": 7}, {"T": "double"})
    plan = problem.plan(problem.default)
    assert plan.arguments["y"] == Buffer("y", "double", (7,), (7,), "inout")
    assert problem.key.size == {"N": 7}
    assert problem.key.choices == {"T": "double"}
    assert problem.flops(problem.default) == 14


def test_a_choice_is_the_studys_own_value() -> None:
    """JSON has one kind of number, and some languages write 2.0 for every 2."""
    problem = Problem(study(choices={"T": ["float"], "W": [1, 2]}), choices={"W": 2.0})
    assert repr(problem.key.choices["W"]) == "2"
    assert "-DW=2" in problem.plan(problem.default).options


@pytest.mark.parametrize(
    "given", [{"size": {"K": 1}}, {"choices": {"U": 1}}, {"fix": {"Q": [1]}}, {"fix": {"WG": [3]}}]
)
def test_unknown_names_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Problem(study(), **given)


def test_the_space_holds_constraints_and_device_limits() -> None:
    every = {(c["WPT"], c["WG"]) for c in map(Problem(study()).space.configuration, range(30 - 6))}
    assert (8, 128) not in every
    small = replace(GENERIC_DEVICE, max_work_group_size=64)
    space = Problem(study(), device=small).space
    assert {space.configuration(row)["WG"] for row in range(len(space))} == {32, 64}


def test_every_row_of_the_space_has_a_plan() -> None:
    problem = Problem(study())
    for row in range(len(problem.space)):
        problem.plan(problem.space.configuration(row))


def test_an_invalid_configuration_has_none() -> None:
    problem = Problem(study())
    with pytest.raises(SpaceError, match=r"WPT=8 WG=256 FAST=0 is not a valid configuration: .* at most 512 elements"):
        problem.plan({"WPT": 8, "WG": 256, "FAST": 0})
    with pytest.raises(SpaceError, match="saxpy: WG cannot be 64; it is fixed to 32, 128"):
        Problem(study(), fix={"WG": [32, 128]}).plan({"WPT": 8, "WG": 64, "FAST": 0})
    with pytest.raises(SpaceError, match="WG cannot be 3; it can be 32, 64"):
        problem.plan({"WPT": 8, "WG": 3, "FAST": 0})
    with pytest.raises(SpaceError, match="saxpy: no value for WG; it can be 32, 64"):
        problem.plan({"WPT": 8, "FAST": 0})
    with pytest.raises(SpaceError, match="no parameter named 'WGS'"):
        problem.plan({"WPT": 8, "WGS": 3, "FAST": 0})


def test_the_default_moves_to_the_nearest_valid_configuration() -> None:
    assert Problem(study()).default == {"WPT": 1, "WG": 64, "FAST": 0}
    assert Problem(study(), fix={"WG": [128, 256]}).default == {"WPT": 1, "WG": 128, "FAST": 0}
    small = replace(GENERIC_DEVICE, max_work_group_size=32)
    assert Problem(study(), device=small).default == {"WPT": 1, "WG": 32, "FAST": 0}
    assert Problem(study(), device=small).moved == {"WG": (64, 32)}
    assert Problem(study()).moved == {}


def test_a_parameter_that_keeps_no_value_is_told() -> None:
    with pytest.raises(UsageError, match="WG is given no value to keep"):
        Problem(study(), fix={"WG": []})


def test_device_facts_stand_in_constraints() -> None:
    tuned = study(constraints=[{"require": "FAST == 0 or compute_capability >= 8", "reason": "FAST needs it"}])
    nvidia = replace(GENERIC_DEVICE, vendor="NVIDIA Corporation", compute_capability="9.0")
    assert len(Problem(tuned, device=nvidia).space) == 2 * len(Problem(tuned).space)


def test_no_valid_configuration_is_an_error() -> None:
    with pytest.raises(SpaceError):
        _ = Problem(study(), device=replace(GENERIC_DEVICE, max_work_group_size=16)).space
    (launch,) = study().text.table["launch"]
    uneven = study(launch=[{**launch, "global": ["N + 1"]}])
    with pytest.raises(SpaceError, match=r"is whole work-groups .*; if the kernel checks its bounds, write round_up\("):
        _ = Problem(uneven).space


def test_requirements_are_refused_in_one_line() -> None:
    with pytest.raises(DeviceError, match="lacks cl_khr_nothing"):
        Problem(study(requires={"extensions": ["cl_khr_nothing"]}), device=GENERIC_DEVICE)
    amd = replace(GENERIC_DEVICE, vendor="AMD")
    with pytest.raises(DeviceError, match="needs a device of nvidia"):
        Problem(study(requires={"vendor": "nvidia"}), device=amd)
    Problem(study(requires={"vendor": "AMD"}), device=amd)


def test_without_a_device_a_study_has_what_it_requires() -> None:
    needs = {"constraints": [{"require": "has_extension('cl_khr_fp16')"}], "requires": {"extensions": ["cl_khr_fp16"]}}
    assert len(Problem(study(**needs)).space) > 0
    for_nvidia: dict[str, Any] = {"constraints": [{"require": "vendor == 'nvidia'"}]}
    assert len(Problem(study(**for_nvidia, requires={"vendor": "nvidia"})).space)
    with pytest.raises(SpaceError, match=r"vendor=generic; .* is assumed: --device names one"):
        _ = Problem(study(**for_nvidia)).space
    with pytest.raises(SpaceError, match=r"vendor=amd$"):
        _ = Problem(study(**for_nvidia), device=replace(GENERIC_DEVICE, vendor="AMD")).space


def test_a_value_that_brings_a_file_is_refused() -> None:
    with pytest.raises(StudyError, match=r"saxpy\.toml: parameters\.P: '1 -include x\.h' has a space"):
        study(parameters={**table()["parameters"], "P": {"values": ["1 -include x.h"]}})


def test_a_computed_define_is_one_word_too() -> None:
    for text in ("'a b'", "'\"a\"'"):
        problem = Problem(study(defines={"KIND": f"{text} if WG > 0 else 'b'"}))
        with pytest.raises(StudyError, match=r"saxpy\.toml: defines\.KIND: .* (has a space|has a quotation mark)"):
            problem.plan(problem.default)


def test_a_study_may_state_a_device_fact() -> None:
    stated = study(device={"local_memory": "98304 if vendor == 'nvidia' else local_memory"})
    assert Problem(stated).plan(Problem(stated).default).local_memory == 48 * 1024
    problem = Problem(stated, device=replace(GENERIC_DEVICE, vendor="NVIDIA Corporation"))
    assert problem.plan(problem.default).local_memory == 98304
    assert Problem(study()).plan(Problem(study()).default).local_memory is None


def test_local_arguments_are_sized_and_limited() -> None:
    arguments = table()["arguments"] | {"tile": {"type": "{T}2", "local": "WG * 4"}}
    launch = table()["launch"]
    launch[0]["arguments"].append("tile")
    device = replace(GENERIC_DEVICE, local_memory=64 * 4 * 8)
    problem = Problem(study(arguments=arguments, launch=launch), device=device)
    assert problem.plan(problem.default).arguments["tile"] == Local("tile", "float2", 256)
    assert max(problem.space.configuration(row)["WG"] for row in range(len(problem.space))) == 64


def test_launches_with_a_false_condition_are_left_out() -> None:
    launch = table()["launch"]
    pad = {"entry": "pad", "global": ["N"], "arguments": ["x", "padded"], "when": "FAST == 1"}
    padded = {"type": "T", "shape": ["round_up(N, WG)"], "access": "scratch"}
    found = study(launch=[pad, *launch], arguments=table()["arguments"] | {"padded": padded})
    without = Problem(found).plan({"WPT": 1, "WG": 64, "FAST": 0})
    with_it = Problem(found).plan({"WPT": 1, "WG": 64, "FAST": 1})
    assert [one.entry for one in without.launches] == ["saxpy"]
    assert "padded" not in without.arguments
    assert [one.entry for one in with_it.launches] == ["pad", "saxpy"]
    assert with_it.arguments["padded"] == Buffer("padded", "float", (1024,), (1024,), "scratch")


def test_padding_is_allocated_and_never_less_than_the_data() -> None:
    arguments = table()["arguments"]
    arguments["x"]["allocate"] = ["round_up(N, WG)"]
    problem = Problem(study(arguments=arguments))
    assert problem.plan(problem.default).arguments["x"] == Buffer("x", "float", (1000,), (1024,), "in")
    arguments["x"]["allocate"] = ["WG"]
    problem = Problem(study(arguments=arguments))
    with pytest.raises(StudyError, match="less than its shape"):
        problem.plan(problem.default)


def test_a_reference_kernel_has_a_plan_of_its_own(tmp_path: Any) -> None:
    (tmp_path / "ref.cl").write_text("kernel void f(global const T *data, global T *y) { int rest = N; }")
    launch = {"entry": "f", "global": ["N"], "arguments": ["x", "y"]}
    defines = {"N": "N", "HALF": "TWICE // 4", "TWICE": "2 * N", "TILE": "2 * WG", "data": "N", "rest": "N"}
    problem = Problem(study(reference={"kernel": str(tmp_path / "ref.cl"), "launch": [launch]}, defines=defines))
    plan = problem.reference_plan()
    assert plan is not None
    # No parameter has a part in it, and no -D stands in the place of an argument or a variable.
    assert plan.options == ("-DT=float", "-DN=1000", "-DHALF=500", "-DTWICE=2000")
    assert plan.launches[0].global_size == (1000,)
    assert Problem(study()).reference_plan() is None


SUB_GROUPS = {
    "requires": {"extensions": ["cl_khr_subgroups"]},
    "constraints": [{"require": "sub_group_size == 0 or WG % sub_group_size == 0", "reason": "whole sub-groups"}],
    "defines": {"LANES": "max(sub_group_size, 1)"},
}


@pytest.mark.parametrize(
    "text",
    [
        "local float tile[64];",
        "float f(global const float *const tile, int i) { return tile[i]; }",
        "typedef struct { float tile; } S;",
        "int tile(int i) { return i; }",
        "enum { other = 1, tile };",
        "typedef float tile;",
        "struct tile { int x; };",
        "int tile; set(&tile);",
        "for (int tile = 0; tile < 2; ++tile) {}",
        "if (i < 0) goto tile;",
    ],
)
def test_no_define_stands_in_the_place_of_a_name_that_a_reference_kernel_declares(text: str) -> None:
    assert "tile" in names_declared(text)


def test_what_a_reference_kernel_uses_it_does_not_declare() -> None:
    source = """
    #define M N
    #pragma unroll N
    static real f(const real v, int n) { switch (n) { case N: return N; default: return 2 * v; } }
    kernel void r(global const real *x, global real *y) { real z; float a[N]; if (x[N] < M * N) y[N] = (real)z; }
    enum { SIZE = N };
    """
    assert not names_declared(source) & {"N", "real", "M"}


def test_sub_groups_are_required_and_counted() -> None:
    able = replace(GENERIC_DEVICE, extensions=("cl_khr_subgroups",), sub_group_size=64)
    problem = Problem(study(**SUB_GROUPS), device=able)
    assert "-DLANES=64" in problem.plan(problem.default).options
    with pytest.raises(SpaceError, match="whole sub-groups"):
        problem.plan({**problem.default, "WG": 32})
    untold = Problem(study(**SUB_GROUPS), device=replace(able, sub_group_size=0))
    assert "-DLANES=1" in untold.plan({**untold.default, "WG": 32}).options
    stated = study(**SUB_GROUPS, device={"sub_group_size": "16 if vendor == 'generic' else sub_group_size"})
    assert "-DLANES=16" in Problem(stated, device=able).plan(problem.default).options


def test_a_device_without_sub_groups_is_one_line() -> None:
    with pytest.raises(
        DeviceError, match=r"^study saxpy: generic lacks cl_khr_subgroups; choose another device"
    ) as found:
        Problem(study(**SUB_GROUPS), device=GENERIC_DEVICE)
    assert "\n" not in str(found.value)
    misspelt = {"requires": {"extensions": ["cl_khr_fp46"]}}
    with pytest.raises(DeviceError, match=r"lacks cl_khr_fp46 \(did you mean 'cl_khr_fp64'\?\)"):
        Problem(study(**misspelt), device=GENERIC_DEVICE)
    with pytest.raises(DeviceError, match="lacks cl_khr_fp16; choose another device"):  # spelt as Khronos does
        Problem(study(requires={"extensions": ["cl_khr_fp16"]}), device=GENERIC_DEVICE)


@pytest.mark.parametrize("flops", ["-N", "1e300", "2.0 ** 64 * 2.0 ** 17", "1e308 * N", "0.0 - 1"])
def test_work_that_no_run_does_is_refused(flops: str) -> None:
    problem = Problem(study(work={"flops": flops}))
    with pytest.raises(UsageError, match=r"^saxpy\.toml: work\.flops: "):
        problem.plan(problem.default)


@pytest.mark.parametrize("tolerance", [{"relative": "-1e-6"}, {"absolute": "0 - N"}])
def test_a_tolerance_below_nothing_is_refused(tolerance: dict[str, str]) -> None:
    with pytest.raises(StudyError, match=r"^saxpy\.toml: tolerance\.\w+: gives -.*, but must be a number of 0 or more"):
        Problem(study(tolerance=tolerance)).tolerance  # noqa: B018
