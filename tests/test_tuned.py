"""Kernels that a program calls: what they compute, what they refuse, where they come from, when they change."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytest
from pyopencl.tools import ImmediateAllocator, MemoryPool, SVMAllocator

import autotune
from autotune.api import TunedKernel, binaries, questions, ready
from autotune.api import kernel as kernels
from autotune.api.arguments import ScalarSlot
from autotune.devices import Step, attach, drivers, find_device, opencl_guest
from autotune.devices.opencl_session import OpenCLSession
from autotune.errors import AutotuneError, DeviceError, SetupError, UsageError
from autotune.lookup import Match
from autotune.model import Measurement, Outcome, Trial
from autotune.store import Store
from autotune.study import Problem, Scalar, Study, numpy_type
from autotune.tuner import Budget, Request
from tests.stored import put
from tests.studies import study

pytestmark = pytest.mark.device

TWICE = """
kernel void first(global const T4 *x, global T4 *part, global int *count, local T4 *room, int shift) {
    int i = get_global_id(0), at = get_local_id(0);
    room[at] = x[i] + (T4)(shift);
    barrier(CLK_LOCAL_MEM_FENCE);
    part[i] = room[at];
    atomic_inc(count);
}
kernel void second(global const T4 *part, global const int *count, global T4 *y, float4 factor, int rounds) {
    int i = get_global_id(0);
    T4 sum = 0;
    for (int turn = 0; turn < rounds; ++turn) sum += part[i];
    y[i] = sum / rounds * count[0] * factor;
}
"""


def twice() -> Study:
    """Two launches with scratch, zeroed and local memory between them, a vector type, and all kinds of scalars."""
    return Study(
        name="twice",
        source=TWICE,
        sizes={"N": 64},
        choices={"T": ["float"]},
        parameters={"WG": {"values": [8, 16]}},
        defines={"T4": "'float4'"},
        arguments={
            "x": {"type": "float4", "shape": ["N"], "access": "in"},
            "y": {"type": "float4", "shape": ["N"], "access": "out"},
            "part": {"type": "float4", "shape": ["N * WG"], "access": "scratch"},
            "count": {"type": "int", "shape": [1], "access": "zeroed"},
            "room": {"type": "float4", "local": "WG"},
            "shift": {"type": "int", "value": "N // 64"},
            "factor": {"type": "float4", "value": 2},
            "rounds": {"type": "int", "value": 1},
        },
        launch=[
            {"entry": "first", "global": ["N"], "local": ["WG"], "arguments": ["x", "part", "count", "room", "shift"]},
            {"entry": "second", "global": ["N"], "arguments": ["part", "count", "y", "factor", "rounds"]},
        ],
        reference=lambda x, **_: {"y": (x + 1) * 128},
    )  # fmt: skip


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has not asked for anything yet, with its own folders."""
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "a.db"))
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "cache"))
    for kept in (questions._kernels, questions._studies, ready._programs):
        kept.clear()


@pytest.fixture(scope="module")
def queue() -> cl.CommandQueue:
    return cl.CommandQueue(context())


_CONTEXTS: list[cl.Context] = []
"""The contexts of queues: for Intel's driver a context is gone once the program releases it, whatever else holds it."""


def context() -> cl.Context:
    info = find_device(None)
    _CONTEXTS.append(cl.Context([[d for p in cl.get_platforms() for d in p.get_devices()][info.index]]))
    return _CONTEXTS[-1]


def unordered() -> cl.CommandQueue:
    return cl.CommandQueue(context(), properties=cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE)


def quiet(*arguments: Any, **options: Any) -> TunedKernel:
    """`tuned`, without its warning that nothing is stored."""
    with warnings.catch_warnings(action="ignore"):
        return autotune.tuned(*arguments, **options)


def vectors(queue: cl.CommandQueue, n: int = 1000, seed: int = 1) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    return tuple(cla.to_device(queue, random.random(n, dtype=np.float32)) for _ in range(2))


def store_best(tuned: Study, configuration: dict[str, Any], time_ns: int = 1000, **size: int) -> None:
    problem = Problem(tuned, size, None, find_device(None))
    trial = Trial(configuration, Outcome.OK, measurement=Measurement((time_ns,) * 6))
    with Store.open() as store:
        put(store, [trial], key=problem.key, device=problem.device)


def test_a_kernel_computes_what_its_study_says(queue: cl.CommandQueue) -> None:
    with pytest.warns(UserWarning, match="nothing is stored for saxpy on .* with its defaults") as warned:
        saxpy = autotune.tuned(study(), N=900)
    assert warned[0].filename == __file__
    assert saxpy.match is Match.DEFAULT
    x, y = vectors(queue, 900)
    expected = 2.5 * x.get() + y.get()
    saxpy(queue, x=x, y=y).wait()
    assert np.allclose(y.get(), expected)


def test_scalars_of_the_study_are_defaults(queue: cl.CommandQueue) -> None:
    saxpy = quiet(study())
    x, y = vectors(queue)
    for alpha, expected in ((4, 4 * x.get() + y.get()), (np.float64(0.5), 4.5 * x.get() + y.get())):
        saxpy(queue, x=x, y=y, alpha=alpha).wait()
        assert np.allclose(y.get(), expected)
    expected = 2.5 * x.get() + y.get()
    saxpy(queue, x=x, y=y).wait()
    assert np.allclose(y.get(), expected)


@pytest.mark.parametrize("make", [lambda: cl.CommandQueue(context()), unordered])
def test_scalars_come_and_go_between_calls(make: Any) -> None:
    queue, run = make(), quiet(twice())
    data = np.random.default_rng(1).random((64, 4), dtype=np.float32)
    x, y = cla.to_device(queue, data), cla.zeros(queue, (64, 4), np.float32)
    queue.finish()
    vector = cast("Any", cl.cltypes).make_float4(1, 2, 3, 4)
    factors = [2, 2, vector, np.float64(0.5), None, [1, 2, 3, 4], np.arange(4), None]
    for turn, factor in enumerate(factors):
        given = {} if factor is None else {"factor": factor}
        run(queue, x=x, y=y, rounds=1 + turn // 3, **given).wait()
        components = np.array(factor.tolist() if isinstance(factor, np.ndarray) else 2 if factor is None else factor)
        assert np.allclose(y.get(), (data + 1) * 64 * components), factor


def test_scalars_are_set_together_and_only_where_they_are_others() -> None:
    calls: list[tuple[str, Any]] = []
    kernel = SimpleNamespace(
        set_arg_types=lambda types: None,
        set_arg=lambda place, value: calls.append(("one", (place, value))),
        set_args=lambda *values: calls.append(("all", values)),
    )
    a, b = np.float32(1).tobytes(), np.float32(2).tobytes()
    arguments = opencl_guest._Arguments(Step(kernel, (1,), None, (None, a, np.int32(3)), ((0, "x"), (1, "a"))))
    three = np.int32(3).tobytes()
    for given in (a, b, bytes([*b]), a):
        arguments.give({"x": "memory", "a": given})
    one, every = ("one", (0, "memory")), [("all", ("memory", value, three)) for value in (a, b)]
    assert calls == [one, every[1], one, every[0]]


def test_a_scalar_takes_what_its_type_holds_however_it_is_given() -> None:
    slot = ScalarSlot(Scalar("a", "half", 1))
    fits: list[Any] = [65504, 65504.0, np.float64(65504), np.int32(65504), np.array(65504), np.longdouble(65504)]
    for value in fits:
        assert slot.take(None, value) == np.float16(65504).tobytes()
    beyond: list[Any] = [65520, 65520.0, np.float32(65520), np.array(65520), 10**400]
    for value in (*beyond, "1", None, 1j, np.timedelta64(3, "ns")):
        with pytest.raises(UsageError, match="is not a value of half"):
            slot.take(None, value)
    assert slot.take(None, -0.0) == np.float16(-0.0).tobytes()
    three = ScalarSlot(Scalar("a", "float3", (1.0, 2.0, 3.0, 0.0)))
    for value in ((1, 2, 3), np.arange(1, 4), [1, 2, 3, 0]):
        assert three.take(None, value) == np.array([1, 2, 3, 0], np.float32).tobytes()
    with pytest.raises(UsageError, match=r"is not a value of uint2$"):
        ScalarSlot(Scalar("pair", "uint2", 1)).take(None, [1, 2**33])
    with pytest.raises(UsageError, match="is not a value of float3: 3 numbers, or one for all"):
        three.take(None, (1, 2))
    assert slot.take(None, True) == np.float16(1).tobytes()


@pytest.mark.parametrize("make", [lambda: cl.CommandQueue(context()), unordered])
def test_events_may_come_from_a_generator_that_calls_the_kernel(make: Any) -> None:
    queue, saxpy = make(), quiet(study())
    x, y = vectors(queue)
    expected = 3 * 2.5 * x.get() + y.get()
    queue.finish()
    before = [saxpy(queue, x=x, y=y)]
    after = saxpy(queue, x=x, y=y, wait_for=(saxpy(queue, x=x, y=y, wait_for=before) for _ in range(1)))
    after.wait()
    assert np.allclose(y.get(), expected)
    saxpy(queue, x=x, y=y, wait_for=(event for event in [cl.enqueue_marker(queue)])).wait()


@pytest.mark.parametrize("make", [lambda: cl.CommandQueue(context()), unordered])
def test_scratch_local_and_derived_scalars_are_the_kernels_own(make: Any) -> None:
    queue, run = make(), quiet(twice())
    assert list(run.arguments) == ["x", "y", "factor", "rounds"]
    data = np.random.default_rng(1).random((64, 4), dtype=np.float32)
    x, outputs = cla.to_device(queue, data), [cla.zeros(queue, (64, 4), np.float32) for _ in range(6)]
    queue.finish()
    events = [run(queue, x=x, y=y, factor=[1, 2, 3, turn]) for turn, y in enumerate(outputs)]
    cl.wait_for_events(events)
    for turn, y in enumerate(outputs):
        assert np.allclose(y.get(), (data + 1) * 64 * [1, 2, 3, turn])


def test_many_threads_call_on_queues_of_their_own_and_on_one() -> None:
    shared, run = context(), quiet(twice())
    one, failures = cl.CommandQueue(shared), list[str]()

    def work(number: int) -> None:
        queue = one if number % 2 else cl.CommandQueue(shared)
        data = np.full((64, 4), number, np.float32)
        x, y = cla.to_device(queue, data), cla.zeros(queue, (64, 4), np.float32)
        for turn in range(20):
            run(queue, x=x, y=y, factor=turn).wait()
            if not np.allclose(y.get(), (data + 1) * 64 * turn):
                failures.append(f"{number} {turn}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_buffers_parts_and_vector_arrays_are_taken(queue: cl.CommandQueue) -> None:
    run = quiet(twice())
    data = np.random.default_rng(2).random((128, 4), dtype=np.float32)
    whole, y = cla.to_device(queue, data), cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 64 * 16)
    found = np.empty((64, 4), np.float32)
    pooled = cla.to_device(queue, data, allocator=MemoryPool(ImmediateAllocator(queue)))
    within = cla.Array(queue, (96, 4), np.float32, data=whole.base_data.get_sub_region(512, 96 * 16))
    for x in (whole[64:], pooled[64:], within[32:]):
        run(queue, x=x, y=y, wait_for=[cl.enqueue_marker(queue)])
        cl.enqueue_copy(queue, found, y)
        assert np.allclose(found, (data[64:] + 1) * 128)
    typed = cla.empty(queue, 64, cl.cltypes.float4)
    cl.enqueue_copy(queue, typed.base_data, data[:64])
    run(queue, x=typed, y=y)
    cl.enqueue_copy(queue, found, y)
    assert np.allclose(found, (data[:64] + 1) * 128)


CONJUGATE = (
    "kernel void conj(global const T2 *x, global T2 *y) { int i = get_global_id(0); y[i] = (T2)(x[i].x, -x[i].y); }"
)


@pytest.mark.doubles  # pyopencl's header of complex numbers wants them
@pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")
def test_complex_numbers_are_vectors_of_two(queue: cl.CommandQueue) -> None:
    buffers = {
        "x": {"type": "T2", "shape": ["N"], "access": "in"},
        "y": {"type": "T2", "shape": ["N"], "access": "out"},
    }
    made = study(
        source=CONJUGATE,
        choices={"T2": ["float2"]},
        arguments=buffers,
        launch=[{"entry": "conj", "global": ["N"], "arguments": ["x", "y"]}],
        reference={"numpy": {"y": "x * ones(2)"}},
    )
    run = quiet(made, N=64)
    data = np.random.default_rng(2).random((64, 2), dtype=np.float32).view(np.complex64)[:, 0]
    x, y = cla.to_device(queue, data), cla.zeros(queue, 64, np.complex64)
    run(queue, x=x, y=y).wait()
    assert np.array_equal(y.get(), data.conj())
    with pytest.raises(UsageError, match="x: holds complex128, the kernel takes float2"):
        run(queue, x=x.astype(np.complex128), y=y)
    with pytest.raises(UsageError, match="x: is of shape 63 x 2, the kernel takes 64 float2"):
        run(queue, x=x[:63], y=y)


@pytest.mark.doubles
@pytest.mark.filterwarnings("ignore::pyopencl.CompilerWarning")  # of kernels of its own
def test_what_does_not_fit_is_one_line(queue: cl.CommandQueue) -> None:
    saxpy = quiet(study())
    x, y = vectors(queue)
    texels = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    image = cl.create_image(queue.context, cl.mem_flags.READ_WRITE, texels, shape=(64, 64))
    elsewhere = cla.to_device(cl.CommandQueue(context()), x.get())
    # Without a queue: what is to be freed on one, PoCL 3.0 looks up only then, in memory that pyopencl has let go of.
    allocator, flags = SVMAllocator(queue.context, flags=cl.svm_mem_flags.READ_WRITE), cl.mem_flags
    shared = cla.empty(queue.context, 1000, np.float32, allocator=allocator)
    read_only, write_only = (cl.Buffer(queue.context, only, 4000) for only in (flags.READ_ONLY, flags.WRITE_ONLY))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"x": x}, "no y is given; saxpy takes alpha, x, y"),
        ({"x": x, "y": y, "z": y}, r"no argument named 'z'"),
        ({"x": x, "y": y, "N": 3}, r"N: is a size, given in autotune.tuned\('saxpy', N=...\)"),
        ({"x": x.get(), "y": y}, r"x: lies on the host; pyopencl.array.to_device\(queue, x\) puts it on the device"),
        ({"x": None, "y": y}, "x: NoneType is not a buffer of the device"),
        ({"x": cla.empty(queue, 0, np.float32), "y": y}, "x: is empty, the kernel takes 1000 float"),
        ({"x": image, "y": y}, "x: Image is not a buffer of the device"),
        ({"x": x.astype(np.float64), "y": y}, "x: holds float64, the kernel takes float"),
        ({"x": x[5:5], "y": y}, "x: has 0 bytes, the kernel takes 4,000"),
        ({"x": x[:100], "y": y}, "x: has 400 bytes, the kernel takes 4,000: 1000 float"),
        ({"x": x[::2], "y": y}, "x: has gaps"),
        ({"x": x[::-1], "y": y}, "x: has gaps, runs backwards"),
        ({"x": shared, "y": y}, "x: is in shared virtual memory"),
        ({"x": x[1:], "y": y}, "x: (begins 4 bytes into its buffer|has 3,996 bytes)"),
        ({"x": elsewhere, "y": y}, "x: is in another context than the queue's"),
        ({"x": x, "y": read_only}, "y: is in memory created to be only read, but is written"),
        ({"x": write_only, "y": y}, "x: is in memory created to be only written, but is read"),
        ({"x": x, "y": y, "alpha": "2"}, "alpha: '2' is not a value of float"),
        ({"x": x, "y": y, "alpha": [1, 2]}, r"alpha: \[1, 2\] is not a value of float"),
        *(({"x": x, "y": y, "alpha": value}, "alpha: .* is not a value of float") for value in (1e60, [-1e60], 10**50)),
        *(
            ({"x": x, "y": y, "wait_for": value}, "wait_for holds a value that is not an OpenCL event")
            for value in ([3], [None], "ab")
        ),
        ({"x": x, "y": y, "wait_for": 3}, r"wait_for: int is not a list of events; write wait_for=\[event\]"),
        ({"x": x, "y": y, "alpha": np.ones((3, 3))}, r"alpha: array\(\[\[1., 1., 1.\], .* is not a value of float"),
    ]
    for arguments, said in wrong:
        with pytest.raises(UsageError, match=said) as caught:
            saxpy(queue, **arguments)
        assert "\n" not in str(caught.value)
    for scalar, said in (({"rounds": 1.5}, "1.5 is not a value of int"), ({"rounds": 2**31}, "is not a value of int"),
                         ({"factor": [1, 2, 3]}, "is not a value of float4: 4 numbers, or one for all")):  # fmt: skip
        with pytest.raises(UsageError, match=said):
            quiet(twice())(queue, x=x, y=y, **scalar)
    other = unordered()
    x, y = vectors(other)
    for wait_for in ([3], [None], "ab"):
        with pytest.raises(UsageError, match="wait_for holds a value that is not an OpenCL event"):
            saxpy(other, x=x, y=y, wait_for=wait_for)
    for no_queue in (None, np.zeros(3), queue.context):
        with pytest.raises(UsageError, match=r"is not a command queue; give a pyopencl\.CommandQueue"):
            saxpy(no_queue, x=x, y=y)


@pytest.mark.parametrize("taken", [pickle.dumps, copy.deepcopy])
def test_a_kernel_stays_in_its_process_and_says_so(taken: Callable[[object], object]) -> None:
    saxpy = quiet(study())
    with pytest.raises(
        UsageError, match=r"a tuned kernel cannot be sent to another process; call autotune.tuned\('saxpy', ...\)"
    ):
        taken(saxpy)


def test_a_call_in_a_forked_child_is_one_line_and_no_wait(queue: cl.CommandQueue) -> None:
    saxpy = quiet(study())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of what this is about
        child = os.fork()
    if not child:
        gc.disable()  # what it would free belongs to the driver, which some crash at
        said = []
        for ask in (partial(saxpy, queue), partial(autotune.tuned, study())):
            try:
                ask()
            except DeviceError as error:
                said.append(str(error))
        told = ("saxpy: was made before this process was forked", "this process was forked after OpenCL's drivers were")
        os._exit(len(said) == 2 and all(map(str.startswith, said, told)))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_nothing_given_is_not_the_array_that_is_gone(queue: cl.CommandQueue) -> None:
    saxpy = quiet(study())
    x, y = vectors(queue)
    saxpy(queue, x=x, y=y).wait()
    del x
    with pytest.raises(UsageError, match="x: NoneType is not a buffer of the device"):
        saxpy(queue, x=None, y=y)


def test_infinity_is_a_value_of_a_float(queue: cl.CommandQueue) -> None:
    x, y = vectors(queue)
    quiet(study())(queue, x=x, y=y, alpha=np.inf)
    assert np.isinf(y.get()).any()


def test_a_matrix_that_is_turned_is_refused(queue: cl.CommandQueue) -> None:
    sgemm = quiet("sgemm", M=64, N=32, K=16)
    a, b, c = (cla.zeros(queue, shape, np.float32) for shape in ((64, 16), (32, 16), (64, 32)))
    with pytest.raises(UsageError, match="B: is of shape 32 x 16, the kernel takes 16 x 32 float"):
        sgemm(queue, A=a, B=b, C=c)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"N": 0}, "N: 0 is not a whole number of at least 1"),
        ({"Q": 1}, "no size named 'Q'"),
        ({"T": 1}, """no size named 'T'; a choice is choices={"T": 1}"""),
        ({"choices": {"T": "int8"}}, "choices: T cannot be 'int8'; it can be float, double"),
        ({"size": {"N": [1]}}, "N: "),
        ({"study": Path("a.toml")}, r"study: is given first, without its name; write autotune.tuned\('a.toml', ...\)"),
        ({"databse": "a.db"}, r"databse: 'a.db' is neither a size nor an option \(did you mean 'database'\?\)"),
        ({"device": "no such device"}, "no device 'no such device'"),
        ({"device": 3}, 'device: 3 is not a selector of a device; write device="3", or give a pyopencl.CommandQueue'),
        ({"N": 3, "size": {"N": 4}}, "N: is given twice: 3 by name, 4 in size="),
        ({"size": "N=5"}, "size: 'N=5' is not a mapping of names to sizes"),
        ({"search": 0}, "search: 0 is not a number of seconds"),
        ({"search": "soon"}, "search: 'soon' is not a duration"),
        ({"search": Budget(trials="x")}, "trials: 'x' is not a whole number"),
        ({"search": 1, "background": "no"}, "background: 'no' is neither True nor False"),
        ({"search": 1, "allow_python": "no"}, "allow_python: 'no' is neither True nor False"),
        ({"background": True}, "search= is missing"),
    ],
)
def test_a_bad_question_is_one_line(options: dict[str, Any], said: str) -> None:
    with pytest.raises(AutotuneError, match=said):
        quiet(study(), **options)


def test_what_a_kernel_says_of_itself_is_the_callers_to_change(queue: cl.CommandQueue) -> None:
    saxpy = quiet(study())
    for told in (saxpy.configuration, saxpy.best.configuration, saxpy.best_on(queue).configuration):
        cast("dict[str, Any]", told)["WG"] = -1
    assert saxpy.configuration["WG"] == saxpy.best_on(queue).configuration["WG"] == 64


def test_a_database_may_be_a_path_and_the_warning_names_it(tmp_path: Path) -> None:
    database, tuned = tmp_path / "nowhere/x.db", study()
    with pytest.warns(
        UserWarning, match=rf"nothing is stored for saxpy on .* in {database}: it runs with its defaults"
    ):
        saxpy = autotune.tuned(tuned, N=900, database=database)
    assert saxpy is autotune.tuned(tuned, size={"N": 900}, database=str(database), N=900)


def test_a_wait_is_a_number_of_seconds() -> None:
    saxpy = quiet(study())
    assert [saxpy.wait(timeout) for timeout in (None, 1, 0.5, np.float32(1), float("inf"), -1, 10**400)] == [None] * 7
    for timeout in ("x", True, float("nan")):
        with pytest.raises(UsageError, match=f"timeout: {timeout!r} is not a number of seconds; write wait"):
            saxpy.wait(timeout)


def test_the_same_question_gives_the_same_kernel(queue: cl.CommandQueue, recwarn: pytest.WarningsRecorder) -> None:
    tuned = study()
    one = autotune.tuned(tuned, N=500)
    assert autotune.tuned(tuned, size={"N": 500}) is one
    assert autotune.tuned(tuned, N=501) is not one
    assert len(recwarn) == 2
    assert quiet(tuned, N=500, device=queue).best.device == attach(queue).info.fingerprint
    assert quiet("matmul", M=64) is quiet("matmul", M=64)


def test_contexts_that_come_and_go_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_MOST_QUEUES", 1)
    monkeypatch.setattr(ready, "_MOST_PROGRAMS", 2)
    saxpy = quiet(study())
    guests = [weakref.ref(saxpy._bind(cl.CommandQueue(context())).guest) for _ in range(4)]
    gc.collect()
    assert [guest() is not None for guest in guests] == [False, False, True, True]


def test_what_is_stored_is_used_and_a_later_one_at_the_next_call(queue: cl.CommandQueue) -> None:
    tuned = study()
    store_best(tuned, {"WPT": 2, "WG": 32, "FAST": 0}, N=1000)
    saxpy = autotune.tuned(tuned)
    assert saxpy.match is Match.EXACT
    assert saxpy.configuration == {"WPT": 2, "WG": 32, "FAST": 0}
    x, y = vectors(queue)
    expected = [turns * 2.5 * x.get() + y.get() for turns in (1, 2)]
    saxpy(queue, x=x, y=y).wait()
    assert np.allclose(y.get(), expected[0])
    assert not saxpy.refresh()
    store_best(tuned, {"WPT": 4, "WG": 64, "FAST": 0}, 500, N=1000)
    assert saxpy.refresh()
    assert saxpy.configuration["WPT"] == 4
    assert saxpy.best_on(queue) == saxpy.best
    saxpy(queue, x=x, y=y).wait()
    assert np.allclose(y.get(), expected[1], rtol=1e-5)
    Path(os.environ["AUTOTUNE_DB"]).unlink()
    with pytest.warns(UserWarning, match="nothing is stored for saxpy on .* with its defaults") as warned:
        assert saxpy.refresh()
    assert warned[0].filename == __file__
    assert not saxpy.refresh(), "told once"


def test_the_time_of_another_device_or_size_is_not_told_as_a_kernels_own() -> None:
    tuned, here = study(), find_device(None)
    other = replace(here, compute_units=here.compute_units + 1)
    trial = Trial({"WPT": 2, "WG": 32, "FAST": 0}, Outcome.OK, measurement=Measurement((1000,) * 6))
    with Store.open() as store:
        put(store, [trial], key=Problem(tuned, {"N": 1000}, None, other).key, device=other)
    borrowed = autotune.tuned(tuned)
    assert repr(borrowed).endswith(f"on {here.fingerprint}: same architecture>")
    store_best(tuned, {"WPT": 2, "WG": 32, "FAST": 0}, N=500)
    assert repr(autotune.tuned(tuned, N=501)).endswith(": nearest size>")
    assert repr(autotune.tuned(tuned, N=500)).endswith(": exact, 1.000 µs>")


def test_a_device_that_was_asked_for_is_the_only_one(queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    saxpy, anywhere = quiet(study(), device=find_device(None).fingerprint), quiet(study())
    x, y = vectors(queue)
    guest = attach(queue)
    guest.info = replace(guest.info, name="Other", vendor="Else")
    monkeypatch.setattr("autotune.devices.attach", lambda _: guest)
    with pytest.raises(DeviceError, match=r"the queue is on Other, .*device='else-other-"):
        saxpy(queue, x=x, y=y)
    with pytest.warns(UserWarning, match="nothing is stored for saxpy on else-other"):
        anywhere(queue, x=x, y=y).wait()
    assert anywhere.best_on(queue).device.startswith("else-other")


# Binaries -------------------------------------------------------------------------------------------------


def binary(folder: Path) -> Path:
    (found,) = (folder / "cache" / "binaries").iterdir()
    return found


@pytest.fixture
def tells(monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Have a driver offer its binaries on request, or not; PoCL always offers them."""
    original = drivers.traits

    def tell(tells: bool) -> None:
        monkeypatch.setattr(drivers, "traits", lambda info: replace(original(info), tells_binaries=tells))

    tell(True)
    return tell


def test_no_binary_is_kept_where_it_takes_another_compilation(
    tmp_path: Path, queue: cl.CommandQueue, tells: Callable[[bool], None]
) -> None:
    tells(False)
    x, y = vectors(queue)
    quiet(study())(queue, x=x, y=y).wait()
    assert not (tmp_path / "cache" / "binaries").exists()


@pytest.mark.usefixtures("tells")
def test_a_binary_is_kept_loaded_and_built_anew_where_it_is_damaged(
    tmp_path: Path, queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, original = list[int](), OpenCLSession.build
    monkeypatch.setattr(OpenCLSession, "build", lambda self, *words: built.append(1) or original(self, *words))
    x, y = vectors(queue)
    tuned = study()
    for change, builds in (
        (lambda content: content, 1),
        (lambda content: content, 1),
        (lambda content: content[: len(content) // 2], 2),
        (lambda content: content[:-1] + bytes([content[-1] ^ 1]), 3),
        (lambda content: b"", 4),
        (lambda content: content, 4),
    ):
        if built:
            place = binary(tmp_path)
            place.write_bytes(change(place.read_bytes()))
        questions._kernels.clear()
        ready._programs.clear()
        expected = 2.5 * x.get() + y.get()
        quiet(tuned)(queue, x=x, y=y).wait()
        assert np.allclose(y.get(), expected, rtol=1e-5)
        assert len(built) == builds


@pytest.mark.usefixtures("tells")
def test_a_binary_that_others_can_write_is_not_loaded(tmp_path: Path, queue: cl.CommandQueue) -> None:
    x, y = vectors(queue)
    quiet(study())(queue, x=x, y=y).wait()
    place = binary(tmp_path)
    assert place.parent.stat().st_mode & 0o777 == 0o700
    assert binaries._read(place)
    place.chmod(0o666)
    assert binaries._read(place) is None
    place.chmod(0o600)
    place.parent.chmod(0o777)
    assert binaries._read(place) is None


@pytest.mark.usefixtures("tells")
def test_a_folder_that_cannot_be_made_is_no_failure(
    tmp_path: Path, queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("AUTOTUNE_CACHE", str(tmp_path / "file"))
    x, y = vectors(queue)
    quiet(study())(queue, x=x, y=y).wait()


def test_the_folder_does_not_grow_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binaries, "MOST_FILES", 4)
    folder = binaries.folder()
    folder.mkdir(parents=True)

    class Built:
        binary = b"code"

    for number in range(20):
        binaries.keep(Built(), f"{number:02}")  # type: ignore[arg-type]
    assert len(list(folder.iterdir())) <= 5
    assert binaries._read(folder / "19") == b"code"


def test_a_queue_whose_context_is_gone_is_one_line(queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(_: cl.CommandQueue) -> cl.Context:
        raise cl.LogicError("clRetainContext failed: INVALID_CONTEXT")

    monkeypatch.setattr(cl.CommandQueue, "context", property(gone))
    with pytest.raises(DeviceError, match=r"the queue's context is gone: .*; keep it as long as the queue: "):
        autotune.tuned(study(), device=queue)


@pytest.mark.parametrize("keeps_builds", [True, False])
def test_a_kernel_that_does_not_build_is_one_line_with_its_log(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch, keeps_builds: bool
) -> None:
    # Where a driver keeps no builds pyopencl would, in a program that imported it before this package.
    monkeypatch.setattr("pyopencl.characterize.has_src_build_cache", lambda device: keeps_builds)
    monkeypatch.setattr(cl, "_PYOPENCL_NO_CACHE", False)
    x, y = vectors(queue)
    with pytest.raises(DeviceError, match="saxpy on ") as caught:
        quiet(study(source="kernel void saxpy( {"))(queue, x=x, y=y)
    assert caught.value.detail
    assert "\n" not in str(caught.value)


# Searching ------------------------------------------------------------------------------------------------


COPY = """
name = "copy"
kernel = "copy.cl"
sizes = { N = 64 }
parameters = { WG = { values = [16] } }
arguments.x = { type = "int", shape = ["N"], access = "in" }
arguments.y = { type = "int", shape = ["N"], access = "out" }
launch = [{ entry = "copy", global = ["N"], local = ["WG"], arguments = ["x", "y"] }]
reference = { numpy = { y = "x" } }
"""
CACHELESS = """
import pathlib, shutil, pyopencl as cl
queue = cl.CommandQueue(cl.create_some_context(interactive=False))
cache = pathlib.Path({cache!r})
shutil.rmtree(cache)
cache.touch()
import autotune
n = 64
arrays = {{name: cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 4 * n) for name in "xy"}}
try:
    autotune.tuned({study!r}, N=n)(queue, **arrays)
except autotune.AutotuneError as error:
    print(error)
"""


@pytest.mark.processor
def test_where_pocl_cannot_write_what_it_builds_the_cure_is_told(tmp_path: Path) -> None:
    """Its folder may fill up, or be removed, after the program has made its context."""
    cache, written = tmp_path / "cache", tmp_path / "copy.toml"
    cache.mkdir()
    (tmp_path / "copy.cl").write_text("kernel void copy(global const int *x, global int *y) { *y = *x; }")
    written.write_text(COPY)
    code = CACHELESS.format(cache=str(cache), study=str(written))
    variables = os.environ | {"POCL_CACHE_DIR": str(cache)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=variables)
    assert f"; PoCL cannot write to {cache}: set POCL_CACHE_DIR to " in done.stdout, done.stderr


def found(tuned: Study, stop: threading.Event | None = None) -> Any:
    """Replaces `tuner.run`: waits to be stopped if it gets an event, and stores a best."""

    def run(request: Request, stopped: threading.Event | None = None) -> Any:
        if stop is not None:
            assert stopped is not None
            stopped.wait(60)
            stop.set()
        store_best(tuned, {"WPT": 8, "WG": 32, "FAST": 0}, N=1000)
        return SimpleNamespace(best=object(), reason="interrupted" if stop else "done")

    return run


def test_a_search_at_first_use_is_for_what_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = study()
    monkeypatch.setattr("autotune.tuner.run", found(tuned))
    saxpy = autotune.tuned(tuned, search=30)
    assert saxpy.match is Match.EXACT
    assert saxpy.configuration["WPT"] == 8
    monkeypatch.setattr("autotune.tuner.run", None)
    assert autotune.tuned(tuned, search="1m", N=1000).match is Match.EXACT


def test_who_asks_while_another_thread_searches_waits_for_what_it_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned, matches = study(), list[Match]()
    second = threading.Thread(target=lambda: matches.append(autotune.tuned(tuned, search=40).match))
    search = found(tuned)

    def run(request: Request) -> Any:
        second.start()
        second.join(0.05)  # without a lock it is long done
        assert not matches
        return search(request)

    monkeypatch.setattr("autotune.tuner.run", run)
    autotune.tuned(tuned, search=40)
    second.join()
    assert matches == [Match.EXACT]


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        (3, "found no configuration that passed"),
        (0, r"ended before its first trial ended \(30 s are over\): give it more time"),
    ],
)
def test_a_search_that_finds_nothing_leaves_the_default(
    monkeypatch: pytest.MonkeyPatch, trials: int, said: str
) -> None:
    result = SimpleNamespace(best=None, reason="30 s are over", trials=trials, reused=0)
    monkeypatch.setattr("autotune.tuner.run", lambda *_: result)
    with pytest.warns(UserWarning, match=said) as warned:
        assert autotune.tuned(study(), search=30).match is Match.DEFAULT
    assert warned[0].filename == __file__


def test_a_search_that_was_interrupted_or_failed_is_made_when_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = study()

    def interrupted(_: Request) -> Any:
        return SimpleNamespace(best=None, reason="interrupted", trials=0, reused=0)

    def failed(_: Request) -> Any:
        raise SetupError("no linker")

    for run, error in ((failed, SetupError), (interrupted, KeyboardInterrupt)):
        monkeypatch.setattr("autotune.tuner.run", run)
        with pytest.raises(error), warnings.catch_warnings(action="always", record=True) as warned:
            autotune.tuned(tuned, search=30)
    assert str(warned[-1].message).endswith("the search ended before its first trial ended (interrupted)")
    monkeypatch.setattr("autotune.tuner.run", found(tuned))
    assert autotune.tuned(tuned, search=30).match is Match.EXACT


def test_a_search_in_the_background_can_be_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned, stopped = study(), threading.Event()
    monkeypatch.setattr("autotune.tuner.run", found(tuned, stopped))
    saxpy = autotune.tuned(tuned, search=Budget(seconds=1000), background=True)
    assert saxpy.searching
    assert saxpy.wait(0) is None
    assert saxpy.match is Match.DEFAULT
    saxpy.stop()
    result = saxpy.wait()
    assert result is not None
    assert stopped.is_set()
    assert saxpy.best.match is Match.EXACT


@pytest.mark.parametrize(
    ("error", "said"), [(SetupError("no linker"), "no linker"), (OSError("full"), "OSError: full")]
)
def test_what_ends_a_search_in_the_background_is_told(
    monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def run(*_: object) -> None:
        raise error

    monkeypatch.setattr("autotune.tuner.run", run)
    saxpy = autotune.tuned(study(), search=30, background=True)
    with pytest.raises(AutotuneError, match=said):
        saxpy.wait()
    assert saxpy.match is Match.DEFAULT


def test_arrays_that_are_padded_otherwise_are_not_swapped_under_the_caller(
    queue: cl.CommandQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = {**study().text.table["arguments"]}
    arguments["y"] = {**arguments["y"], "allocate": ["round_up(N, 300 * WPT)"]}
    tuned = study(arguments=arguments)
    saxpy = quiet(tuned)
    x, y = vectors(queue)
    with pytest.raises(UsageError, match="y: has 4,000 bytes, the kernel takes 4,800: 1200 float, 1000 of them used, "):
        saxpy(queue, x=x, y=y)
    y = cla.zeros(queue, 1200, np.float32)
    saxpy(queue, x=x, y=y).wait()
    monkeypatch.setattr("autotune.tuner.run", found(tuned))
    with pytest.warns(UserWarning, match=r"pads its arrays in another way; refresh\(\) uses it"):
        saxpy.tune(Budget(seconds=30))
    saxpy(queue, x=x, y=y).wait()
    assert saxpy.refresh()
    with pytest.raises(UsageError, match="y: has 4,800 bytes"):
        saxpy(queue, x=x, y=y)


def test_a_search_in_the_background_swaps_between_calls(queue: cl.CommandQueue) -> None:
    saxpy = autotune.tuned(study(), search=Budget(trials=2), background=True)
    assert saxpy.match is Match.DEFAULT
    failures, calls, matches = list[str](), 0, set[Match]()

    def work() -> None:
        nonlocal calls
        own = cl.CommandQueue(queue.context)
        x, _ = vectors(own)
        again = True
        while again:
            again = saxpy.searching
            y = cla.zeros(own, 1000, np.float32)
            saxpy(own, x=x, y=y).wait()
            matches.add(saxpy.match)
            calls += 1
            if not np.allclose(y.get(), 2.5 * x.get()):
                failures.append("wrong")
            time.sleep(0.01)  # the search has the device too

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    result = saxpy.wait(100)
    for thread in threads:
        thread.join()
    assert not failures
    assert result is not None
    assert result.best is not None
    assert saxpy.configuration == result.best.configuration
    assert matches == {Match.DEFAULT, Match.EXACT}


# Loops, structs and images --------------------------------------------------------------------------------

STEP = """
kernel void advance(global const float *u, global float *v, int turn, float shift, int N) {
    int i = get_global_id(0);
    v[i] = u[i] * 2 + turn + shift;
}
"""


def stepped(turns: int, **access: str) -> Study:
    """u and v are swapped after each turn."""
    return Study(
        name="steps",
        source=STEP,
        sizes={"N": 64},
        parameters={"WG": {"values": [8, 16]}},
        arguments={
            "u": {"type": "float", "shape": ["N"], "access": access.get("u", "inout")},
            "v": {"type": "float", "shape": ["N"], "access": access.get("v", "inout")},
            "turn": {"type": "int", "value": "T"},
            "shift": {"type": "float", "value": 0},
        },
        launch=[
            {"repeat": turns, "step": "T", "swap": [["u", "v"]], "entry": "advance", "global": ["N"], "local": ["WG"],
             "arguments": ["u", "v", "turn", "shift", "N"]},
        ],
        reference=lambda u, v, **_: {"u": u, "v": v},
    )  # fmt: skip


@pytest.mark.parametrize("make", [lambda: cl.CommandQueue(context()), unordered])
@pytest.mark.parametrize("turns", [3, 4])
def test_buffers_that_change_places_are_given_as_they_begin(turns: int, make: Any) -> None:
    queue, run = make(), quiet(stepped(turns))
    assert run.ends == ({"u": "v", "v": "u"} if turns % 2 else {})
    data = np.arange(64, dtype=np.float32)
    for scalars in ({}, {"shift": 1}, {"shift": 1}, {}):
        given = {"u": cla.to_device(queue, data), "v": cla.zeros(queue, 64, np.float32)}
        queue.finish()
        run(queue, **given, **scalars).wait()
        expected = data
        for turn in range(turns):
            expected = expected * 2 + turn + scalars.get("shift", 0)
        assert np.array_equal(given[run.ends.get("u", "u")].get(), expected)


def test_an_output_that_would_end_in_scratch_is_refused() -> None:
    with pytest.raises(
        AutotuneError, match=r"arguments.u: after the number of turns .* is in v, which is scratch; it could not"
    ):
        quiet(stepped(3, v="scratch"))
    assert list(quiet(stepped(4, v="scratch")).arguments) == ["u", "shift"]


EXAMPLES = Path(__file__).parent.parent / "examples" / "studies"


def test_structs_are_given_as_records(queue: cl.CommandQueue) -> None:
    run = quiet(str(EXAMPLES / "particles.toml"), N=64)
    assert list(run.arguments) == ["world", "particles"]
    dtype, _ = numpy_type(run.arguments["particles"].type)
    particles = np.zeros(64, dtype)
    particles["mass"], particles["velocity"][:, 0] = 1, 1
    buffer = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, particles.nbytes)
    found = np.zeros(particles.nbytes, np.uint8)
    world = np.zeros((), numpy_type(run.arguments["world"].type)[0])
    world["step"] = 0.5
    for options, moved in (({}, 0.01), ({"world": world}, 0.5), ({"world": world[()]}, 0.5)):
        cl.enqueue_copy(queue, buffer, particles.view(np.uint8))
        run(queue, particles=buffer, **options)
        cl.enqueue_copy(queue, found, buffer)
        assert found.view(dtype)["position"][:, 0] == pytest.approx(moved, rel=0.02)
    with pytest.raises(UsageError, match=r"holds .*'mass'.*; np\.dtype.* align=True\) lays out members as C"):
        run(queue, particles=cla.zeros(queue, 64, np.dtype([("mass", "f4"), ("tag", "u2")])))
    for wrong in (3, np.zeros(2, world.dtype), particles[0]):
        with pytest.raises(UsageError, match=r"world: .*record.* of dtype numpy_type\(kernel\.arguments\["):
            run(queue, particles=buffer, world=wrong)


MIRRORED = """
kernel void mirror(read_only image2d_t x, read_only image2d_t seen, sampler_t smp, write_only image2d_t y, float gain) {
    const int2 at = (int2)(get_global_id(0), get_global_id(1));
    const int2 from = (int2)(get_image_width(x) - 1 - at.x, at.y);
    write_imagef(y, at, gain * read_imagef(x, smp, from) + read_imagef(seen, smp, at));
}
"""


def mirrored(**image: Any) -> Study:
    """Return a study that takes and makes an image, and has another one of its own, of zeros."""
    if not find_device(None).images:
        pytest.skip("the device has no images")
    image = {"type": "float", "channels": "RGBA", "image": ["H", "W"], **image}
    return Study(
        name="mirrored", source=MIRRORED, sizes={"H": 6, "W": 8}, parameters={"WG": {"values": [2]}},
        arguments={
            "x": {"access": "in", **image}, "seen": {"access": "zeroed", **image}, "y": {"access": "out", **image},
            "smp": {"sampler": {"filter": "nearest"}}, "gain": {"type": "float", "value": 1.0},
        },
        launch=[{"entry": "mirror", "global": ["W", "H"], "local": ["WG", "WG"],
                 "arguments": ["x", "seen", "smp", "y", "gain"]}],
        reference={"numpy": {"y": "gain * x[:, ::-1]"}},
    )  # fmt: skip


def image_of(queue: cl.CommandQueue, shape: tuple[int, ...], order: str = "RGBA", **how: Any) -> cl.Image:
    """Return an image as programs make it: width first."""
    flags = how.get("flags", cl.mem_flags.READ_WRITE)
    made = cl.ImageFormat(getattr(cl.channel_order, order), how.get("channel", cl.channel_type.FLOAT))
    return cl.create_image(how.get("context", queue.context), flags, made, shape=shape)


@pytest.mark.parametrize("make", [lambda: cl.CommandQueue(context()), unordered])
def test_images_are_given_as_pyopencl_makes_them(make: Callable[[], cl.CommandQueue]) -> None:
    queue = make()
    run = quiet(mirrored())
    assert list(run.arguments) == ["x", "y", "gain"]
    data = np.arange(6 * 8 * 4, dtype=np.float32).reshape(6, 8, 4)
    found = np.empty_like(data)
    for scalars in ({}, {"gain": 2}):  # given anew: another image, another address
        x, y = image_of(queue, (8, 6), flags=cl.mem_flags.READ_ONLY), image_of(queue, (8, 6))
        cl.enqueue_copy(queue, x, data, origin=(0, 0), region=(8, 6))
        run(queue, x=x, y=y, **scalars).wait()
        cl.enqueue_copy(queue, found, y, origin=(0, 0), region=(8, 6))
        assert np.array_equal(found, data[:, ::-1] * scalars.get("gain", 1))


def test_arrays_of_images_and_image_buffers_are_given_as_pyopencl_makes_them(queue: cl.CommandQueue) -> None:
    if not find_device(None).images:
        pytest.skip("the device has no images")
    layers = {"type": "float", "image": ["N", "H", "W"], "form": "array"}
    run = quiet(Study(
        name="weighted", sizes={"N": 2, "H": 3, "W": 4}, parameters={"WG": {"values": [2]}},
        source="""
        kernel void f(read_only image2d_array_t x, read_only image1d_buffer_t by, write_only image2d_array_t y) {
            const int4 at = (int4)(get_global_id(0), get_global_id(1), get_global_id(2), 0);
            write_imagef(y, at, read_imagef(x, at) * read_imagef(by, (int)get_global_id(2)));
        }""",
        arguments={
            "x": {"access": "in", **layers}, "y": {"access": "out", **layers},
            "by": {"type": "float", "image": ["N"], "form": "buffer", "access": "in"},
        },
        launch=[{"entry": "f", "global": ["W", "H", "N"], "local": ["WG", 1, 1], "arguments": ["x", "by", "y"]}],
        reference={"numpy": {"y": "x * by[:, None, None]"}},
    ))  # fmt: skip
    rgba, flags = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT), cl.mem_flags.READ_WRITE
    data, by = np.arange(96, dtype=np.float32).reshape(2, 3, 4, 4), np.float32([[1, 1, 1, 1], [2, 2, 2, 2]])
    x, y = (cl.create_image(queue.context, flags, rgba, shape=(4, 3, 2), is_array=True) for _ in "xy")
    weights = cl.Buffer(queue.context, flags | cl.mem_flags.COPY_HOST_PTR, hostbuf=by)
    cl.enqueue_copy(queue, x, data, origin=(0, 0, 0), region=(4, 3, 2))
    lines = cl.create_image(queue.context, flags, rgba, shape=(2,), buffer=weights)
    run(queue, x=x, y=y, by=lines).wait()
    found = np.empty_like(data)
    cl.enqueue_copy(queue, found, y, origin=(0, 0, 0), region=(4, 3, 2))
    assert np.array_equal(found, data * by[:, None, None])
    volume = cl.create_image(queue.context, flags, rgba, shape=(4, 3, 2))
    with pytest.raises(UsageError, match="x: is of kind image3d, the kernel takes an image2d_array of 2 x 3 x 4 pix"):
        run(queue, x=volume, y=y, by=lines)


def test_an_image_of_another_form_is_one_line(queue: cl.CommandQueue) -> None:
    run = quiet(mirrored())
    good = {"x": image_of(queue, (8, 6)), "y": image_of(queue, (8, 6))}
    takes = "the kernel takes an image2d of 6 x 8 pixels of float RGBA"
    kinds = cl.channel_type
    for name, wrong, message in (
        ("x", image_of(queue, (6, 8)), f"x: has 8 x 6 pixels of float RGBA, {takes}"),
        ("x", image_of(queue, (8, 6), channel=kinds.UNORM_INT8), f"x: has .* of uchar RGBA, normalized, {takes}"),
        ("x", image_of(queue, (8, 6), channel=kinds.SIGNED_INT16), f"x: has .* of short RGBA, {takes}"),
        ("x", image_of(queue, (8, 6, 2)), f"x: is of kind image3d, {takes}"),
        ("y", image_of(queue, (8, 6), flags=cl.mem_flags.READ_ONLY), "y: .* created to be only read, but is written"),
        (
            "x",
            cla.zeros(queue, (6, 8, 4), np.float32),
            "x: Array is not an image; give a pyopencl image: an image2d of 6",
        ),
        ("x", np.zeros((6, 8, 4), np.float32), "x: lies on the host; give a pyopencl image: an image2d of 6 x 8"),
        ("x", None, "x: NoneType is not an image"),
        ("x", image_of(queue, (8, 6), context=cl.Context([queue.device])), "x: is in another context than the queue"),
    ):
        with pytest.raises(UsageError) as caught:
            run(queue, **{**good, name: wrong})
        assert re.match(message, str(caught.value))
    run(queue, **good).wait()
