"""How long a run may take while no best is known."""

from __future__ import annotations

from autotune.engine.patience import Patience
from autotune.engine.report import Limits

LIMITS = Limits(floor_s=2.0, first_s=10.0, multiple=20.0)


def test_a_run_that_nobody_waits_for_has_its_time() -> None:
    assert Patience(LIMITS).limit_s(None, others_wait=False) == 10


def test_a_known_best_sets_the_limit_and_what_overruns_it_is_done() -> None:
    patience = Patience(LIMITS)
    for others_wait in (False, True):
        assert patience.limit_s(1e6, others_wait=others_wait) == 2
        assert patience.limit_s(2e8, others_wait=others_wait) == 4
    assert not patience.tries_again(2.0, 1e6)
    assert patience.limit_s(None, others_wait=True) == 2


def test_what_overruns_is_tried_again_with_twice_the_time_until_it_had_all_there_is() -> None:
    patience, given = Patience(LIMITS), []
    while not given or patience.tries_again(given[-1], None):
        given.append(patience.limit_s(None, others_wait=True))
    assert given == [2, 4, 8, 10]


def test_two_devices_that_overrun_the_same_limit_double_it_once() -> None:
    patience = Patience(LIMITS)
    assert patience.tries_again(2.0, None)
    assert patience.tries_again(2.0, None)
    assert patience.limit_s(None, others_wait=True) == 4


def test_a_run_limit_below_the_floor_is_kept() -> None:
    patience = Patience(Limits(first_s=1.0))
    assert patience.limit_s(None, others_wait=True) == 1
    assert not patience.tries_again(1.0, None)
