"""How long a run goes on while others are ready."""

from __future__ import annotations

from autotune.engine.patience import Patience


def test_each_that_made_way_doubles_what_the_next_may_take() -> None:
    patience, given = Patience(2.0), []
    for _ in range(3):
        given.append(patience.seconds)
        patience.lengthen(given[-1])
    assert given == [2, 4, 8]


def test_two_devices_that_make_way_at_once_double_it_once() -> None:
    patience = Patience(2.0)
    patience.lengthen(2.0)
    patience.lengthen(2.0)
    assert patience.seconds == 4
