"""Proposals for the extents of images, from the coordinates at which a kernel reads and writes them."""

from __future__ import annotations

import re
from abc import ABC

from autotune.study.drafting.axes import IMAGE_NAMES
from autotune.study.drafting.indices import Basis, coordinates
from autotune.study.drafting.limits import Limits
from autotune.study.drafting.reading import EXTENT
from autotune.study.drafting.terms import Sum

BEYOND = "by the indices that were understood; others may reach farther"
"""Why the extents of a buffer or an image are a guess."""


def extents_of(type_name: str) -> int | None:
    """Return how many extents an image of a type has in a study; None of what is no such image."""
    found = re.fullmatch(r"image(?:([123])d|(2d_array)|(1d_buffer))_t", type_name)
    return None if found is None else int(found[1] or (3 if found[2] else 1))


class Images(Limits, ABC):
    """The extents of images that one kernel's reading tells."""

    def __init__(self, basis: Basis) -> None:
        super().__init__(basis)
        self.doubts: dict[str, str] = {}
        """Why the extents of a buffer or an image are a guess."""

    def image(self, name: str, dimensions: int) -> list[Sum] | None:
        """Return the extents of an image in NumPy's order; None if its coordinates do not tell."""
        found: list[Sum | None] = [None] * dimensions
        for mention in [each for each in self.reading.mentions if each.name == name]:
            self._here = self.holding(mention)
            for place, coordinate in enumerate(mention.places[:dimensions]):
                if (shared := self._shared(coordinate)) is not None:
                    found[place] = found[place] or shared
                    continue
                started = self._started(coordinate)
                ids = self._axes_of(started)
                extent = self.axes.get(min(ids)) if len(ids) == 1 else self.upper(coordinate)
                several = started.factor_of(f"gid#{min(ids, default=0)}")
                bounded = bool(self.reading.guards_of(started)) and (several.number or 2) > 1
                if len(ids) == 1 and (not several or bounded):
                    extent = self.upper(coordinate)  # the id is within a quotient, or its multiple is bounded as it is
                elif extent is not None and len(ids) == 1 and several.known and (several.number or 2) > 1:
                    extent = extent * several
                found[place] = self._farther(found[place], extent, written=mention.writes)
                if any(re.match(r"\([^.]*(?:gid|wid)#\d.*\)\.#", each) for each in started.names):
                    self.doubts[name] = BEYOND  # a value of which only the ids in it are known
        self._here = []
        whole = [each for each in found if each is not None]
        return whole[::-1] if len(whole) == dimensions else None

    def _farther(self, one: Sum | None, other: Sum | None, *, written: bool) -> Sum | None:
        """Return the first of two extents; the larger one if both are of what is written, which no sampler clamps."""
        if one is None or other is None or not written:
            return one or other
        return max(one, other, key=lambda extent: self.elements([extent]))

    def _axes_of(self, coordinate: Sum) -> set[int]:
        """The axes whose ids are in a coordinate: one alone, if it steps farther than all else reaches."""
        ids = self._ids(coordinate)
        for axis in ids if len(ids) > 1 else ():
            step = coordinate.factor_of(f"gid#{axis}")
            reach = self.upper(coordinate - Sum.of(f"gid#{axis}") * step) if step.number else None
            if reach is not None and reach.number is not None and reach.number <= (step.number or 0):
                return {axis}
        return ids

    @property
    def normalized(self) -> bool:
        """Whether images are read at coordinates from 0 to 1."""
        return any(self._shared(place) is not None for place in coordinates(self.reading))

    def _shared(self, coordinate: Sum) -> Sum | None:
        """Return the extent that divides a coordinate from 0 to 1, w in `(float)x / w`; None for other coordinates."""
        alone = min(coordinate.names, default="") if len(coordinate.names) == 1 else ""
        value, by = self.reading.quotients.get(alone, (None, Sum())) if coordinate == Sum.of(alone) else (None, Sum())
        most = self.upper(value) if value is not None and by.names else None
        return most if most is not None and (most - self._named(by)).number is not None else None

    def unread_image(self, dimensions: int) -> list[Sum]:
        """Return assumed extents for an image that is read at coordinates that were not understood."""
        if len(self.axes) == dimensions:
            return [self.axes[axis] for axis in sorted(self.axes, reverse=True)]
        own = [self._named(Sum.of(f"{EXTENT}{axis}")) for axis in range(dimensions) if IMAGE_NAMES[0] in self.made]
        return own[::-1] or [Sum.of(128)] * dimensions
