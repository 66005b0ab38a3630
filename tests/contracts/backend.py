"""What every backend keeps to. A class of tests inherits `BackendContract` and gives its name and four kernels.

All compute with ints. `COPY` (`n`, `source`, `target`): the first `n`; past the 100 of `source` any, which is written
past the end of `target` too. `ADD` (`a`, `total`): `total[0] += a[0] + STEP`, after a `-DSTEP=...`. `MARK` (`target`, 8
to a row): the work-item in column x and row y, without offsets, writes there its numbers with offsets, the first plus
100 times the second, plus 10,000 times the width of its work-group. `BROKEN` does not build.
"""

from __future__ import annotations

import pickle
import time
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from autotune.bench import trial
from autotune.bench.timing import Limits, Rules
from autotune.devices import (
    ArgumentError,
    BackendError,
    BuildError,
    Reading,
    Session,
    environment,
    find_device,
    list_devices,
    load_backend,
    open_session,
    require_usable,
    traits,
)
from autotune.model import DeviceInfo, Outcome
from autotune.study import Buffer, Launch, Plan, Scalar, Tolerance


class BackendContract:
    """The tests; `device` and `session` are fixtures of the class that inherits them, or these."""

    BACKEND: str
    COPY: str
    ADD: str
    MARK: str
    BROKEN: str

    @pytest.fixture
    def device(self) -> DeviceInfo:
        return find_device(f"{self.BACKEND}:0")

    @pytest.fixture
    def session(self, device: DeviceInfo) -> Session:
        return open_session(device)

    def test_a_device_is_found_by_its_number_and_travels(self, device: DeviceInfo) -> None:
        assert device in list_devices()
        assert find_device(device.number) == device
        assert pickle.loads(pickle.dumps(device)) == device
        assert device.backend == self.BACKEND
        assert device.memory > 0
        assert device.max_work_group_size > 0
        require_usable(device)
        assert load_backend(self.BACKEND).attach(object()) is None, "it is no queue"

    def test_traits_are_the_devices_and_plain_data(self, device: DeviceInfo, session: Session) -> None:
        assert pickle.loads(pickle.dumps(traits(device))) == session.traits == traits(device)
        assert session.info == device
        assert session.traits.builder_memory > 0

    def test_the_environment_keeps_builds_in_the_folder(self, device: DeviceInfo, tmp_path: Path) -> None:
        for worker in (True, False):
            found = environment(device, tmp_path, worker=worker)
            assert all(isinstance(value, str) for value in found.values())
            assert not traits(device).keeps_builds or any(str(tmp_path) in value for value in found.values())

    def test_bytes_come_back_as_they_were_written(self, session: Session) -> None:
        data, found = np.arange(50, dtype=np.float64).reshape(5, 10), np.zeros((2, 10))
        buffer = session.allocate(data.nbytes)
        session.write(buffer, data)
        session.read(buffer, found, 160)
        assert (found == data[2:4]).all()
        first = data[:1].copy()
        session.write(buffer, first, 320)
        first[:] = -1  # it was copied by then
        session.read(buffer, found, 240)
        assert (found == data[[3, 0]]).all()
        with pytest.raises(BackendError):
            session.write(session.allocate(2**50), data)  # a driver may allocate only what is used

    def test_a_fill_ends_at_its_last_byte(self, session: Session) -> None:
        buffer, found = session.allocate(16), np.zeros(16, np.uint8)
        session.fill(buffer, 0, 0, 16)
        session.fill(buffer, 0x04030201, 4, 7)
        session.read(buffer, found)
        assert found.tolist() == [0, 0, 0, 0, 1, 2, 3, 4, 1, 2, 3, 0, 0, 0, 0, 0]

    def test_a_region_is_a_part_of_its_buffer(self, session: Session) -> None:
        start = session.alignment
        buffer, found = session.allocate(start + 64), np.zeros(16, np.uint32)
        session.fill(buffer, 7, 0, start + 64)
        session.fill(session.region(buffer, start, 32), 9, 0, 32)
        session.read(buffer, found, start)
        assert found.tolist() == [9] * 8 + [7] * 8

    def test_a_copy_has_a_place_in_both(self, session: Session) -> None:
        source, target, found = session.allocate(32), session.allocate(32), np.zeros(8, np.int32)
        session.write(source, np.arange(8, dtype=np.int32))
        session.fill(target, 0, 0, 32)
        session.copy(source, target, 8, 4, 16)
        session.read(target, found)
        assert found.tolist() == [0, 0, 0, 0, 1, 2, 0, 0]

    def test_launches_run_in_order_and_are_timed(self, session: Session) -> None:
        program = session.build(self.ADD, ["-DSTEP=3"])
        kernel = program.kernel("add")
        assert kernel.num_args == 2
        a, total, found = session.allocate(4), session.allocate(4), np.zeros(1, np.int32)
        session.write(a, np.array([2], np.int32))
        session.fill(total, 0, 0, 4)
        session.set_arguments(kernel, [a, total])
        began = time.perf_counter_ns()
        first = session.launch(kernel, (1,), (1,))
        assert session.wait_until_running(first)
        session.read(total, found)  # waits
        assert found.tolist() == [5]
        since = time.perf_counter_ns()
        session.build(self.ADD, ["-DSTEP=4"])
        until = time.perf_counter_ns()
        last = session.launch(kernel, (1,), (1,))
        session.finish()
        ended = time.perf_counter_ns()
        session.read(total, found)
        assert found.tolist() == [10]
        alone, whole = [session.span_ns(one, one) for one in (first, last)], session.span_ns(first, last)
        assert min(alone) > 0
        assert max(sum(alone), (until - since) / 2) <= whole <= 2 * (ended - began), "in nanoseconds, as the host's"
        assert sum(alone) <= session.busy_ns() <= 2 * (ended - began)
        assert session.busy_ns() == 0

    def test_each_kernel_has_its_own_build_and_arguments(self, session: Session) -> None:
        kernels = [session.build(self.ADD, [f"-DSTEP={step}"]).kernel("add") for step in (3, 5)]
        program = session.build(self.ADD, ["-DSTEP=7"])
        kernels += [program.kernel("add"), program.kernel("add")]
        inputs, totals, found = [], [], np.zeros(1, np.int32)
        for number, kernel in enumerate(kernels):
            inputs.append(session.allocate(4))
            totals.append(session.allocate(4))
            session.write(inputs[-1], np.array([10 * number + 1], np.int32))
            session.fill(totals[-1], 0, 0, 4)
            session.set_arguments(kernel, [inputs[-1], totals[-1]])
        for kernel in kernels:
            session.launch(kernel, (1,), (1,))
        session.set_arguments(kernels[0], [totals[3]], 1)  # the launch that was enqueued keeps its own
        session.launch(kernels[0], (1,), (1,))
        read = []
        for total in totals:
            session.read(total, found)
            read += found.tolist()
        assert read == [1 + 3, 11 + 5, 21 + 7, 31 + 7 + 1 + 3]

    def test_a_launch_has_its_geometry(self, session: Session) -> None:
        kernel, target, found = session.build(self.MARK).kernel("mark"), session.allocate(128), np.zeros(32, np.int32)
        session.set_arguments(kernel, [target])
        for offset, (x, y) in ((None, (0, 0)), ((4, 2), (4, 2))):
            session.fill(target, 0, 0, 128)
            session.launch(kernel, (8, 4), (4, 2), offset)
            session.read(target, found)
            wanted = [40_000 + (x + column) + 100 * (y + row) for row in range(4) for column in range(8)]
            assert found.tolist() == wanted

    def test_a_program_tells_what_it_is(self, session: Session) -> None:
        program = session.build(self.ADD, ["-DSTEP=3"])
        limits = program.limits(program.kernel("add"))
        assert min(limits.work_group_size, limits.local_memory, limits.private_memory) >= 0
        assert isinstance(program.log, str)
        assert set(program.resources) <= {"registers", "spill_stores", "spill_loads"}
        if session.traits.hashes_binaries:
            assert program.binary == session.build(self.ADD, ["-DSTEP=3"]).binary

    def test_what_fails_is_said(self, session: Session) -> None:
        with pytest.raises(BuildError) as caught:
            session.build(self.BROKEN)
        assert caught.value.detail
        assert not caught.value.too_large
        program = session.build(self.ADD, ["-DSTEP=3"])
        with pytest.raises(BackendError):
            program.kernel("nobody")
        with pytest.raises(ArgumentError) as refused:
            session.set_arguments(program.kernel("add"), [session.allocate(4), "text"])
        assert refused.value.position == 1
        with pytest.raises(BackendError):
            session.launch(program.kernel("add"), (1,), (1,))  # without arguments

    def test_images_hold_what_was_written_or_are_refused(self, session: Session) -> None:
        if not session.info.images:
            with pytest.raises(BackendError, match="no images"):
                session.image((4, 3), "RGBA", "uchar", False)
            with pytest.raises(BackendError, match="no samplers"):
                session.sampler("clamp", "linear", False)
            return
        forms = [((12,), ""), ((4, 3), ""), ((2, 3, 2), ""), ((2, 3, 2), "array"), ((12,), "buffer")]
        for extents, form in forms:
            data, found = np.arange(48, dtype=np.uint8).reshape(*extents, 4), np.zeros((*extents, 4), np.uint8)
            image = session.image(extents, "RGBA", "uchar", False, form)
            session.write(image, data)
            session.read(image, found)
            assert (found == data).all()
            buffer, rest = session.allocate(128), np.zeros(48, np.uint8)
            session.copy(image, buffer, 48, 0, 16)
            session.read(buffer, rest, 16)
            assert (rest == data.reshape(-1)).all()
            session.write(buffer, rest[::-1].copy(), 64)
            session.copy(buffer, image, 48, 64, 0)
            session.read(image, found)
            assert (found.reshape(-1) == rest[::-1]).all()
        for shape, order in (((4, 3), "INTENSITY"), ((2**20, 2**20), "RGBA")):
            with pytest.raises(BackendError, match="has no images of 2 dimensions"):
                session.image(shape, order, "int", False)
        assert session.sampler("clamp_to_edge", "linear", True) is not None

    def test_sensors_tell_what_a_trial_may_keep(self, session: Session) -> None:
        found = session.sense()
        facts = found.facts() if found is not None else {}
        assert all(isinstance(value, str | int | float) and value == value for value in facts.values())
        assert set(facts) <= {field.name for field in fields(Reading)}

    def test_signatures_are_told_or_are_not(self, session: Session) -> None:
        told = session.signatures(self.ADD, ["-DSTEP=3"])
        assert [one.name for one in told.get("add", ())] in ([], ["a", "total"])

    def test_a_batch_is_only_asked_of_a_device_with_cores_of_its_own(self, session: Session) -> None:
        if session.traits.shares_cores or not session.traits.checks_on_device:
            return
        buffer, found = session.allocate(4), np.zeros(1, np.uint32)
        began = time.perf_counter_ns()
        with session.batch() as batch:
            session.fill(buffer, 5, 0, 4)
        ended = time.perf_counter_ns()
        session.read(buffer, found)
        assert 0 < batch.enqueued_ns <= batch.ns <= ended - began
        assert batch.held_ns == 0
        assert found.tolist() == [5]

    @pytest.mark.parametrize(
        ("count", "cache", "outcome", "reason"),
        [
            (100, "warm", Outcome.OK, ""),
            (100, "cold", Outcome.OK, ""),
            (99, "warm", Outcome.WRONG_RESULT, "1 of 100 values of target are wrong; first target[99] = "),
            (101, "warm", Outcome.WRONG_RESULT, "kernel wrote outside buffer target (canary after its end: "),
        ],
    )
    def test_a_plan_is_verified(
        self,
        session: Session,
        monkeypatch: pytest.MonkeyPatch,
        count: int,
        cache: str,
        outcome: Outcome,
        reason: str,
    ) -> None:
        monkeypatch.setattr(session, "cache", 2**20)  # to flush a large one takes seconds
        data = np.arange(1, 101, dtype=np.int32)
        arguments = {
            "n": Scalar("n", "int", count),
            "source": Buffer("source", "int", (100,), (100,)),
            "target": Buffer("target", "int", (100,), (100,), "out"),
        }
        launch = Launch("copy", (1,), (1,), tuple(arguments))
        plan = Plan(self.COPY, (), (launch,), arguments, {"target": Tolerance()}, cache)
        bench = trial.Bench(
            session,
            {"source": data},
            {"target": data},
            Rules(maximum=5, warmup=3, least_s=0.0),
            Limits(),
            lambda *_: None,
        )
        report = bench.run(plan, None)
        assert report.outcome is outcome, report.reason
        assert reason in report.reason
        if outcome is Outcome.OK:
            assert report.measurement is not None
