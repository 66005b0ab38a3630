from __future__ import annotations

from autotune.study.rules import Argument


def test_data_is_what_the_user_gives_or_gets() -> None:
    every = [Argument("x", "float", access=access) for access in ("in", "out", "inout", "scratch", "zeroed")]
    assert [argument.access for argument in every if argument.is_data] == ["in", "out", "inout"]
