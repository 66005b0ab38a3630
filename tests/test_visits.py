"""Finalists on other, simulated workers: which results count, which workers wait, and when it is enough."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from typing import Any, cast

import pytest

from autotune.bench import levels
from autotune.bench.messages import Batches, Onward, Retime, Setup, Visit, Visited
from autotune.bench.report import Report
from autotune.bench.timing import VERIFIED_S, Limits, Rules
from autotune.errors import WorkerError
from autotune.model import Outcome
from autotune.pool import visits
from autotune.pool.keeper import Closed, Keeper
from autotune.pool.process import WorkerDied, WorkerOverran
from autotune.pool.visits import Tour, Turns, most_visitors
from autotune.study import Buffer, Launch, Plan, Tolerance

SETUP = Setup("", {}, {}, None, Rules(), Limits())
BUFFERS = {name: Buffer(name, "float", (1024,), (1024,), access) for name, access in (("a", "in"), ("b", "out"))}
PLAN = Plan("", (), (Launch("f", (1,), (1,), ("a", "b")),), BUFFERS, {"b": Tolerance()})
WRONG = Report(Outcome.WRONG_RESULT, "wrong")

Answer = Callable[[Visit], Sequence[Visited]]


class Simulated:
    """A keeper whose worker answers a visit; it records the requests, and which ones had a turn meanwhile."""

    timing = 0

    def __init__(self, answer: Answer, *, takes: int = 1) -> None:
        self._answer = answer
        self._takes = takes
        self.asked: list[Visit] = []
        self.given: list[float] = []

    def ask(self, message: Visit, limit_s: float, on_built: Callable[[], float]) -> object:
        self.asked.append(message)
        for _ in range(self._takes):
            self.given.append(on_built())
        if self._takes:
            Simulated.timing += 1
            assert Simulated.timing == 1
        try:
            return Onward(tuple(self._answer(message)))
        finally:
            Simulated.timing -= bool(self._takes)


def taking(*times: int) -> Answer:
    """Answer with a time for each that has not failed, and two verified runs."""

    def answer(asked: Visit) -> Sequence[Visited]:
        return [one if one.failure else Visited(((ns,),), 2) for ns, one in zip(times, asked.known, strict=True)]

    return answer


def raising(error: Exception) -> Answer:
    def answer(asked: Visit) -> Sequence[Visited]:
        raise error

    return answer


def keepers(*simulated: Simulated) -> list[Keeper]:
    return cast("list[Keeper]", list(simulated))


def tour(home: Sequence[Visited], budget_s: float = 60.0, *, doubted: bool = False) -> Tour:
    return Tour(Retime((PLAN,) * len(home), 5.0, budget_s), Onward(tuple(home), doubted), SETUP, 1.0)


HOME = (Visited(((7, 7, 7),), 4, batches=Batches(3, 5.0, 6.0)), Visited(((9, 9, 9),), 4))


@pytest.mark.parametrize("workers", [1, 3, levels.TOGETHER, 9])
def test_workers_visit_again_and_again_until_it_is_settled(workers: int) -> None:
    some = [Simulated(taking(100 + place % 2 * 20, 200)) for place in range(workers)]
    found = tour(HOME).visited(keepers(*some))
    count = len(found[0].visits)
    told = [sum(len(one.asked) for one in some), len(found[1].visits)]
    assert told == [count, count]
    least = levels.VISITS if workers == 1 else levels.MOST_VISITS  # a single one always tells the same
    assert least <= count < least + levels.TOGETHER
    assert max(len(one.asked) for one in some) - min(len(one.asked) for one in some) <= 1
    assert [one.verified for one in found] == [4 + 2 * count] * 2
    assert found[0].batches == HOME[0].batches
    assert {visit[0] for visit in found[1].visits} == {200}  # those at home do not count


def test_who_visits_is_told_how_long_batches_are_and_not_how_long_runs_took() -> None:
    one = Simulated(taking(100, 200))
    tour(HOME).visited(keepers(one))
    assert one.asked[0].known == (Visited(batches=HOME[0].batches), Visited())
    assert one.asked[0].setup is SETUP


def test_a_single_plan_is_visited_once_by_one() -> None:
    some = [Simulated(taking(100)) for _ in range(3)]
    (found,) = tour((Visited(),)).visited(keepers(*some))
    assert found.visits == ((100,),)
    assert [len(one.asked) for one in some] == [1, 0, 0]


def test_all_that_visit_together_are_prepared_before_one_times() -> None:
    prepared = threading.Barrier(levels.TOGETHER)

    class Preparing(Simulated):
        def ask(self, message: Visit, limit_s: float, on_built: Callable[[], float]) -> object:
            prepared.wait(60.0)  # none has a turn before all are here
            return super().ask(message, limit_s, on_built)

    some = [Preparing(taking(100, 200)) for _ in range(levels.TOGETHER)]
    tour(HOME).visited(keepers(*some))
    assert all(0 < given <= 60.0 - VERIFIED_S for one in some for given in one.given)


@pytest.mark.parametrize("budget_s", [-1.0, 0.0])
def test_where_it_is_late_nobody_visits_and_the_times_at_home_count(budget_s: float) -> None:
    one = Simulated(taking(100, 200))
    assert tour(HOME, budget_s).visited(keepers(one)) == HOME
    assert not one.asked


@pytest.mark.parametrize("count", [2, levels.SAMPLES])
def test_of_few_visits_those_at_home_count_too(count: int) -> None:
    answers = iter([*[[Visited(((100,),)), Visited(((200,),))]] * count, []])
    found = tour(HOME).visited(keepers(Simulated(lambda _: next(answers))))
    few = count < levels.SAMPLES
    assert found[0].visits == (*((100,),) * count, *((7, 7, 7),) * few)


@pytest.mark.parametrize(
    ("share", "doubted", "goes_on"),
    [(0.4, False, False), (0.75, False, True), (0.75, True, False), (1.5, True, True)],
)
def test_the_middle_of_short_launches_is_to_be_known_twice_as_well_as_is_asked(
    share: float, doubted: bool, goes_on: bool
) -> None:
    times = (10_000, round(10_000 * (1 + share * Rules().target / 0.515)))
    answers = cycle([[Visited(((ns,),)), Visited(((2 * ns,),))] for ns in times])
    found = tour(HOME, doubted=doubted).visited(keepers(Simulated(lambda _: next(answers))))
    assert (len(found[0].visits) > levels.VISITS) is goes_on


THREE = (Visited(((1000, 1001, 990),), 4), Visited(((2000,),), 4), Visited(((9000,),), 4))


def test_where_first_finalists_take_alike_on_a_few_sessions_nobody_else_visits() -> None:
    some = [Simulated(taking(1000 + place, 2005)) for place in range(levels.TOGETHER + 1)]
    found = tour(THREE, doubted=True).visited(keepers(*some))
    assert found == tuple(Visited((), 4) for _ in THREE)  # all are to be timed at home
    assert [[len(asked.plans) for asked in one.asked] for one in some] == [[2]] * levels.TOGETHER + [[]]


@pytest.mark.parametrize("home", [THREE, (THREE[0], Visited(failure=WRONG), THREE[2])])
def test_where_first_finalists_take_longer_on_one_session_all_are_visited(home: Sequence[Visited]) -> None:
    slow = 1 + levels.APART + 0.005
    times = [round(slow * ns) for ns in (1000, 2000, 9000)]
    some = [Simulated(lambda asked: taking(*times[: len(asked.plans)])(asked)) for _ in range(2)]
    found = tour(home, doubted=True).visited(keepers(*some))
    assert len(found[0].visits) == len(found[2].visits) == levels.VISITS
    assert [len(asked.plans) for asked in some[0].asked][:2] == [2, 3]


def test_what_fails_as_it_is_to_show_whether_sessions_differ_is_visited_with_all() -> None:
    one = Simulated(lambda asked: [Visited(failure=WRONG), *[Visited(((9,),)) for _ in asked.plans[1:]]])
    found = tour(HOME, doubted=True).visited(keepers(one))
    assert found[0].failure == WRONG


@pytest.mark.parametrize("answer", [[], [Visited(failure=WRONG)] * 2])
def test_where_nobody_has_room_or_all_have_failed_no_session_is_found_to_differ(answer: list[Visited]) -> None:
    home = [replace(one, failure=one.failure or (WRONG if answer else None)) for one in HOME]
    found = tour(home, doubted=True).visited(keepers(Simulated(lambda _: answer)))
    assert [one.visits for one in found] == [(), ()]


def test_what_is_wrong_for_one_is_left_out_from_then_on() -> None:
    first = Simulated(lambda asked: [Visited(((100,),)), Visited(failure=WRONG)])
    others = [Simulated(taking(100, 200)) for _ in range(levels.TOGETHER - 1)]
    found = tour(HOME).visited(keepers(first, *others))
    assert found[1].failure == WRONG
    assert len(found[0].visits) >= levels.VISITS
    assert first.asked[1].known[1].failure == WRONG


@pytest.mark.parametrize("home", ["", "sw_thermal_slowdown"])
def test_what_throttled_the_device_in_any_visit_is_told(home: str) -> None:
    some = [Simulated(taking(100, 200)) for _ in range(levels.TOGETHER)]
    hot = Simulated(lambda asked: [Visited(((100,),), throttled="hw_slowdown"), Visited(((200,),))])
    known = [replace(one, throttled=home) for one in HOME]
    found = tour(known).visited(keepers(*some, hot))
    assert [one.throttled for one in found] == ["hw_slowdown", home]


def test_where_all_are_wrong_it_is_over() -> None:
    one = Simulated(lambda asked: [Visited(failure=WRONG)] * 2)
    found = tour(HOME).visited(keepers(one))
    assert [one.failure for one in found] == [WRONG, WRONG]
    assert len(one.asked) == 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (WorkerDied("time", 1, 11, "a fault"), Outcome.CRASH),
        (WorkerOverran("run", 1, 20.0), Outcome.TIMEOUT),
    ],
)
def test_who_takes_a_visitor_down_has_failed_and_the_others_are_visited(error: Exception, outcome: Outcome) -> None:
    answers = iter([raising(error)])
    well = taking(100, 200)
    found = tour(HOME).visited(keepers(Simulated(lambda asked: next(answers, well)(asked))))
    assert found[0].failure is None
    assert {visit[0] for visit in found[0].visits} == {100}
    assert found[1].failure is not None
    assert found[1].failure.outcome is outcome
    assert str(error) in found[1].failure.reason


@pytest.mark.parametrize(
    "error",
    [
        WorkerDied("time", 1, 9, ""),  # SIGKILL: it was out of memory
        WorkerDied("start", 0, 11, "the driver"),
        WorkerDied("idle", 0, 11, "the driver"),
        WorkerOverran("start", 0, 60.0),
        WorkerError("no worker can be started"),
    ],
)
def test_a_visitor_that_is_lost_is_no_finalists_doing(error: Exception) -> None:
    one = Simulated(raising(error))
    assert tour(HOME).visited(keepers(one)) == HOME
    assert len(one.asked) == 1


def test_those_that_were_well_count_where_another_is_lost() -> None:
    some = [Simulated(taking(100 + place, 200)) for place in range(levels.TOGETHER - 1)]
    lost = Simulated(raising(WorkerDied("time", 1, 9, "")))
    found = tour(HOME).visited(keepers(some[0], lost, *some[1:]))
    assert [visit[0] for visit in found[0].visits] == [100, 101, 102, 7]


def test_a_search_that_closes_meanwhile_ends_the_tour() -> None:
    with pytest.raises(Closed):
        tour(HOME).visited(keepers(Simulated(raising(Closed())), Simulated(taking(1, 2))))


def test_who_never_comes_to_time_holds_nobody_up() -> None:
    silent, one = Simulated(raising(WorkerError("lost")), takes=0), Simulated(taking(100, 200))
    found = tour(HOME).visited(keepers(silent, one))
    assert found[0].visits == ((100,), (7, 7, 7))


def test_who_asks_again_for_its_turn_still_has_it() -> None:
    """As a worker does that replaces one that was ended from outside."""
    one = Simulated(taking(100, 200), takes=2)
    tour(HOME).visited(keepers(one, Simulated(taking(100, 200))))
    assert len(one.given) == 2 * len(one.asked)


def test_nobody_times_while_another_prepares() -> None:
    turns, order, takes = Turns(2, 1e9), list[str](), threading.Event()

    def visit() -> None:
        with turns.visitor() as take:
            takes.set()
            take()
            order.append("times")

    with ThreadPoolExecutor(1) as threads:
        with turns.visitor():
            first = threads.submit(visit)
            assert takes.wait(60.0)
            while turns._preparing > 1:
                os.sched_yield()
            order.append("prepared")
        first.result(60.0)
    assert order == ["prepared", "times"]


def test_turns_are_taken_one_after_another() -> None:
    turns, at_once, most = Turns(6, 1e9), threading.Semaphore(1), list[Any]()

    def visit(_: int) -> None:
        with turns.visitor() as take:
            take()
            most.append(at_once.acquire(blocking=False))
            at_once.release()

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(visit, range(6)))
    assert most == [True] * 6


def test_together_visitors_take_a_part_of_the_devices_memory() -> None:
    size = sum(buffer.nbytes for buffer in BUFFERS.values())
    assert most_visitors((PLAN, PLAN), 3 * visits._SHARE * size) == 3
    assert most_visitors((PLAN,), 0) == 1
