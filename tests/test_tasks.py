"""Who may run, and when: what waits, and what is kept back until the first has ended."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import pytest

from autotune.engine.tasks import Opening, Task, Waiting
from autotune.plan import Plan


def task(name: str) -> Task:
    return Task({"NAME": name}, Plan("", (), (), {}))


def names(queue: SimpleQueue[Any]) -> list[str]:
    return [queue.get_nowait().configuration["NAME"] for _ in range(queue.qsize())]


def test_the_newest_are_withdrawn_and_what_was_claimed_is_not() -> None:
    waiting, tasks = Waiting(), [task(name) for name in "abcd"]
    for one in tasks:
        waiting.add(one)
    assert waiting.claim(tasks[2])
    assert [one["NAME"] for one in waiting.withdraw(leave=1)] == ["d", "b"]
    assert tasks[0] in waiting
    assert not waiting.claim(tasks[3])
    assert not waiting.claim(tasks[2]), "twice"


def test_the_first_goes_through_at_once_and_the_others_when_it_has_ended() -> None:
    queue: SimpleQueue[Any] = SimpleQueue()
    opening, (first, second, third, late) = Opening(queue), map(task, "1234")
    for one in (first, second, third):
        opening.begin(one)
    opening.put(third)
    opening.put(second)
    assert names(queue) == []
    opening.put(first)
    assert names(queue) == ["1"]
    opening.end(third)
    assert names(queue) == []
    opening.end(first)
    assert names(queue) == ["3", "2"]
    opening.begin(late)
    opening.put(late)
    assert names(queue) == ["4"], "it opens once"


@pytest.mark.parametrize("ended", [True, False])
def test_nothing_is_kept_back_where_none_is_first(ended: bool) -> None:
    queue: SimpleQueue[Any] = SimpleQueue()
    opening, first = Opening(queue), task("1")
    if ended:
        opening.begin(first)
        opening.end(first)  # withdrawn while it was built
    opening.put(task("2"))
    assert names(queue) == ["2"]
