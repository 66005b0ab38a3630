"""How often Python's threads take turns during a search."""

from __future__ import annotations

import sys

import pytest

from autotune.pool import quick_turns


def test_turns_are_quick_within_and_as_before_after() -> None:
    before = sys.getswitchinterval()
    with quick_turns():
        with quick_turns():
            assert sys.getswitchinterval() < before
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before


def test_the_last_to_end_sets_what_was_before_the_first() -> None:
    before = sys.getswitchinterval()
    first, second = quick_turns(), quick_turns()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() < before
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == before


def test_what_is_quicker_already_stays() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with quick_turns():
            assert sys.getswitchinterval() == pytest.approx(1e-5)
    finally:
        sys.setswitchinterval(before)
