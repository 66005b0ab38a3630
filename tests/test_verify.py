"""Right or wrong on the device: types, padding, tolerance, guards, inputs; and a plan's path through a bench."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any, cast
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from autotune.bench import finals, reference
from autotune.bench.arena import GUARD, Arena, Guarded, padded
from autotune.bench.checks import judged
from autotune.bench.finalist import Finalist
from autotune.bench.kernels import CHECKS, flusher
from autotune.bench.messages import Job, Phase, Setup
from autotune.bench.prepare import Compiled, bind, compile_plan, holds_anything
from autotune.bench.readback import compared, contents, first_overwritten
from autotune.bench.reference import ReferenceBench
from autotune.bench.report import Fault, Report, is_too_large
from autotune.bench.serving import _outputs, _serve_trials
from autotune.bench.timing import Limits, Rules
from autotune.bench.tour import retime
from autotune.bench.trial import Bench
from autotune.bench.unwritten import count_unwritten, indistinct, is_unwritten, not_numbers, unjudged, unverified
from autotune.bench.verify import Checker, Verdict, _walk
from autotune.bench.words import LOCAL, POISON, beyond, spoilt
from autotune.bench.zeros import cure_by_zeros
from autotune.devices import BackendError, KernelLimits, Program, Session
from autotune.devices.opencl_objects import OpenCLProgram
from autotune.model import Measurement, Outcome
from autotune.study import (
    Buffer,
    Check,
    Launch,
    Local,
    Plan,
    Scalar,
    Tolerance,
    is_struct,
    leaves,
    member_of,
    numpy_type,
)

pytestmark = pytest.mark.device


TAGGED = "struct Tagged { float3 place; int tag[2]; struct Inner { float weight; int2 pair[2]; } inner[2]; }"


def plan_of(*buffers: Buffer) -> Plan:
    return Plan("", (), (), {buffer.name: buffer for buffer in buffers})


def verdict(
    session: Session, buffer: Buffer, found: NDArray[Any], expected: NDArray[Any], tolerance: Tolerance
) -> tuple[str, float]:
    """Check `found`, as if a kernel had written it, against `expected`."""
    arena, checker = Arena(session, {}), Checker(session, {buffer.name: expected})
    (guarded,) = arena.prepare(plan_of(buffer))
    checker.prepare([guarded])
    session.write(guarded.whole, padded(found, buffer), guarded.start)
    result = checker.check([guarded], {buffer.name: tolerance})
    return result.reason, result.max_error


def test_what_cannot_be_checked_is_the_configurations_fault(session: Session) -> None:
    buffer = Buffer("out", "int", (2, 2, 2, 2, 2), allocate=(3, 3, 3, 3, 3), access="out")
    arena, checker = Arena(session, {}), Checker(session, {"out": np.zeros(buffer.shape, np.int32)})
    with pytest.raises(Fault, match="out is padded in more than three dimensions"):
        bind(session, arena, checker, plan_of(buffer), Compiled(None, []))  # type: ignore[arg-type]


DOUBLE = pytest.param("double", marks=pytest.mark.doubles)
SCALARS = ["char", "uchar", "short", "ushort", "int", "uint", "long", "ulong", "float", DOUBLE]


@pytest.mark.parametrize("kind", [*SCALARS, "float4", "int2", "float3"])
def test_every_type_is_compared_in_its_logical_shape(session: Session, kind: str) -> None:
    dtype, width = numpy_type(kind)
    buffer = Buffer("c", kind, (5, 3), (8, 7), "out")
    values = np.arange(15 * width).reshape(5, 3, width) + 1
    expected = values.astype(dtype).squeeze()
    assert verdict(session, buffer, expected, expected, Tolerance()) == ("", 0.0)
    wrong = expected.copy()
    wrong[3, 1] += 1
    reason, worst = verdict(session, buffer, wrong, expected, Tolerance())
    width = 3 if kind == "float3" else width  # the fourth is padding
    assert reason.startswith(f"{width} of {15 * width} values of c are wrong; first c[3, 1")
    assert worst == np.inf


def test_of_structs_that_are_overwritten_the_first_is_named_whatever_pads_them(session: Session) -> None:
    data = np.zeros((3, 2), numpy_type(TAGGED)[0])
    buffer = Buffer("p", TAGGED, (3, 2), (3, 4), "in")
    (guarded,) = Arena(session, {"p": data}).prepare(plan_of(buffer))
    left = padded(data, buffer)
    left["place"][..., 3] = 7
    session.write(guarded.whole, left, guarded.start)
    assert first_overwritten(session, guarded, data) == ""
    left["inner"]["pair"][2, 1] = 9
    session.write(guarded.whole, left, guarded.start)
    assert first_overwritten(session, guarded, data).startswith(", first p[2, 1] = (")


OF_NAN = (
    "; NaN may be 0 times memory that is unwritten or beyond the end of an input: a larger allocate puts zeros there"
)


def test_members_of_structs_are_compared_each_by_itself_and_padding_is_not(session: Session) -> None:
    dtype = numpy_type(TAGGED)[0]
    buffer = Buffer("p", TAGGED, (3, 2), (3, 4), "out")
    expected = np.zeros((3, 2), dtype)
    for number, leaf in enumerate(leaves(TAGGED), 1):
        member_of(expected, leaf)[...] = number
    found = expected.copy()
    found["place"][..., 3] = np.nan
    assert verdict(session, buffer, found, expected, Tolerance()) == ("", 0.0)
    found["inner"]["pair"][2, 1, 1, 0, 1] = 9
    found["place"][1, 0, 2] = np.nan
    reason, _ = verdict(session, buffer, found, expected, Tolerance(absolute=1))
    assert reason == (
        f"1 of 18 values of p.place are wrong, 1 of them NaN; first p[1, 0].place[2] = nan, expected 1.0{OF_NAN}; "
        "1 of 48 values of p.inner.pair are wrong; first p[2, 1].inner.pair[1, 0, 1] = 9, expected 4; "
        "the largest error is 5 x the tolerance"
    )


@pytest.mark.parametrize(
    ("kind", "found", "tolerance", "is_told"),
    [
        ("float", 1.000001, Tolerance(), True),
        ("half", 1.001, Tolerance(), True),
        ("float", 1.5, Tolerance(), False),  # no rounding
        ("float", np.nan, Tolerance(), False),
        ("float", 1.000001, Tolerance(1e-7), False),  # the author knows of tolerances
        ("int", 2, Tolerance(), False),
    ],
)
def test_what_rounding_may_explain_names_the_tolerance(
    session: Session, kind: str, found: float, tolerance: Tolerance, is_told: bool
) -> None:
    values, ones = (np.array([number], numpy_type(kind)[0]) for number in (found, 1))
    reason, _ = verdict(session, Buffer("c", kind, (1,), (1,), "out"), values, ones, tolerance)
    scalar = judged("c", Check("c", tolerance), values[0], ones[0])
    checked = judged("c", Check("c", tolerance), values, ones)
    for one in (reason, scalar.reason, checked.reason):
        assert one.endswith("; without a [tolerance] above 0 they must be equal") == is_told
        assert "expected 1" in one
    assert reason.split(" = ")[1].startswith(f"{found}")  # as its type has it, without the digits of a double


def test_a_check_of_another_shape_is_wrong_even_where_one_would_stretch_to_the_other() -> None:
    found = judged("c", Check("c", Tolerance()), np.ones(1), np.ones(3))
    assert found.reason == "check c has shape (1,), the reference has (3,)"


@settings(max_examples=25)
@given(
    relative=st.floats(0, 0.5, width=32),
    absolute=st.floats(0, 10, width=32),
    errors=st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=50),
)
def test_the_tolerance_is_that_of_the_formula(
    session: Session, relative: float, absolute: float, errors: list[float]
) -> None:
    expected = np.linspace(-30, 30, len(errors)).astype(np.float32)
    found = expected + np.array(errors, np.float32)
    buffer = Buffer("c", "float", (len(errors),), (len(errors),), "out")
    difference = np.abs(found.astype(np.float64) - expected)
    allowed = absolute + relative * np.abs(expected.astype(np.float64))
    clearly = np.abs(difference - allowed) > 1e-4 * (1 + allowed)  # beyond what float32 rounds
    reason, worst = verdict(session, buffer, found, expected, Tolerance(relative, absolute))
    if np.any(clearly & (difference > allowed)):
        assert reason
        assert worst > 1
    elif np.all(clearly):
        assert not reason
        assert worst <= 1


def test_nan_and_infinity_are_right_only_where_expected(session: Session) -> None:
    buffer = Buffer("c", "float", (4,), (4,), "out")
    special = np.array([1, np.nan, np.inf, -np.inf], np.float32)
    assert verdict(session, buffer, special, special, Tolerance(1e-3))[0] == ""
    plain = np.ones(4, np.float32)
    reason, _ = verdict(session, buffer, special, plain, Tolerance(1e-3, 1e9))
    assert reason == f"3 of 4 values of c are wrong, 1 of them NaN; first c[1] = nan, expected 1.0{OF_NAN}"
    reason, _ = verdict(session, buffer, special[[0, 0, 2, 0]], plain, Tolerance(1e-3, 1e9))
    assert reason.endswith("first c[2] = inf, expected 1.0; infinity may come from memory that is unwritten or beyond "
                           "the end of an input, or from local memory that is unwritten")  # fmt: skip
    assert verdict(session, buffer, plain, special, Tolerance(1e-3))[0].startswith("3 of 4 values of c are wrong; ")


def test_what_local_memory_held_is_told_as_such(session: Session) -> None:
    found, expected = np.array([3, LOCAL[0]], np.int32), np.array([3, 4], np.int32)
    reason, _ = verdict(session, Buffer("c", "int", (2,), (2,), "out"), found, expected, Tolerance())
    assert reason.endswith("= 2139095040, expected 4; this is what local memory holds before it is written")


@pytest.mark.parametrize("kind", ["float", DOUBLE, "half"])
def test_nothing_comes_near_to_infinity(session: Session, kind: str) -> None:
    dtype, tolerance = numpy_type(kind)[0], Tolerance(1e-3, 1e-3)
    found, expected = np.array([1, np.inf, -np.inf, np.inf], dtype), np.array([np.inf, -np.inf, np.inf, np.inf], dtype)
    reason, worst = verdict(session, Buffer("c", kind, (4,), (4,), "out"), found, expected, tolerance)
    assert reason.startswith("3 of 4 values of c are wrong; first c[0] = 1.0, expected inf")
    assert worst == np.inf
    words = compared(found, expected, tolerance)
    assert (words[0], words.view(np.float32)[3]) == (3, np.inf)


@pytest.mark.parametrize("kind", ["char", "float", "double"])
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_a_byte_next_to_the_buffer_is_seen(session: Session, kind: str, count: int) -> None:
    buffer = Buffer("b", kind, (count,), (count,), "scratch")
    arena, checker = Arena(session, {}), Checker(session, {})
    (guarded,) = arena.prepare(plan_of(buffer))
    assert guarded.start >= GUARD
    assert checker.check([guarded], {}).reason == ""
    byte = np.array([0x11], np.uint8)
    ends = (guarded.start - 1, "before its start", -1), (guarded.start + guarded.nbytes, "after its end", count)
    for offset, where, index in ends:
        before = np.empty(1, np.uint8)
        session.read(guarded.whole, before, offset)
        session.write(guarded.whole, byte, offset)
        reason = checker.check([guarded], {}).reason
        said = f"canary {where}: 1 bytes changed, the nearest at b[{index}]"
        assert reason == f"kernel wrote outside buffer b ({said}): let it check its bounds, or give it room by allocate"
        session.write(guarded.whole, before, offset)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1, max_size=3),
    st.sampled_from(["int", "int4", "int3", TAGGED]),
)
def test_the_walk_visits_the_logical_part_of_the_allocation(extents: list[tuple[int, int]], kind: str) -> None:
    extents = extents[:2] if kind == TAGGED else extents  # it has axes of its own
    shape = tuple(extent for extent, _ in extents)
    buffer = Buffer("b", kind, shape, tuple(extent + extra for extent, extra in extents), "out")
    dtype, width = numpy_type(kind)
    rooms = np.arange(np.prod(buffer.allocate) * width * dtype.itemsize // 4, dtype=np.int32)
    numbers = rooms.view(dtype).reshape(*buffer.allocate, *((width,) if width > 1 else ()))
    for leaf in leaves(kind):
        extent, stride = _walk(buffer, leaf)
        places = [sum(i * s for i, s in zip(index, stride, strict=True)) for index in np.ndindex(*extent)]
        logical = np.ascontiguousarray(member_of(numbers[tuple(slice(n) for n in shape)], leaf)).view(np.int32)
        assert [leaf.offset // 4 + place for place in places] == logical.reshape(-1).tolist()


def test_poison_is_a_nan_in_every_float() -> None:
    words = np.array([POISON, POISON], np.uint32)
    assert np.isnan(words.view(np.float32)).all()
    assert np.isnan(words.view(np.float64)).all()
    assert np.isnan(words.view(np.float16)).any()


SUM = """
kernel void add(global const int *a, global int *total, int scale, local int *shared) {
    int i = get_local_id(0);
    shared[i] = a[get_global_id(0)] * scale;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (i == 0) {
        int sum = 0;
        for (int k = 0; k < get_local_size(0); k++) sum += shared[k];
        atomic_add(total, sum);
    }
}
kernel void twice(global const int *total, global int *out) { out[0] = 2 * total[0]; }
"""


def sum_plan(**changes: Any) -> Plan:
    fields: dict[str, Any] = {
        "source": SUM,
        "options": (),
        "launches": (
            Launch("add", (64,), (16,), ("a", "total", "scale", "shared")),
            Launch("twice", (1,), None, ("total", "out")),
        ),
        "arguments": {
            "a": Buffer("a", "int", (64,), (64,), "in"),
            "total": Buffer("total", "int", (1,), (1,), "zeroed"),
            "out": Buffer("out", "int", (1,), (1,), "out"),
            "scale": Scalar("scale", "int", 3),
            "shared": Local("shared", "int", 16),
        },
        "outputs": {"out": Tolerance()},
    }
    return Plan(**(fields | changes))


def references(session: Session, inputs: Mapping[str, NDArray[Any]] | None = None) -> ReferenceBench:
    return ReferenceBench(session, inputs or {}, Limits(), lambda name, limit_s: None)


def runner(session: Session) -> Callable[[Plan], Report]:
    inputs = {"a": np.arange(64, dtype=np.int32)}
    bench = Bench(session, inputs, {"out": np.array([2 * 3 * 2016])}, Rules(), Limits(), lambda name, limit_s: None)
    assert references(session, inputs).reference(sum_plan())["out"].tolist() == [2 * 3 * 2016]
    return lambda plan: bench.run(plan, None)


def test_a_reference_is_checked_by_what_checks_the_kernels_then(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[Sequence[str]] = []
    build = session.build

    def noted(source: str, options: Sequence[str] = ()) -> Program:
        built.extend([options] if source == CHECKS else [])
        return build(source, options)

    monkeypatch.setattr(session, "build", noted)
    inputs = {"a": np.arange(64, dtype=np.int32)}
    expected = references(session, inputs).reference(sum_plan())
    Bench(session, inputs, expected, Rules(), Limits(), lambda name, limit_s: None)
    assert len(built) == 2
    assert built[0] == built[1]


def test_a_reference_may_have_in_global_memory_what_is_constant_for_the_kernel(session: Session) -> None:
    inputs, plan = {"a": np.arange(64, dtype=np.int32)}, sum_plan()
    constant = replace(cast("Buffer", plan.arguments["a"]), constant=True)
    found = references(session, inputs).reference(sum_plan(arguments={**plan.arguments, "a": constant}))
    assert found["out"].tolist() == [2 * 3 * 2016]


def test_a_reference_kernel_that_has_no_number_for_the_inputs_is_told_of_them(session: Session) -> None:
    source = "kernel void root(global const float *x, global float *y) { y[0] = sqrt(x[0]); }"
    x, y = Buffer("x", "float", (1,), (1,), "in"), Buffer("y", "float", (1,), (1,), "out")
    plan = Plan(source, (), (Launch("root", (1,), (1,), ("x", "y")),), {"x": x, "y": y}, {"y": Tolerance()})
    with pytest.raises(Fault, match=r"only NaN for 'y': .*: check their low and high$"):
        _outputs(session, {"x": np.float32([-1])}, Limits(), plan, Mock())


@pytest.mark.parametrize("kind", ["half", "uchar", "int", "double", "float4", TAGGED])
def test_values_that_a_reference_leaves_unwritten_are_counted(kind: str) -> None:
    dtype, width = numpy_type(kind)
    data = np.zeros((8, 3 * 4 * width), dtype)
    assert count_unwritten(data) == (0, 0)
    data[5:].reshape(-1).view(np.uint8).view(np.uint32)[:] = POISON
    assert count_unwritten(data) == (3 * data.shape[1], 5 * data.shape[1])
    assert not is_unwritten(data)
    assert is_unwritten(data[5:])


def test_small_values_in_rows_of_odd_length_are_counted_too() -> None:
    whole = np.full((4, 8), np.uint32(POISON), np.uint32).view(np.uint16)
    assert count_unwritten(np.ascontiguousarray(whole[:, :15])) == (56, 0)  # but in words of two rows


@pytest.mark.parametrize("value", [0, 1, -1, 3, 1e9, -0.0, np.inf, np.nan])
@pytest.mark.parametrize("tolerance", [Tolerance(0.0, 0.0), Tolerance(0.5, 1.0), Tolerance(1.0, 0.0)])
def test_zeros_are_told_to_be_right_where_a_comparison_takes_them(value: float, tolerance: Tolerance) -> None:
    expected = np.full(3, value, np.float32)
    right = not compared(np.zeros_like(expected), expected, tolerance)[0]
    unwritten = np.full(2, POISON, np.uint32).view(np.float32)
    for left in (expected, np.concatenate((unwritten, expected)), np.concatenate((expected, unwritten))):
        told = indistinct({"y": tolerance}, {"y": left})
        assert told.startswith("zeros are right for all of y") == right
        assert told.startswith("one number is right for all of y") == (not right and np.isfinite(value))


def test_large_whole_numbers_that_differ_by_one_are_not_alike() -> None:
    expected = {"y": np.array([2**62, 2**62 + 1], np.uint64)}
    assert indistinct({"y": Tolerance()}, expected) == ""
    assert indistinct({"y": Tolerance(absolute=1)}, expected).startswith("one number is right for all of y")


@pytest.mark.parametrize(
    ("values", "tolerance", "told"),
    [([5], Tolerance(), False), ([5, 6], Tolerance(0, 0.5), True), ([5, 6], Tolerance(0, 0.4), False)],
)
def test_of_outputs_that_are_all_alike_any_order_is_right(values: list[int], tolerance: Tolerance, told: bool) -> None:
    for kind in ("int", "float"):
        expected = np.array(values, numpy_type(kind)[0])
        assert bool(indistinct({"y": tolerance}, {"y": expected})) == told


@pytest.mark.parametrize(
    ("checks", "data", "told"),
    [
        ({"up": "min(diff(y)) >= 0"}, [3, 1, 2], "the checks pass if all of y is 0: "),
        ({"up": "min(diff(y)) >= 0", "whole": "sum(y)"}, [3, 1, 2], ""),
        ({"up": "min(diff(y)) >= 0", "whole": "sum(y)"}, [1, 2, 3], "the checks pass if y is left unchanged: "),
        ({"up": "diff(y)[7]"}, [1, 2, 3], ""),  # fails in itself
        ({"up": "sum(abs(z - y)) == 0", "whole": "sum(y)"}, [3, 1, 2], ""),  # zeros in z are wrong beside a right y
        ({"up": "sum(abs(z - y)) == 0"}, [3, 1, 2], "the checks pass if all of y and z is 0: "),
    ],
)
def test_outputs_that_their_checks_take_without_any_work_are_told(
    checks: dict[str, str], data: list[int], told: str
) -> None:
    buffers = {"y": Buffer("y", "int", (3,), (3,), "inout"), "z": Buffer("z", "int", (3,), (3,), "out")}
    plan = Plan("", (), (), buffers, checks={name: Check(text, Tolerance()) for name, text in checks.items()})
    found = unjudged(plan, {"y": np.array(data)}, {"up": np.array(1), "whole": np.array(6)})
    assert found.startswith(told)
    assert bool(found) == bool(told)


def test_time_is_given_for_what_all_checks_are_asked_once(session: Session, tmp_path: Path) -> None:
    """With a limit into which one round of slow checks fits, two more rounds ended the worker."""
    y = Buffer("y", "int", (3,), (3,), "out")
    source = "kernel void k(global int *y) { y[get_global_id(0)] = 2; }"
    plan = Plan(
        source, (), (Launch("k", (3,), (3,), ("y",)),), {"y": y}, checks={"whole": Check("sum(y)", Tolerance())}
    )
    np.save(path := tmp_path / "whole.npy", np.array(6))
    limits = Limits(first_s=7.0)
    rules = Rules(maximum=5, most=5, least_s=0.0, target=1.0)
    setup = Setup(str(tmp_path), {}, {"whole": str(path)}, None, rules, limits)
    connection, sensing = Mock(), Mock()
    connection.recv.side_effect = [Job(plan), EOFError]
    with pytest.raises(EOFError):
        _serve_trials(session, setup, connection, sensing)
    phase, report = (call.args[0] for call in connection.send.call_args_list[-2:])
    assert phase == Phase("verify", 14.0)
    assert report.outcome is Outcome.OK


def test_what_a_reference_leaves_unwritten_is_said(session: Session) -> None:
    source = "kernel void part(global float *out, global int *all) { all[get_global_id(0)] = out[2] = 1; }"
    out, every = Buffer("out", "float", (2, 3), (2, 3), "out"), Buffer("all", "int", (4,), (4,), "out")
    launch = Launch("part", (4,), (4,), ("out", "all"))
    plan = Plan(source, (), (launch,), {"out": out, "all": every}, {"out": Tolerance(), "all": Tolerance()})
    outputs = references(session).reference(plan)
    assert unverified(plan, outputs) == (
        "the reference leaves 5 of 6 values of out unwritten, first out[0, 0]: they are not verified; "
        'access = "inout" with data compares them too'
    )


def typed_plan(kind: str, extent: int, body: str) -> Plan:
    """Return the plan of a kernel that writes `y` of some type, with a struct's declaration if needed."""
    declared, name = (f"{kind};\n", " ".join(kind.split()[:2])) if is_struct(kind) else ("", kind)
    source = f"{declared}kernel void k(global {name} *y) {{ int i = get_global_id(0); {body}; }}"
    out = Buffer("y", kind, (extent,), (extent,), "out")
    return Plan(source, (), (Launch("k", (extent,), None, ("y",)),), {"y": out}, {"y": Tolerance()})


PAIR = "struct Pair { int a; float3 b; char c; }"


@pytest.mark.parametrize(
    ("kind", "body", "where"),
    [
        ("uchar", "if (i & 1) y[i] = 1", "y[0]"),
        ("ushort", "if (i == 1) y[i] = 1", "y[0]"),
        (PAIR, "y[i].a = i; y[i].b = 1", "y[0].c"),
    ],
)
def test_single_small_values_that_a_reference_leaves_are_refused(
    session: Session, kind: str, body: str, where: str
) -> None:
    with pytest.raises(Fault, match=rf'it leaves {re.escape(where)} unwritten: .* access = "inout"'):
        references(session).reference(typed_plan(kind, 2, body))


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("char", "y[i] = i", ""),  # each value that there is
        ("uchar", "y[i] = i", ""),
        ("short3", "vstore3((short3)(i, 2, 3), 0, (global short *)(y + i))", ""),  # not what pads it
        ("int3", "vstore3((int3)(i, 2, 3), 0, (global int *)(y + i))", ""),
        (PAIR, "y[i].a = i; y[i].c = 1", "768 of 768 values of y.b unwritten, first y[0].b[0]"),
    ],
)
def test_what_a_reference_has_computed_is_not_taken_for_unwritten(
    session: Session, kind: str, body: str, said: str
) -> None:
    plan = typed_plan(kind, 256, body)
    told = unverified(plan, references(session).reference(plan))
    assert told.startswith(f"the reference leaves {said}: they are not verified") if said else told == ""


@pytest.mark.parametrize(
    ("kind", "body", "place"),
    [
        *(
            (kind, "y[i] += x[i]", "y[0]") for kind in ("int", "float", "uchar", "half", "float3")
        ),  # adds to what is there
        ("int", "y[i] = x[i + 1] - x[i]", "y[15]"),  # beyond the end
        *(("float", f"y[i] = f{best}(y[i], x[i])", "y[0]") for best in ("min", "max")),
        *((kind, "y[i] = x[i + 1]", "y[15]") for kind in ("uchar", "short", "float", "float3")),
        ("float3", "y[i] = x[i] + mine[15 - i]", "y[0]"),
        ("float", "mine[i] = x[i]; y[i] = mine[i]", ""),
        *((kind, "if (i < 9) y[i] = x[i]", "") for kind in ("uchar", "float3")),  # what is left is told elsewhere
        pytest.param(
            "int", "y[i] = x[i]; count[0] = atomic_inc(count + 1)", "count[0]", marks=pytest.mark.processor
        ),  # work-items one after another
    ],
)
def test_a_reference_that_gives_what_it_finds_in_memory_is_refused(
    session: Session, kind: str, body: str, place: str
) -> None:
    source = "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n" * (kind == "half") + (
        f"kernel void k(global const {kind} *x, global {kind} *y, global {kind} *mine, global int *count) "
        f"{{ int i = get_global_id(0); {body}; }}"
    )
    buffers = [
        Buffer(name, one, (extent,), (extent,), access)
        for name, one, extent, access in (
            ("x", kind, 16, "in"), ("y", kind, 16, "out"), ("mine", kind, 16, "scratch"), ("count", "int", 2, "out"),
        )
    ]  # fmt: skip
    if kind == "half" and "cl_khr_fp16" not in session.info.extensions:
        pytest.skip("no half here")
    plan = Plan(
        source, (), (Launch("k", (16,), (16,), ("x", "y", "mine", "count")),), {one.name: one for one in buffers},
        {"y": Tolerance(), **({"count": Tolerance()} if "count[" in body else {})},
    )  # fmt: skip
    dtype, width = numpy_type(kind)
    runs = references(session, {"x": np.arange(1, 16 * width + 1).astype(dtype).reshape(buffers[0].data_shape)})
    if not place:
        assert set(runs.reference(plan)) == set(plan.outputs)
        return
    told = rf'depends on what was in memory before, first {re.escape(place)}: .*inout.*write access = "zeroed"'
    with pytest.raises(Fault, match=told):
        runs.reference(plan)


def test_an_output_that_is_inout_already_is_not_to_be_made_so(session: Session) -> None:
    source = "kernel void k(global float *y) { int i = get_global_id(0); y[i] += y[i + 1]; }"
    out = Buffer("y", "float", (4,), (4,), "inout")
    plan = Plan(source, (), (Launch("k", (4,), (4,), ("y",)),), {"y": out}, {"y": Tolerance()})
    with pytest.raises(Fault, match=r"first y\[3\]: it reads unwritten .*barrier.*beyond the end"):
        references(session, {"y": np.ones(4, np.float32)}).reference(plan)


def test_a_reference_that_writes_beyond_its_outputs_is_refused(session: Session) -> None:
    source = "kernel void k(global int *y) { y[get_global_id(0)] = 1; }"
    out = Buffer("y", "int", (4,), (4,), "out")
    plan = Plan(source, (), (Launch("k", (5,), (5,), ("y",)),), {"y": out}, {"y": Tolerance()})
    with pytest.raises(
        Fault, match=r"kernel wrote outside buffer y \(canary after its end: 4 bytes changed, the nearest at y\[4\]\)"
    ):
        references(session).reference(plan)


def test_what_an_earlier_kernel_left_in_scratch_makes_no_other_right(session: Session) -> None:
    bench = Bench(session, {}, {"y": np.full(4, 7)}, Rules(), Limits(), lambda *_: None)
    buffers = {name: Buffer(name, "int", (4,), (4,), access) for name, access in (("y", "out"), ("s", "scratch"))}
    launch = Launch("k", (4,), (4,), ("y", "s"))

    def first_run(body: str) -> None:
        source = f"kernel void k(global int *y, global int *s) {{ int i = get_global_id(0); {body}; }}"
        bench.verify_first(bench.build(Plan(source, (), (launch,), buffers, {"y": Tolerance()})), 60.0)

    first_run("s[i] = 7; y[i] = s[i]")
    with pytest.raises(Fault, match="4 of 4 values of y are wrong"):
        first_run("y[i] = s[i]")


def test_what_lies_in_local_memory_makes_no_kernel_right(session: Session) -> None:
    """PoCL's local memory is zero at first; a GPU's holds what an earlier run has left."""
    bench = Bench(session, {}, {"y": np.zeros(4096)}, Rules(), Limits(), lambda *_: None)
    source = "kernel void k(global int *y, local int *t) { y[get_global_id(0)] = t[get_local_id(0)]; }"
    arguments = {"y": Buffer("y", "int", (4096,), (4096,), "out"), "t": Local("t", "int", 64)}
    plan = Plan(source, (), (Launch("k", (4096,), (64,), ("y", "t")),), arguments, {"y": Tolerance()})
    runs = (bench.verify_first(bench.build(plan), 60.0) for _ in range(50))  # a CPU's thread may sleep through some
    with pytest.raises(Fault, match="of 4096 values of y are wrong"):
        list(runs)


def test_a_run_follows_at_once_on_the_filling_of_local_memory(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle GPU turns to other processes, whose kernels leave zeros there."""
    done: list[str] = []

    def noting(name: str) -> Callable[..., Any]:
        method = getattr(session, name)
        return lambda *given: (done.append(name), method(*given))[1]

    for name in ("finish", "fill", "launch"):
        monkeypatch.setattr(session, name, noting(name))
    monkeypatch.setattr("autotune.bench.launcher.spoiler", lambda _: lambda *_: done.append("spoil"))
    bench = Bench(session, {}, {"y": np.full(64, 7)}, Rules(), Limits(), lambda *_: None)
    source = "kernel void k(global int *y, local int *t) { int i = get_local_id(0); t[i] = 7; y[i] = t[i]; }"
    arguments = {"y": Buffer("y", "int", (64,), (64,), "out"), "t": Local("t", "int", 64)}
    built = bench.build(Plan(source, (), (Launch("k", (64,), (64,), ("y", "t")),), arguments, {"y": Tolerance()}))
    bench.verify_first(built, 60.0)
    bench.launcher.on_zeros(built, ["y"], 60.0)
    bench.launcher.repeat(built, 2, 1e9, poison=True)
    bench.launcher.enqueue(built)
    bench.launcher.finish()
    followed = [after for name, after in itertools.pairwise(done) if name == "spoil"]
    assert followed == ["launch"] * 4


def test_a_device_that_cannot_fill_local_memory_is_asked_once_and_refuses_nothing(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refused(session: Session) -> None:
        asked.append(session)
        raise BackendError("clBuildProgram failed")

    monkeypatch.setattr("autotune.bench.launcher.spoiler", refused)
    bench = Bench(session, {}, {"y": np.full(64, 7)}, Rules(), Limits(), lambda *_: None)
    source = "kernel void k(global int *y, local int *t) { int i = get_local_id(0); t[i] = 7; y[i] = t[i]; }"
    arguments = {"y": Buffer("y", "int", (64,), (64,), "out"), "t": Local("t", "int", 64)}
    plan = Plan(source, (), (Launch("k", (64,), (64,), ("y", "t")),), arguments, {"y": Tolerance()})
    for _ in range(2):
        bench.verify_first(bench.build(plan), 60.0)
    assert len(asked) == 1


EXTREMES = """
kernel void k(global const TYPE *x, global TYPE *y, global TYPE *mine, local TYPE *ours) {
    int i = get_global_id(0), l = get_local_id(0);
    if (i >= 0 && i < 64) { BODY; }
}
"""
UNWRITTEN = {
    "output": "y[i] = BEST(y[i], x[i])",
    "scratch": "mine[i] = BEST(mine[i], x[i]); y[i] = mine[i]",
    "local": "ours[l] = BEST(ours[l], x[i]); y[i] = ours[l]",
    "beyond": "y[i] = BEST(x[i], i == 63 ? x[64] : x[i])",
}


@pytest.mark.parametrize("best", ["min", "max"])
@pytest.mark.parametrize(
    ("kind", "where"), [*(("float", where) for where in UNWRITTEN), ("int", "output"), ("uint", "output")]
)
def test_the_least_or_largest_of_what_nobody_wrote_is_not_right(
    session: Session, kind: str, where: str, best: str
) -> None:
    """The larger of a NaN and a number is the number, and so is the smaller of a NaN and a large number."""
    x = np.linspace(1, 100, 64).astype(numpy_type(kind)[0])
    buffers = [
        Buffer(name, kind, (64,), (64,), access) for name, access in (("x", "in"), ("y", "out"), ("mine", "scratch"))
    ]
    arguments = {**{one.name: one for one in buffers}, "ours": Local("ours", kind, 16)}
    function = f"f{best}" if kind == "float" else best
    source = EXTREMES.replace("BODY", UNWRITTEN[where]).replace("BEST", function).replace("TYPE", kind)
    launch = Launch("k", (64,), (16,), ("x", "y", "mine", "ours"))
    plan = Plan(source, (), (launch,), arguments, {"y": Tolerance()})
    bench = Bench(session, {"x": x}, {"y": x}, Rules(), Limits(), lambda *_: None)
    tries = 20 if where == "local" else 2  # a CPU's thread may sleep through what fills local memory; guards take turns
    outcomes = [bench.run(plan, None).outcome for _ in range(tries)]
    assert Outcome.WRONG_RESULT in outcomes
    assert where == "local" or set(outcomes) == {Outcome.WRONG_RESULT}


@pytest.mark.parametrize("kind", [*SCALARS, "half"])
def test_words_are_less_and_larger_than_what_is_computed_and_told_apart(kind: str) -> None:
    dtype = numpy_type(kind)[0]
    for words in (spoilt(kind), beyond(kind)):
        first = [np.array([word, word], np.uint32).view(dtype)[0] for word in words]
        least, most = -100 if dtype.kind in "if" else 1, 100
        assert any(one <= least for one in first)
        assert any(one >= most for one in first)
        if dtype.kind == "f" and words == spoilt(kind):
            assert any(np.finfo(dtype).max / 2 < one for one in first)  # sums and counts are large
            assert any(one + dtype.type(0.5) != one for one in first)
        assert len(set(words)) == 3
        assert kind == "double" or {0, 1}.intersection(first)  # as data may be
    assert spoilt(kind)[0] != beyond(kind)[0]
    assert POISON not in spoilt(kind)[1:]  # what a reference leaves looks otherwise in its other runs


def test_what_differs_from_run_to_run_by_itself_is_no_fault_of_a_reference(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = iter(range(100))
    monkeypatch.setattr(reference, "contents", lambda *of: contents(*of) + next(turns))
    source = "kernel void one(global int *y) { y[get_global_id(0)] = 7; }"
    out = Buffer("y", "int", (4,), (4,), "out")
    plan = Plan(source, (), (Launch("one", (4,), (4,), ("y",)),), {"y": out}, {"y": Tolerance()})
    assert references(session).reference(plan)["y"].tolist() == [7, 7, 7, 7]
    assert next(turns) == 4


@pytest.mark.parametrize(("absolute", "refused"), [(1e-5, False), (1e-7, True)])
def test_sums_in_another_order_differ_by_no_more_than_results_may(
    session: Session, monkeypatch: pytest.MonkeyPatch, absolute: float, refused: bool
) -> None:
    turns = iter([0, 1e-6, 0, 0])  # of the two runs with the same memory none differs, by chance
    monkeypatch.setattr(reference, "contents", lambda *of: contents(*of) + np.float32(next(turns)))
    source = "kernel void one(global float *y) { y[get_global_id(0)] = 1; }"
    out = Buffer("y", "float", (4,), (4,), "out")
    plan = Plan(source, (), (Launch("one", (4,), (4,), ("y",)),), {"y": out}, {"y": Tolerance(0.0, absolute)})
    with pytest.raises(Fault, match="was in memory") if refused else nullcontext():
        references(session).reference(plan)


def test_nans_of_a_reference_are_said_but_for_poison() -> None:
    some = np.array([[1, 2], [np.nan, np.nan]], np.float32)
    known = {"whole": np.zeros(2, np.int32), "none": np.zeros(0, np.float32), "fine": np.full(2, np.inf), "some": some}
    known["padded"] = np.array([[1, 2, 3, np.nan]], np.float32)
    plan = plan_of(Buffer("padded", "float3", (1,), (1,), "out"))
    said = "the reference gives NaN for 2 of 4 values of some, first some[1, 0]: "
    assert not_numbers(plan, known).startswith(said)
    some.view(np.uint32)[1] = POISON
    assert not not_numbers(plan, known)


@pytest.fixture(scope="module")
def run(session: Session) -> Callable[[Plan], Report]:
    return runner(session)


@pytest.mark.parametrize("cache", ["warm", "cold"])
def test_launches_in_order_with_a_zeroed_buffer_and_local_memory(
    run: Callable[[Plan], Report], session: Session, monkeypatch: pytest.MonkeyPatch, cache: str
) -> None:
    monkeypatch.setattr(session, "cache", 2**20)  # a server's last level takes seconds to clear
    report = run(sum_plan(cache=cache))
    assert report.outcome is Outcome.OK, report.reason  # a busy machine gives a reason: the times drifted
    assert report.measurement.cache == cache
    assert report.busy_s > 0


def test_a_cold_cache_is_not_at_the_expense_of_the_runs(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, float]] = []
    begun: list[str] = []

    def watched(session: Session) -> Callable[[], None]:
        begun.append(told[-1][0])
        return flusher(session)

    monkeypatch.setattr(session, "cache", 2**20)
    monkeypatch.setattr("autotune.bench.launcher.flusher", watched)
    rules, data = Rules(maximum=5, most=5), {"a": np.arange(64, dtype=np.int32)}
    bench = Bench(session, data, {}, rules, Limits(floor_s=0.0), lambda *phase: told.append(phase))
    built = bench.build(sum_plan(cache="cold"))
    assert begun == ["build"]
    monkeypatch.setattr(bench.launcher, "flush_s", 3.0)
    bench.launcher.once(built, 60.0)
    bench.launcher.repeat(built, 2, 0.0, poison=False)
    assert told[-1][0] == "time"
    assert told[-1][1] >= 20 * 2 * 3.0


def test_of_a_cold_cache_as_many_samples_are_taken_as_its_flushes_allow(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "cache", 2**20)
    rules, data = Rules(target=0.0, trial_target=0.0, budget_s=2.0), {"a": np.arange(64, dtype=np.int32)}
    bench = Bench(session, data, {"out": np.array([2 * 3 * 2016])}, rules, Limits(), lambda name, limit_s: None)
    for flush_s, samples in ((0.3, 6), (9.0, rules.minimum), (0.001, rules.maximum)):
        monkeypatch.setattr(bench.launcher, "flush_s", flush_s)
        timed = bench.run(sum_plan(cache="cold"), None).measurement
        assert timed is not None
        assert len(timed.samples_ns) == samples


@pytest.mark.parametrize(("length", "samples"), [(10**12, 5), (0, 5)])
def test_a_turn_of_a_finalist_gives_one_sample(
    session: Session, monkeypatch: pytest.MonkeyPatch, length: int, samples: int
) -> None:
    monkeypatch.setattr(finals, "LONG_NS", length)
    rules = Rules(maximum=5, most=5, least_s=0.0, target=0.0)
    bench = Bench(session, {"a": np.arange(64, dtype=np.int32)}, {}, rules, Limits(), lambda name, limit_s: None)
    (found,) = retime(bench, [sum_plan()], None, budget_s=60.0)
    assert isinstance(found, Measurement)
    assert len(found.samples_ns) == samples


def test_a_plan_after_a_fault_in_the_middle_of_the_first_is_right(session: Session) -> None:
    run = runner(session)
    add, twice = sum_plan().launches
    spoils = SUM.replace("global const int *a", "global int *a").replace("int sum = 0;", "int sum = 0; a[5] = 77;")
    refused = spoils.replace("kernel void twice", "__attribute__((reqd_work_group_size(1, 2, 1))) kernel void twice")
    launches = (add, Launch("twice", (2,), (2,), twice.arguments))
    refusal = run(sum_plan(source=refused, launches=launches))
    assert refusal.outcome is Outcome.LAUNCH_ERROR
    assert "twice: clEnqueueNDRangeKernel failed: CL_INVALID_WORK_GROUP_SIZE (-54), the device does" in refusal.reason
    report = run(sum_plan())
    assert report.outcome is Outcome.OK, report.reason


@pytest.mark.parametrize(
    ("access", "spoilt", "reason"),
    [
        (
            "out",
            "out",
            "right in a second run, wrong in the run before: 1 of 1 values of out are wrong; first out[0] = 9",
        ),
        ("out", "a", ""),  # by an earlier kernel: no fault of this one
        ("out", "expected", ""),
        ("inout", "out", ""),  # what it is put back to may have been spoilt
    ],
)
def test_a_first_run_that_is_wrong_is_forgiven_where_an_earlier_kernel_may_be_at_fault(
    session: Session, monkeypatch: pytest.MonkeyPatch, access: str, spoilt: str, reason: str
) -> None:
    source = "kernel void k(global const int *a, global int *out) { out[0] = a[0]; }"
    names = {"a": "in", "out": access}
    buffers = {name: Buffer(name, "int", (1,), (1,), way) for name, way in names.items()}
    plan = Plan(source, (), (Launch("k", (1,), (1,), tuple(names)),), buffers, {"out": Tolerance()})
    bench = Bench(
        session, {"a": np.int32([5]), "out": np.int32([1])}, {"out": np.array([5])}, Rules(), Limits(), lambda *_: None
    )
    assert bench.run(plan, None).outcome is Outcome.OK
    built = bench.build(plan)
    once, nine, turns = bench.launcher.once, np.int32([9]), itertools.count()
    buffer = {guarded.buffer.name: (guarded.whole, guarded.start) for guarded in built.buffers}

    def disturbed(built: Any, limit_s: float) -> int:
        first = next(turns) == 0
        if first and spoilt == "a":
            session.write(buffer["a"][0], nine, buffer["a"][1])
        ns = once(built, limit_s)
        if first and spoilt == "out":
            session.write(buffer["out"][0], nine, buffer["out"][1])
        return ns

    if spoilt == "expected":
        (memory,) = bench._checker._looks._references.values()  # type: ignore[attr-defined]
        session.write(memory, nine)
    monkeypatch.setattr(bench.launcher, "once", disturbed)
    report = bench.run(plan, None)
    assert report.reason.startswith(reason)
    assert report.outcome is (Outcome.WRONG_RESULT if reason else Outcome.OK)
    assert next(turns) == 2


@pytest.mark.parametrize(("understates", "outcome"), [(True, Outcome.OK), (False, Outcome.LAUNCH_ERROR)])
def test_a_work_group_limit_is_believed_unless_the_driver_understates_it(
    session: Session, monkeypatch: pytest.MonkeyPatch, understates: bool, outcome: Outcome
) -> None:
    run = runner(session)
    monkeypatch.setattr(OpenCLProgram, "limits", lambda *_: KernelLimits(0, 8, 0, 0))
    monkeypatch.setattr(session, "traits", replace(session.traits, understates_limits=understates, local_memory=2**17))
    report = run(sum_plan(options=("-DUNSEEN",)))
    assert report.outcome is outcome
    assert is_too_large(report.reason) is (not understates)


def test_the_devices_own_limit_holds_where_the_driver_understates_that_of_kernels(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runner(session)
    monkeypatch.setattr(session, "traits", replace(session.traits, understates_limits=True, local_memory=2**17))
    monkeypatch.setattr(session, "info", replace(session.info, max_work_group_size=8))
    report = run(sum_plan(options=("-DUNSEEN",)))
    assert (report.outcome, report.reason) == (
        Outcome.LAUNCH_ERROR,
        "work-group of 16 is too large: add allows 8 here",
    )


ONCE = """
kernel void once(global int *seen, global int *out) {
    if (seen[0] == 7) return;
    out[0] = 5;
    seen[0] = 7;
}
"""


LAZY = "kernel void lazy(global TYPE *out) { size_t i = get_global_id(0); if (i % 4 != LEFT) out[i] = VALUE; }"


@pytest.mark.parametrize("turn", [0, 1])
@pytest.mark.parametrize(
    ("kind", "left"), [*(("uchar", left) for left in range(4)), ("char", 3), ("short", 0), ("short", 1), ("float", 2)]
)
def test_what_is_never_written_is_not_right_by_chance(session: Session, kind: str, left: int, turn: int) -> None:
    """It would be if outputs were filled with the same word before every run: 255 in pixels, 32767 in samples."""
    value = np.array([spoilt(kind)[turn]] * 4, np.uint32).view(numpy_type(kind)[0])[left]
    out = Buffer("out", kind, (64,), (64,), "out")
    source = f"#define TYPE {kind}\n#define LEFT {left}\n#define VALUE {value if np.isfinite(value) else 0}\n{LAZY}"
    plan = Plan(source, (), (Launch("lazy", (64,), (64,), ("out",)),), {"out": out}, {"out": Tolerance()})
    expected = np.where(np.arange(64) % 4 == left, value, value if np.isfinite(value) else 0).astype(value.dtype)
    report = Bench(session, {}, {"out": expected}, Rules(), Limits(), lambda *_: None).run(plan, None)
    assert report.outcome is Outcome.WRONG_RESULT
    assert "never written?" in report.reason


@pytest.mark.parametrize("kind", ["int", "uchar"])
def test_what_a_reference_leaves_unwritten_may_be_left_so(session: Session, kind: str) -> None:
    dtype = numpy_type(kind)[0]
    out = Buffer("out", kind, (64,), (64,), "out")
    lazy = LAZY.replace("i % 4", "i / 4 % 4")  # whole words, of whatever type
    source = f"#define TYPE {kind}\n#define LEFT 1\n#define VALUE 7\n{lazy}"
    plan = Plan(source, (), (Launch("lazy", (64,), (64,), ("out",)),), {"out": out}, {"out": Tolerance()})
    poison = np.full(16 * dtype.itemsize, POISON, np.uint32).view(dtype)
    expected = np.where(np.arange(64) // 4 % 4 == 1, poison, dtype.type(7))
    bench = Bench(session, {}, {"out": expected}, Rules(), Limits(), lambda *_: None, marked=True)
    report = bench.run(plan, None)
    assert report.outcome is Outcome.OK, report.reason
    report = bench.run(replace(plan, source=source.replace("!= LEFT", "!= 9")), None)
    assert report.outcome is Outcome.WRONG_RESULT
    assert f"first out[4] = 7, expected {poison[4]}, as the reference writes nothing there" in report.reason


def test_what_a_kernel_may_take_for_zeros_is_told_if_it_crashes() -> None:
    buffers = [
        Buffer(name, kind, (4,), (4,), access)
        for name, kind, access in (
            ("count", "uint", "out"), ("y", "float", "out"), ("x", "int", "in"), ("heads", "int", "scratch"),
            ("next", "float", "scratch"), ("tagged", TAGGED, "out"),
        )
    ]  # fmt: skip
    assert holds_anything(Mock(buffers=[Mock(buffer=buffer) for buffer in buffers])) == [
        'heads and next hold any values before a run: to start with zeros, write access = "zeroed"',
        "count and tagged hold any values before a run: to start with zeros, "
        'write access = "inout" with data = { distribution = "constant", value = 0 }',
    ]


def test_a_kernel_that_writes_once_and_never_again_is_wrong(session: Session) -> None:
    seen, out = Buffer("seen", "int", (1,), (1,), "scratch"), Buffer("out", "int", (1,), (1,), "out")
    launch = Launch("once", (1,), (1,), ("seen", "out"))
    plan = Plan(ONCE, (), (launch,), {"seen": seen, "out": out}, {"out": Tolerance()})
    bench = Bench(session, {}, {"out": np.array([5])}, Rules(), Limits(), lambda *_: None)
    report = bench.run(plan, None)
    assert report.outcome is Outcome.WRONG_RESULT
    assert "right at first, wrong after the timed runs" in report.reason
    assert "never written" in report.reason
    (found,) = retime(bench, [plan], None, 0.0)
    assert isinstance(found, Report)
    assert found.outcome is Outcome.WRONG_RESULT


@pytest.mark.parametrize(
    ("body", "marked", "keeps"),
    [
        ("if (mine[i] != 42) mine[i + 64] = x[i]; mine[i] = 42; y[i] = mine[i + 64]", False, True),
        ("if (mine[i] != 42) also[i] = x[i]; mine[i] = 42; y[i] = also[i]", False, True),  # what is set elsewhere
        ("if (!(y[i] >= 1 && y[i] < 2)) y[i] = x[i]", False, True),
        ("mine[i] = x[i]; y[i] = mine[i]", False, False),
        ("if (i != 5) y[i] = x[i]", True, False),  # as the reference leaves it
    ],
)
def test_a_finalist_that_takes_an_earlier_runs_results_for_its_own_is_wrong(
    session: Session, body: str, marked: bool, keeps: bool
) -> None:
    source = (
        "kernel void k(global const float *x, global float *mine, global float *also, global float *y) "
        f"{{ int i = get_global_id(0); {body}; }}"
    )
    names = {"x": "in", "mine": "scratch", "also": "scratch", "y": "out"}
    buffers = {name: Buffer(name, "float", (extent := 128 if name == "mine" else 64,), (extent,), access)
               for name, access in names.items()}  # fmt: skip
    plan = Plan(source, (), (Launch("k", (64,), (64,), tuple(names)),), buffers, {"y": Tolerance()})
    x = np.linspace(1, 1.9, 64).astype(np.float32)
    expected = x.copy()
    if marked:
        expected.view(np.uint32)[5] = POISON
    bench = Bench(session, {"x": x}, {"y": expected}, Rules(most=5), Limits(), lambda *_: None, marked=marked)
    assert bench.run(plan, None).outcome is Outcome.OK
    (found,) = retime(bench, [plan], None, 5.0)
    assert isinstance(found, Report) == keeps
    if isinstance(found, Report):
        assert found.outcome is Outcome.WRONG_RESULT
        assert found.reason.startswith("wrong if outputs or scratch hold other values before a run: it")


@pytest.mark.parametrize("value", ["x[i]", "i < 60 ? (mine[i] = x[i]) : mine[i]"])
def test_a_finalist_that_takes_what_nobody_wrote_for_data_is_wrong(session: Session, value: str) -> None:
    source = (
        "kernel void bins(global const int *x, global int *mine, global int *count) "
        f"{{ int i = get_global_id(0), v = {value}; if (v >= 0 && v < 4) atomic_inc(count + v); }}"
    )
    x, count = Buffer("x", "int", (60,), (60,), "in"), Buffer("count", "int", (4,), (4,), "inout")
    arguments = {"x": x, "mine": Buffer("mine", "int", (64,), (64,), "scratch"), "count": count}
    plan = Plan(source, (), (Launch("bins", (64,), (64,), tuple(arguments)),), arguments, {"count": Tolerance()})
    inputs = {"x": np.arange(60, dtype=np.int32) % 4, "count": np.zeros(4, np.int32)}
    expected = {"count": np.full(4, 15, np.int32)}
    bench = Bench(session, inputs, expected, Rules(most=5), Limits(), lambda *_: None)
    assert bench.run(plan, None).outcome is Outcome.OK  # what lies there is out of range
    (found,) = retime(bench, [plan], None, 5.0)
    assert isinstance(found, Report)
    assert found.outcome is Outcome.WRONG_RESULT


def test_who_is_slow_in_its_first_run_alone_is_run_on_leftovers_too() -> None:
    bench = Mock()
    bench.check_disturbed.return_value = Verdict("wrong")
    finalist = Finalist(0, plan_of(), visits=[(1000, 1000, 10**10)], first_ns=10**10)
    finals.Finals(bench, Rules()).verify([finalist], monotonic() + 20)
    assert finalist.failure is not None


FLAKY = """
kernel void flaky(global uint *seen, global int *out) {
    uint run = seen[0]++ - 0x7FFFA5A5u;  /* what scratch is filled with before the first run */
    if (run % EVERY == EVERY - 1) WRONG;
    out[0] = 5;
}
"""


def flaky_plan(every: int, wrong: str) -> Plan:
    seen, out = Buffer("seen", "uint", (1,), (1,), "scratch"), Buffer("out", "int", (1,), (1,), "out")
    launch = Launch("flaky", (1,), (1,), ("seen", "out"))
    options = (f"-DEVERY={every}", f"-DWRONG={wrong}")
    return Plan(FLAKY, options, (launch,), {"seen": seen, "out": out}, {"out": Tolerance()})


@pytest.mark.parametrize("every", [20, 100])
@pytest.mark.parametrize("wrong", ["{out[0]=4;return;}", "return"])  # the other leaves what an earlier run wrote
def test_a_finalist_that_is_wrong_now_and_then_is_caught(session: Session, every: int, wrong: str) -> None:
    rules = Rules(maximum=5, most=5, least_s=0.0)  # most runs are verified one after another: none is passed over
    bench = Bench(session, {}, {"out": np.array([5])}, rules, Limits(), lambda *_: None)
    bench.contention = lambda: 0.0  # turns on a busy machine would take their place
    (flaky,) = retime(bench, [flaky_plan(every, wrong)], None, budget_s=60.0)
    assert isinstance(flaky, Report)
    assert flaky.outcome is Outcome.WRONG_RESULT
    assert re.search("wrong now and then|wrong when timed again|it relies on them, or has a race", flaky.reason)


def test_a_finalist_has_been_right_before_it_is_wrong_in_its_first_run_again(session: Session) -> None:
    bench = Bench(session, {}, {"out": np.array([6])}, Rules(), Limits(), lambda *_: None)
    (found,) = retime(bench, [flaky_plan(10**6, "return")], None, 0.0)
    assert isinstance(found, Report)
    assert found.reason.startswith(
        "right at first, wrong when run again: 1 of 1 values of out are wrong; first out[0] = 5"
    )


def test_a_sound_finalist_stands_three_hundred_verified_runs(session: Session) -> None:
    rules = Rules(maximum=5, most=5, least_s=0.0, target=0.0)
    bench = Bench(session, {}, {"out": np.array([5])}, rules, Limits(), lambda *_: None)
    (sound,) = retime(bench, [flaky_plan(10**6, "return")], None, budget_s=60.0)
    assert isinstance(sound, Measurement)
    assert sound.verified_runs == 300


def test_what_is_large_is_filled_once_by_each_word_however_many_series_there_are(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finals, "_SERIES_S", 0.0)
    monkeypatch.setattr(finals, "_VERIFIED_RUNS", 30)
    rules = Rules(maximum=5, most=5, least_s=0.0, target=0.0)
    bench, turns = Bench(session, {}, {"out": np.array([5])}, rules, Limits(), lambda *_: None), list[int]()
    monkeypatch.setattr(
        bench.launcher, "respoil", lambda built, turn=None: turns.append(turn) if turn is not None else None
    )
    retime(bench, [flaky_plan(10**6, "return")], None, budget_s=60.0)
    assert sorted(turns) == [0, 1, 2]


def test_a_series_of_verified_runs_names_what_was_wrong_in_it(session: Session) -> None:
    arena, checker = Arena(session, {}), Checker(session, {"out": np.array([5, 6], np.int32)})
    (guarded,) = arena.prepare(plan_of(Buffer("out", "int", (2,), (2,), "out")))
    checker.prepare([guarded])
    written = iter([[5, 6], [5, 7], [5, 6]])

    def run() -> None:
        session.write(guarded.whole, np.array(next(written), np.int32), guarded.start)

    verdict = checker.check([guarded], {"out": Tolerance()}, run=run, runs=3)
    assert verdict.reason == "wrong now and then: 1 values of out in 3 runs; first out[1], expected 6"


def test_without_time_for_more_a_finalist_is_verified_once_a_turn(session: Session) -> None:
    bench = Bench(session, {}, {"out": np.array([5])}, Rules(), Limits(), lambda *_: None)
    (found,) = retime(bench, [flaky_plan(10**6, "return")], None, budget_s=0.0)
    assert isinstance(found, Measurement)
    assert found.verified_runs == 1 + 3  # the first run, and the last of each turn


def test_a_device_lost_while_a_buffer_is_restored_is_told_with_the_plan_at_work(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(session, {"a": np.arange(64, dtype=np.int32)}, {}, Rules(), Limits(), lambda *_: None)
    restore, count = Arena.restore, itertools.count()

    def failing(arena: Arena, guarded: Guarded) -> None:
        if next(count) == 3:  # a, total and out of the first plan are restored, then a of the second
            raise BackendError("clEnqueueFillBuffer failed: CL_OUT_OF_RESOURCES (-5)")
        restore(arena, guarded)

    monkeypatch.setattr(Arena, "restore", failing)
    with pytest.raises(Fault, match=r"the device gave up .* CL_OUT_OF_RESOURCES") as caught:
        retime(bench, [sum_plan(), sum_plan(cache="cold")], None, 0.0)
    assert (caught.value.fatal, caught.value.outcome, bench.place) == (True, Outcome.CRASH, 1)


def test_what_may_be_amiss_with_a_plan_is_told_where_the_device_gives_up(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(session, {"a": np.arange(64, dtype=np.int32)}, {}, Rules(), Limits(), lambda *_: None)
    monkeypatch.setattr("autotune.bench.trial.check_signatures", lambda *_: ["add takes a as `global int *`"])

    def lost() -> None:
        raise BackendError("clFinish failed: CL_INVALID_COMMAND_QUEUE (-36)")

    monkeypatch.setattr(session, "finish", lost)
    report = bench.run(sum_plan(), None)
    assert (report.outcome, report.fatal) == (Outcome.CRASH, True)
    assert "CL_INVALID_COMMAND_QUEUE (-36); add takes a as `global int *`" in report.reason


@pytest.mark.processor  # NVIDIA's driver takes more than it reports
def test_limits_are_known_before_the_launch(run: Callable[[Plan], Report]) -> None:
    arguments = sum_plan().arguments
    local = run(sum_plan(arguments={**arguments, "shared": Local("shared", "int", 10**8)}))
    assert local.outcome is Outcome.LAUNCH_ERROR
    assert local.reason.startswith("add needs 400000000 bytes of local memory, the device has")
    stated = run(sum_plan(local_memory=32))
    assert stated.reason == "add needs 64 bytes of local memory, the device has 32"
    group = run(sum_plan(launches=(Launch("add", (10**6,), (10**6,), sum_plan().launches[0].arguments),)))
    assert group.outcome is Outcome.LAUNCH_ERROR
    assert group.reason.startswith("work-group of 1000000 is too large: add allows ")
    missing = run(sum_plan(launches=(Launch("nobody", (1,), None, ()),)))
    assert missing.outcome is Outcome.COMPILE_ERROR
    assert missing.reason == "no kernel 'nobody': the program has add, twice"
    assert run(sum_plan()).outcome is Outcome.OK


def test_a_builder_names_the_arguments_that_a_launch_lacks(session: Session) -> None:
    launch = Launch("twice", (1,), None, ("total",))
    with pytest.raises(Fault, match=r"twice takes 2 arguments \(total, out\), launch 1 gives 1 \(total\)"):
        compile_plan(session, sum_plan(launches=(launch,)))


def test_arguments_that_the_kernel_does_not_take_are_named(run: Callable[[Plan], Report]) -> None:
    add, twice = sum_plan().launches
    few = run(sum_plan(launches=(add, Launch("twice", (1,), None, ("total",)))))
    assert (few.outcome, few.reason) == (
        Outcome.COMPILE_ERROR,
        "twice takes 2 arguments (total, out), launch 2 gives 1 (total)",
    )
    swapped = run(sum_plan(launches=(Launch("add", (64,), (16,), ("a", "scale", "total", "shared")), twice)))
    assert swapped.outcome is Outcome.COMPILE_ERROR
    assert swapped.reason == "add takes its arguments in the order a, total, scale, shared"


def test_a_sum_that_is_not_zeroed_is_wrong_after_the_timed_runs(run: Callable[[Plan], Report]) -> None:
    scratch = {name: Buffer(name, "int", (1,), (1,), "scratch") for name in ("spare", "total")}
    report = run(sum_plan(arguments={**sum_plan().arguments, **scratch}))
    assert report.outcome is Outcome.WRONG_RESULT
    assert report.reason.endswith(
        '; right only with zeros in total before a run: if intended, write access = "zeroed" for total'
    )


@pytest.mark.parametrize(
    ("needed", "marked", "said"),
    [
        ({"y"}, False, 'access = "inout" with data = { distribution = "constant", value = 0 } for y'),
        ({"y"}, True, ""),  # zeros are no mark
        ({"s", "y"}, False, "right only with zeros in s and y before"),
        ({"other"}, False, ""),
    ],
)
def test_what_is_right_with_zeros_says_where_they_have_to_be(needed: set[str], marked: bool, said: str) -> None:
    buffers = [Mock(buffer=Buffer(name, "int", (1,), (1,), access))
               for name, access in {"x": "in", "s": "scratch", "y": "out", "z": "zeroed"}.items()]  # fmt: skip
    told = cure_by_zeros(Mock(buffers=buffers), needed.issubset, marked=marked)
    assert said in told
    assert bool(told) == bool(said)
