"""What waits for a device, what may still be withdrawn, and which runs make way."""

from __future__ import annotations

from autotune.bench.report import Report
from autotune.bench.timing import Limits
from autotune.model import Outcome
from autotune.pool.tasks import Task, Waiting
from autotune.pool.way import MakingWay


def task(name: str) -> Task:
    return Task({"NAME": name})


def test_the_newest_are_withdrawn_and_what_was_claimed_is_not() -> None:
    waiting, tasks = Waiting(), [task(name) for name in "abcd"]
    for one in tasks:
        waiting.add(one, ready=False)
    assert waiting.claim(tasks[2])
    assert [one["NAME"] for one in waiting.withdraw(leave=1)] == ["d", "b"]
    assert tasks[0] in waiting
    assert not waiting.claim(tasks[3])
    assert not waiting.claim(tasks[2]), "twice"


def test_what_is_built_is_ready_while_it_waits() -> None:
    waiting, built, run, withdrawn = Waiting(), *map(task, "123")
    waiting.add(run, ready=True)
    assert waiting.any_ready()
    assert waiting.claim(run)
    waiting.add(built, ready=False)
    waiting.add(withdrawn, ready=False)
    assert not waiting.any_ready()
    assert waiting.withdraw(leave=1) == [withdrawn.configuration]
    assert not waiting.make_ready(withdrawn)
    assert not waiting.any_ready()
    assert waiting.make_ready(built)
    assert waiting.any_ready()


def report(verify_s: float = 1.0) -> Report:
    return Report(Outcome.TIMEOUT, "long", verify_s=verify_s, phase="run")


def way() -> MakingWay:
    """With a task that is ready."""
    waiting = Waiting()
    waiting.add(task("ready"), ready=True)
    return MakingWay(waiting, Limits(floor_s=2.0, first_s=5.0, multiple=10.0))


def test_a_run_makes_way_for_what_is_ready_alone() -> None:
    waiting = Waiting()
    gives_up = MakingWay(waiting, Limits(floor_s=2.0)).of(task("slow"))
    assert not gives_up("run", 2.0)
    waiting.add(task("ready"), ready=True)
    assert not gives_up("run", 1.9)
    assert not gives_up("build", 2.0)
    assert gives_up("run", 2.0)


def test_each_run_that_makes_way_doubles_what_the_next_may_take() -> None:
    making, slow = way(), task("slow")
    for ran_s in (2.0, 4.0, 8.0):
        gives_up = making.of(slow)
        assert not gives_up("run", ran_s - 0.1)
        assert gives_up("run", ran_s)
        assert making.made(slow, report())
    assert slow.lost_s == making.lost_s == 3.0
    assert not making.made(slow, report()), "that one ended by itself"


def test_two_devices_whose_runs_make_way_at_once_double_it_once() -> None:
    making, tasks = way(), [task("a"), task("b")]
    for one in tasks:
        assert making.of(one)("run", 2.0)
    for one in tasks:
        assert making.made(one, report())
    assert making.of(task("c"))("run", 4.0)


def test_what_made_way_runs_again_unless_it_has_run_as_long_as_it_may_by_now() -> None:
    making, slow = way(), task("slow")
    assert making.verdict(slow, None) is None
    assert making.of(slow)("run", 2.0)
    assert making.made(slow, report())
    assert making.verdict(slow, None) is None, "5 s while no best is known"
    assert making.verdict(slow, 1e9) is None, "10 s where the best takes one"
    assert making.verdict(slow, 1e6) == report(verify_s=0.0), "its last run is in lost_s"
