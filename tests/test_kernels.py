"""Every variant of the bundled studies against NumPy in float64, at sizes that nothing divides.

A few lines of this file run the plans, so that one build serves all sizes: a size is an argument of these kernels, not
a define. Buffers come from the engine's arena: beyond a buffer a kernel reads NaN, and writes there are detected.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.bench.arena import Arena, Guarded
from autotune.bench.timing import Limits, Rules
from autotune.bench.trial import Bench
from autotune.devices import Kernel, open_session
from autotune.model import DeviceInfo, Outcome, Value
from autotune.study import (
    GENERIC_DEVICE,
    Plan,
    Problem,
    Study,
    expected_data,
    input_data,
    numpy_type,
)
from autotune.study.includes import inline
from tests.devices import device_here

pytestmark = pytest.mark.device

Array = NDArray[Any]
Config = dict[str, Value]

STUDIES = {name: Study.load(name) for name in ("matmul", "matmul_rect", "product_sum", "element_mult")}
_BUNDLED = {path.stem for path in (Path(__file__).parent.parent / "studies").glob("*.toml")}
OTHERS = sorted(_BUNDLED - {*STUDIES, "sgemm"})  # tests/test_sgemm.py has that
MATRIX_SIZES = [
    {"M": m, "N": n, "K": k}
    for m, n, k in ((1, 1, 1), (7, 7, 7), (63, 65, 129), (65, 63, 7), (129, 1, 63), (1, 129, 65), (131, 127, 101))
]
SIZES: dict[str, list[dict[str, int]]] = {
    "matmul": MATRIX_SIZES,
    "matmul_rect": MATRIX_SIZES,
    "product_sum": [
        {"X": x, "Y": y}
        for x, y in ((1, 1), (7, 7), (63, 65), (65, 63), (129, 1), (1, 129), (7, 1031), (1031, 7), (2053, 4099))
    ],
    "element_mult": [
        {"Y": y, "K": k}
        for y, k in ((1, 1), (7, 7), (63, 65), (65, 63), (129, 1), (1, 129), (31, 4099), (1031, 7), (7, 6), (65, 1028))
    ],
}
WIDE = {"WPT_M": 8, "WPT_N": 4, "VECTOR_WIDTH": 4, "PAD": 4, "TILE_K": 8, "UNROLL": 4}
CONFIGURATIONS: list[tuple[str, Config]] = [
    ("matmul", {"VARIANT": "NAIVE", "TILE": 8}),
    ("matmul", {"VARIANT": "TILED", "TILE": 16}),
    ("matmul", {"VARIANT": "WPT"}),
    ("matmul", {"VARIANT": "WPT", "TILE": 64, **WIDE}),
    ("matmul", {"VARIANT": "WPT", "TILE": 16, "TILE_K": 32, "WPT_M": 1, "WPT_N": 2, "PAD": 1, "UNROLL": 1}),
    ("matmul_rect", {"EDGES": "CHECKED", "ASPECT": 1, "TILE_ELEMENTS": 256, "TILE_K": 16, "WPT_M": 2}),
    ("matmul_rect", {"EDGES": "CHECKED", "ASPECT": 8, "TILE_ELEMENTS": 512, **WIDE}),
    ("matmul_rect", {"EDGES": "PADDED", "ASPECT": 4, "TILE_ELEMENTS": 256, **WIDE}),
    ("matmul_rect", {"EDGES": "PADDED", "ASPECT": 16, "TILE_ELEMENTS": 256, "TILE_K": 4, "VECTOR_WIDTH": 2}),
    ("product_sum", {"VARIANT": "NAIVE", "WPT": 2, "UNROLL": 4}),
    ("product_sum", {"VARIANT": "LOCAL", "GROUP_SIZE": 32}),
    ("product_sum", {"VARIANT": "LOCAL_CHUNKS", "GROUP_SIZE": 128, "CHUNK": 512}),
    ("product_sum", {"VARIANT": "FLOAT4", "GROUP_SIZE": 32, "WPT": 4}),
    ("product_sum", {"VARIANT": "FLOAT8", "UNROLL": 2}),
    ("product_sum", {"VARIANT": "FLOAT8_UNROLLED", "GROUP_SIZE": 32, "WPT": 2}),
    ("product_sum", {"VARIANT": "FLOAT8_LOCAL", "WPT": 2, "UNROLL": 2, "CHUNK": 256}),
    ("element_mult", {"VARIANT": "NAIVE", "GROUP_SIZE": 32, "UNROLL": 4}),
    ("element_mult", {"VARIANT": "LOCAL_VECTOR", "CHUNK": 256, "UNROLL": 2}),
    ("element_mult", {"VARIANT": "GROUP_PER_ROW", "GROUP_SIZE": 128, "GROUPS_PER_UNIT": 1}),
    ("element_mult", {"VARIANT": "GROUP_PER_ROW", "GROUP_SIZE": 32, "ROWS": 4, "UNROLL": 8}),
    ("element_mult", {"VARIANT": "GROUP_PER_ROW", "ROWS": 2, "VECTOR_WIDTH": 2, "GROUPS_PER_UNIT": 2}),
    ("element_mult", {"VARIANT": "GROUP_PER_ROW", "ROWS": 8, "VECTOR_WIDTH": 4, "UNROLL": 2}),
]


class Runner:
    """Runs plans on one device; programs are kept by source and options."""

    def __init__(self) -> None:
        self.device = device_here()
        self.session = open_session(self.device)
        self._kernels: dict[tuple[str, tuple[str, ...], str], Kernel] = {}

    def build(self, source: str, options: tuple[str, ...], entry: str) -> Kernel:
        """Return one kernel of a program, which must compile without a warning."""
        key = (source, options, entry)
        if key not in self._kernels:
            program = self.session.build(source, ["-cl-std=CL1.2", "-Werror", *options])
            self._kernels[key] = program.kernel(entry)
        return self._kernels[key]

    def run(self, plan: Plan, inputs: dict[str, Array]) -> dict[str, Array]:
        """Return the outputs in their logical shapes, after checking the guards of every buffer."""
        arena = Arena(self.session, inputs)
        buffers = {guarded.buffer.name: guarded for guarded in arena.prepare(plan)}
        for guarded in buffers.values():
            if guarded.buffer.access != "in":
                arena.poison(guarded, 0)
        for launch in plan.launches:
            kernel = self.build(plan.source, plan.options, launch.entry)
            views = {name: guarded.view for name, guarded in buffers.items()}
            values = [views.get(name) or plan.arguments[name].create(self.session) for name in launch.arguments]
            self.session.set_arguments(kernel, values)
            self.session.launch(kernel, launch.global_size, launch.local_size)
        self.session.finish()
        found = {name: self._read(guarded) for name, guarded in buffers.items()}
        return {name: found[name] for name in plan.outputs}

    def _read(self, guarded: Guarded) -> Array:
        whole = np.empty(guarded.size, np.uint8)
        self.session.read(guarded.whole, whole)
        stop = guarded.start + guarded.nbytes
        guards = np.concatenate([whole[: guarded.start], whole[stop:]]).view(np.uint32)
        assert (guards == guarded.guard).all(), f"wrote beyond {guarded.buffer.name}"
        dtype, width = numpy_type(guarded.buffer.type)
        components = (width,) if width > 1 else ()
        data = whole[guarded.start : stop].view(dtype).reshape(*guarded.buffer.allocate, *components)
        return data[tuple(slice(extent) for extent in guarded.buffer.shape)]


@pytest.fixture(scope="module")
def runner() -> Runner:
    return Runner()


def _completed(name: str, partial: Config) -> Config:
    """Return the configuration with these values that is nearest to the default, on the device of the tests' size."""
    return _nearest(name, tuple(partial.items()))


@cache
def _nearest(name: str, partial: tuple[tuple[str, Value], ...]) -> Config:
    fix = {key: [value] for key, value in partial}
    cpu = replace(GENERIC_DEVICE, kind="cpu", compute_units=2)
    return Problem(STUDIES[name], _divisible(name), device=cpu, fix=fix).default


def _problem(name: str, size: dict[str, int], choices: Config, device: DeviceInfo) -> Problem:
    """Return one problem for all configurations: building its space takes longer than running them."""
    return _one_problem(name, tuple(size.items()), tuple(choices.items()), device)


@cache
def _one_problem(
    name: str, size: tuple[tuple[str, int], ...], choices: tuple[tuple[str, Value], ...], device: DeviceInfo
) -> Problem:
    return Problem(STUDIES[name], dict(size), dict(choices), device)


def _divisible(name: str) -> dict[str, int]:
    return dict.fromkeys(STUDIES[name].sizes, 64)


def _numpy(name: str, data: dict[str, Array]) -> Array:
    """Compute what the study computes, in float64 or exact integers, written independently."""
    wide = {key: value.astype(np.int64 if value.dtype.kind == "i" else np.float64) for key, value in data.items()}
    if name == "product_sum":
        return np.multiply.outer(wide["A"], wide["B"]).sum(axis=1)
    if name == "element_mult":
        return 1.5 * (wide["vector"] * wide["matrix"] * wide["matrix2"]).sum(axis=1)
    return np.matmul(wide["A"], wide["B"])


def _check(runner: Runner, problem: Problem, configuration: Config) -> None:
    plan = problem.plan(configuration)
    data = input_data(problem)
    (output,) = runner.run(plan, data).values()
    (tolerance,) = plan.outputs.values()
    wanted = _numpy(problem.study.name, data)
    error = np.abs(output - wanted)
    assert output.shape == wanted.shape
    assert tolerance.relative == 0
    assert (error <= tolerance.absolute).all(), (problem.size, configuration, error.max(), tolerance.absolute)
    if output.dtype.kind == "i":
        assert tolerance.absolute == 0


CASES = [
    (name, partial, choices)
    for name, partial in CONFIGURATIONS
    for choices in ([{"T": "float"}, {"T": "int"}] if STUDIES[name].choices else [{}])
]


@pytest.mark.parametrize(("name", "partial", "choices"), CASES)
def test_every_variant_is_right_at_every_size(runner: Runner, name: str, partial: Config, choices: Config) -> None:
    configuration = _completed(name, partial)
    tried = 0
    for size in SIZES[name]:
        problem = _problem(name, size, choices, runner.device)
        if configuration in problem.space:
            _check(runner, problem, configuration)
            tried += 1
    width = configuration.get("VECTOR_WIDTH", 1) if name == "element_mult" else 1
    assert tried == sum(size.get("K", 0) % width == 0 for size in SIZES[name])


def test_the_configurations_above_hold_every_variant() -> None:
    for name, study in STUDIES.items():
        step = "EDGES" if name == "matmul_rect" else "VARIANT"
        tried = {partial[step] for of, partial in CONFIGURATIONS if of == name}
        assert tried == set(study.parameters[step].values)


@pytest.mark.parametrize("name", STUDIES)
@settings(max_examples=12, derandomize=True)
@given(data=st.data())
def test_the_default_is_right_at_any_size(runner: Runner, name: str, data: st.DataObject) -> None:
    study = STUDIES[name]
    size = {axis: data.draw(st.integers(1, 300), label=axis) for axis in study.sizes}
    _check(runner, Problem(study, size, device=runner.device), _completed(name, {}))


@pytest.mark.parametrize("name", STUDIES)
def test_configurations_drawn_from_the_space_are_right(runner: Runner, name: str) -> None:
    size = dict(zip(STUDIES[name].sizes, (97, 116, 101), strict=False))
    problem = Problem(STUDIES[name], size, device=runner.device)
    for row in problem.space.sample(np.random.default_rng(1), 2):
        _check(runner, problem, problem.space.configuration(int(row)))


@pytest.mark.parametrize("name", OTHERS or ["element_mult"])
def test_a_study_that_nothing_above_knows_is_right_by_its_own_reference(runner: Runner, name: str) -> None:
    study = Study.load(name)
    problem = Problem(study, dict(zip(study.sizes, (97, 116, 101, 7, 5), strict=False)), device=runner.device)
    inputs = input_data(problem)
    told = expected_data(problem, inputs)
    assert told is not None, "its reference runs on the device: it takes a test of its own"
    bench = Bench(runner.session, inputs, told, Rules(maximum=1, warmup=0, least_s=0.0), Limits(), lambda *_: None)
    rows = problem.space.sample(np.random.default_rng(1), 4 if OTHERS else 0)
    for configuration in (problem.default, *(problem.space.configuration(int(row)) for row in rows)):
        report = bench.run(problem.plan(configuration), None)
        assert report.outcome is Outcome.OK, (configuration, report.reason)


@pytest.mark.parametrize("edges", ["CHECKED", "PADDED"])
def test_rectangular_tiles_give_the_integers_of_matmul(runner: Runner, edges: str) -> None:
    size = {"M": 160, "N": 160, "K": 101}
    found = []
    for name, partial in (("matmul", {"VARIANT": "WPT"}), ("matmul_rect", {"EDGES": edges})):
        problem = Problem(STUDIES[name], size, {"T": "int"}, runner.device)
        data = input_data(problem)
        found.append(runner.run(problem.plan(_completed(name, partial)), data)["C"])
    assert found[0].any()
    np.testing.assert_array_equal(found[1], found[0])


def test_product_sum_adds_every_term_in_order(runner: Runner) -> None:
    """Bit for bit a chain of Y multiplications and additions, fused or not; nothing is factored or reordered."""
    problem = Problem(STUDIES["product_sum"], {"X": 67, "Y": 139}, device=runner.device)
    data = input_data(problem)
    a, b = data["A"], data["B"]
    plain, fused = np.zeros_like(a), np.zeros_like(a)
    for term in b:
        plain += a * term
        fused = (np.longdouble(a) * np.longdouble(term) + fused).astype(np.float32)
    assert (a * np.cumsum(b)[-1] != plain).any()
    for name, partial in CONFIGURATIONS:
        if name == "product_sum":
            (found,) = runner.run(problem.plan(_completed(name, partial)), data).values()
            assert (found == plain).all() or (found == fused).all(), partial


@pytest.mark.parametrize("name", STUDIES)
def test_the_reference_of_the_study_agrees(name: str) -> None:
    problem = Problem(STUDIES[name], SIZES[name][2])
    data = input_data(problem)
    wanted = expected_data(problem, data)
    assert wanted is not None
    for output in wanted.values():
        np.testing.assert_allclose(output, _numpy(name, data), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", STUDIES)
def test_a_kernel_compiles_untuned(runner: Runner, name: str) -> None:
    study = STUDIES[name]
    for entry in {rule.entry for rule in study.launches}:
        runner.build(inline(study.text.kernel_path), (), entry)


@pytest.mark.parametrize("name", STUDIES)
def test_the_defaults_of_kernel_and_study_are_the_same(runner: Runner, name: str) -> None:
    source = STUDIES[name].text.source
    stated = [one for one in STUDIES[name].parameters.values() if re.search(rf"#ifndef {one.name}[ \n]", source)]
    assert stated
    for parameter in stated:
        assert f"\n#define {parameter.name} {parameter.default}\n" in source


@pytest.mark.parametrize("name", STUDIES)
def test_every_size_leaves_a_wide_space_and_the_default(name: str) -> None:
    study = STUDIES[name]
    named = [size for sizes in study.size_lists.values() for size in sizes]
    for size in (*SIZES[name], *named):
        problem = Problem(study, size)
        assert len(problem.space) >= 200
        assert problem.default == {key: parameter.default for key, parameter in study.parameters.items()}


def test_the_odd_size_of_rectangular_tiles_is_named() -> None:
    assert {"M": 1600, "N": 1600, "K": 1007} in STUDIES["matmul_rect"].size_lists["rect"]


@pytest.mark.parametrize(
    ("name", "size", "partial", "reason"),
    [
        ("product_sum", {"Y": 12289}, {"VARIANT": "LOCAL"}, "LOCAL keeps all of B, 4 * Y bytes, in local memory"),
        ("element_mult", {"K": 7}, {"VECTOR_WIDTH": 4}, "only where VECTOR_WIDTH divides K"),
        ("element_mult", {"K": 6}, {"VECTOR_WIDTH": 4}, "only where VECTOR_WIDTH divides K"),
    ],
)
def test_what_a_size_excludes_says_so(name: str, size: dict[str, int], partial: Config, reason: str) -> None:
    excluded = {(e.name, e.value): e.reason for e in Problem(STUDIES[name], size).space.exclusions()}
    (item,) = partial.items()
    assert reason in excluded[item]


def test_all_of_b_is_allowed_where_it_just_fits() -> None:
    space = Problem(STUDIES["product_sum"], {"Y": 12288}).space
    assert ("VARIANT", "LOCAL") not in {(e.name, e.value) for e in space.exclusions()}
