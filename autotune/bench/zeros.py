"""Finds out whether a result is wrong because a kernel expects zeros in memory: it runs again with zeros there.

Drivers usually have zeros in new memory, and the program that a kernel was written for may have written them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from autotune.bench.prepare import TO_ZERO, Built


def cure_by_zeros(built: Built, is_right: Callable[[Collection[str]], bool], *, marked: bool) -> str:
    """Say which outputs and scratch must hold zeros for a plan to be right. Empty if zeros do not make it right.

    `is_right` runs the plan with zeros in the named buffers, and says whether it is right. If outputs are `marked`,
    zeros in them are wrong.
    """
    kinds = ("scratch",) if marked else ("scratch", "out")
    access = {one.buffer.name: one.buffer.access for one in built.buffers if one.buffer.access in kinds}
    if not access or not is_right(access):
        return ""
    needed = [name for name in access if len(access) == 1 or not is_right(access.keys() - {name})]
    cures = [f"write {TO_ZERO[access[name]]} for {name}" for name in needed or access]
    return f"right only with zeros in {' and '.join(needed or access)} before a run: if intended, {', '.join(cures)}"
