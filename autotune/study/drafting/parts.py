"""What a kernel leaves for the next, a part of each work-group, where that is told by a number how many there are.

The number is then no size, which a user sets: it follows from how the one before is launched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from autotune.study.drafting.indices import words
from autotune.study.drafting.terms import Sum

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal
    from autotune.study.drafting.uses import Uses


def counted(of: Proposal, uses: Uses) -> Iterator[tuple[str, str, list[Sum]]]:
    """Yield each such buffer, the number that tells how long it is, and the extents that its writer gives it."""
    for name in [name for name, one in of.arguments.items() if uses.access(one) == "scratch"]:
        first, last = (
            next((entry for entry in order if uses.kinds(entry, name)), "")
            for order in (of.launched, of.launched[::-1])
        )
        made, taken = (of.tuned[entry].shape(name, written=False, farthest=True) or [] for entry in (first, last))
        count = str(taken[0]) if len(taken) == 1 else ""
        depends = {word for extent in made for word in words(str(extent))} & {*of.parameters, *of.extra}
        if depends and count in of.whole and count not in _elsewhere(of, uses, first, name):
            yield name, count, [Sum.of(_plain(str(extent))) for extent in made]


def _elsewhere(of: Proposal, uses: Uses, first: str, name: str) -> set[str]:
    """The words in the extents of other buffers and of launches, and the arguments of the kernel that writes one."""
    extents = [str(extent) for other, shape in uses.shapes.items() if other != name for extent in shape]
    extents += [str(extent) for shapes in of.tuned.values() for extent in shapes.axes.values()]
    return {*words(" ".join(extents)), *(one.name for one in of.sketch.signatures[first])}


def _plain(extent: str) -> str:
    """Return how many groups there are in plainer words: what is rounded up and divided is divided."""
    return re.sub(r"ceil_div\(round_up\((.+), (\w+)\), \2\)", r"ceil_div(\1, \2)", extent)
