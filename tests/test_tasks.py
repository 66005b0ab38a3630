"""What waits for a device, and what may still be withdrawn."""

from __future__ import annotations

from autotune.pool.tasks import Task, Waiting
from autotune.study import Plan


def task(name: str) -> Task:
    return Task({"NAME": name}, Plan("", (), (), {}))


def test_the_newest_are_withdrawn_and_what_was_claimed_is_not() -> None:
    waiting, tasks = Waiting(2.0), [task(name) for name in "abcd"]
    for one in tasks:
        waiting.add(one, ready=False)
    assert waiting.claim(tasks[2])
    assert [one["NAME"] for one in waiting.withdraw(leave=1)] == ["d", "b"]
    assert tasks[0] in waiting
    assert not waiting.claim(tasks[3])
    assert not waiting.claim(tasks[2]), "twice"


def test_what_is_built_is_ready_while_it_waits() -> None:
    waiting, built, run, withdrawn = Waiting(2.0), *map(task, "123")
    waiting.add(run, ready=True)
    assert waiting.makes_way(2.0)
    assert waiting.claim(run)
    waiting.add(built, ready=False)
    waiting.add(withdrawn, ready=False)
    assert not waiting.makes_way(2.0)
    assert waiting.withdraw(leave=1) == [withdrawn.configuration]
    assert not waiting.make_ready(withdrawn)
    assert not waiting.makes_way(2.0)
    assert waiting.make_ready(built)
    assert waiting.makes_way(2.0)


def test_each_run_that_makes_way_doubles_what_the_next_may_take() -> None:
    waiting, slow, other = Waiting(2.0), task("slow"), task("other")
    waiting.add(other, ready=True)
    assert not waiting.makes_way(1.9)
    for ran_s in (2.0, 4.0, 8.0):
        assert not waiting.makes_way(ran_s - 0.1)
        assert waiting.makes_way(ran_s)
        waiting.put_back(slow, ran_s)
        assert waiting.claim(slow)


def test_two_devices_whose_runs_make_way_at_once_double_it_once() -> None:
    waiting = Waiting(2.0)
    for one in map(task, "ab"):
        waiting.put_back(one, 2.0)
    assert waiting.makes_way(4.0)
