"""Whether a wrong result comes of memory that a kernel takes for zeros: it runs again where there are some.

A driver has zeros in new memory as a rule, and the program that a kernel was written for may have put them there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from autotune.bench.prepare import Built

_CURES = {
    "scratch": 'access = "zeroed"',
    "out": 'access = "inout" with data = { distribution = "constant", value = 0 }',
}


def cure_by_zeros(built: Built, is_right: Callable[[Collection[str]], bool], *, marked: bool) -> str:
    """Say which outputs and scratch have to hold zeros for a plan to be right; empty: zeros do not make it so.

    `is_right` runs it with zeros in the buffers that are named, and tells. Where outputs are `marked`, zeros are wrong.
    """
    kinds = ("scratch",) if marked else ("scratch", "out")
    access = {one.buffer.name: one.buffer.access for one in built.buffers if one.buffer.access in kinds}
    if not access or not is_right(access):
        return ""
    needed = [name for name in access if len(access) == 1 or not is_right(access.keys() - {name})]
    cures = [f"write {_CURES[access[name]]} for {name}" for name in needed or access]
    return f"right with zeros in {' and '.join(needed or access)} before a run: if they are meant, {', '.join(cures)}"
