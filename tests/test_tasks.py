"""What waits for a device, and what may still be withdrawn."""

from __future__ import annotations

from autotune.engine.tasks import Task, Waiting
from autotune.plan import Plan


def task(name: str) -> Task:
    return Task({"NAME": name}, Plan("", (), (), {}))


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
