"""Partial results of work-groups that one kernel leaves for the next, which takes their number as an argument.

Then that number is not a size, which a user sets: it follows from the launch of the first kernel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from autotune.study.drafting.indices import words
from autotune.study.drafting.terms import Sum

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal
    from autotune.study.drafting.reading import Reading
    from autotune.study.drafting.uses import Uses


def counted(of: Proposal, uses: Uses) -> Iterator[tuple[str, str, list[Sum]]]:
    """Yield each such buffer, the argument that is its length, and the extents that its writer gives it."""
    for name in [name for name, one in of.arguments.items() if uses.access(one) == "scratch"]:
        first, *later = [entry for entry in of.launched if uses.kinds(entry, name)]
        made = _shape(of, first, name)
        divided = any("ceil_div(" in str(extent) for extent in made)
        for taken in (_shape(of, entry, name) for entry in later):
            count = str(taken[0]) if len(taken) == 1 else ""
            if divided and count in of.whole and count not in _elsewhere(of, uses, first, name):
                yield name, count, [Sum.of(_plain(str(extent))) for extent in made]
                break


def _shape(of: Proposal, entry: str, name: str) -> list[Sum]:
    return of.tuned[entry].shape(name, written=False, farthest=True) or []


def alike(readings: Mapping[str, Reading], entry: str) -> str:
    """Return an earlier kernel with the same work-group width, or an empty string.

    Both kernels use one place of the same buffer for each group.
    """
    mine = _by_group(readings[entry])
    for other, reading in readings.items():
        if other == entry:
            break
        if mine & _by_group(reading):
            return other
    return ""


def _by_group(reading: Reading) -> set[str]:
    """The buffers in which each group along the first axis has one place."""
    return {each.name for each in reading.mentions if [*each.places] == [Sum.of("wid#0")]}


def _elsewhere(of: Proposal, uses: Uses, first: str, name: str) -> set[str]:
    """The words in other buffers' extents and in launches, and the arguments of the kernel `first`."""
    extents = [str(extent) for other, shape in uses.shapes.items() if other != name for extent in shape]
    extents += [str(extent) for shapes in of.tuned.values() for extent in shapes.axes.values()]
    return {*words(" ".join(extents)), *(one.name for one in of.sketch.signatures[first])}


def _plain(extent: str) -> str:
    """Simplify a number of groups: `ceil_div(round_up(n, WG), WG)` is `ceil_div(n, WG)`."""
    return re.sub(r"ceil_div\(round_up\((.+), (\w+)\), \2\)", r"ceil_div(\1, \2)", extent)
