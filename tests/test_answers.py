"""What a worker sends is accepted only if it is an answer: a kernel may have changed anything in it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autotune.bench import Job, Onward, Phase, Ready, Report, Retime, Setup, Turn, Visit, Visited
from autotune.bench.messages import Batches
from autotune.model import Measurement, Outcome
from autotune.pool.answers import ANSWERS, is_answer
from autotune.study import Plan

PLAN = Plan("", (), (), {})
JOB, RETIME = Job(PLAN), Retime((PLAN, PLAN), None, 1.0)
VISIT = Visit(None, (PLAN, PLAN), None, ())  # type: ignore[arg-type]
TIMES = Measurement((10, 11), (12,))
OK = Report(Outcome.OK, measurement=TIMES, max_error=float("inf"), environment={"clock": 1980, "mark": "a", "w": -0.5})
MET = Visited(((10,), (11,)), 3, batches=Batches(4, 1.5, 2.0))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (None, None),
        (None, Phase("start", 60.0)),
        (JOB, OK),
        (JOB, Turn()),
        (JOB, replace(OK, measurement=Measurement((np.int64(3), 4)), max_error=np.float32(0.5))),
        (RETIME, [TIMES, OK]),
        (RETIME, replace(OK, place=1)),
        (RETIME, Phase("time", 3.0, 1, ("a hint",))),
        (RETIME, Onward((MET, Visited()))),
        (replace(RETIME, visited=(MET, MET)), [TIMES, TIMES]),
        (VISIT, Onward(())),
        (VISIT, Onward((MET, Visited(failure=OK)))),
        (VISIT, Turn()),
    ],
)
def test_what_workers_answer_is_taken(asked: Any, said: Any) -> None:
    assert is_answer(asked, said, may_ask=True)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (JOB, None),
        (JOB, "ok"),
        (JOB, [TIMES]),
        (JOB, Ready({})),
        (JOB, Onward(())),
        (JOB, replace(OK, outcome="ok")),
        (JOB, replace(OK, reason=None)),
        (JOB, replace(OK, place=1)),
        (JOB, replace(OK, build_s=float("nan"))),
        (JOB, replace(OK, busy_s=-1.0)),
        (JOB, replace(OK, environment=[])),
        (JOB, replace(OK, measurement=Measurement([10]))),  # type: ignore[arg-type]
        (JOB, replace(OK, measurement=Measurement((10, -1)))),
        (JOB, replace(OK, measurement=Measurement((10, 2**63)))),
        (JOB, replace(OK, measurement=Measurement((10, 1.5)))),  # type: ignore[arg-type]
        (JOB, Phase("run", float("inf"))),
        (JOB, Phase("run", 3.0, 1)),
        (RETIME, Turn()),
        (RETIME, [TIMES]),
        (RETIME, [TIMES, TIMES, TIMES]),
        (RETIME, [TIMES, None]),
        (RETIME, replace(OK, place=2)),
        (RETIME, Onward(())),
        (RETIME, Onward((MET,))),
        (RETIME, Onward((MET, Visited(((),))))),
        (RETIME, Onward((MET, replace(MET, batches=3)))),  # type: ignore[arg-type]
        (replace(RETIME, visited=(MET, MET)), Onward((MET, MET))),
        (VISIT, Onward((MET,))),
        (VISIT, OK),
        (Setup("", {}, {}, None, None, None), None),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_answer_is_not(asked: Any, said: Any) -> None:
    assert not is_answer(asked, said, may_ask=True)


def test_a_worker_asks_for_its_turn_once() -> None:
    assert not is_answer(JOB, Turn(), may_ask=False)


def test_all_that_may_be_asked_has_an_answer() -> None:
    assert {Setup, Job, Retime, Visit} <= ANSWERS.keys()
