"""What waits for a device, and what may still be withdrawn."""

from __future__ import annotations

from autotune.engine.tasks import Task, Waiting
from autotune.plan import Plan


def task(name: str) -> Task:
    return Task({"NAME": name}, Plan("", (), (), {}))


def test_the_newest_are_withdrawn_and_what_was_claimed_is_not() -> None:
    waiting, tasks = Waiting(), [task(name) for name in "abcd"]
    for one in tasks:
        waiting.add(one)
    assert waiting.claim(tasks[2])
    assert [one["NAME"] for one in waiting.withdraw(leave=1)] == ["d", "b"]
    assert tasks[0] in waiting
    assert not waiting.claim(tasks[3])
    assert not waiting.claim(tasks[2]), "twice"
