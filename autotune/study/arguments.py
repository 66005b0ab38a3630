"""A kernel's arguments, one class a kind: what a study declares (expressions) and what a plan holds (numbers).

docs/architecture.md says what to change to add a kind.
"""

from __future__ import annotations

from autotune.study.argument import BRACES, Argument, Data, Extent, extents, filled
from autotune.study.buffers import Buffer, Image, Sampler
from autotune.study.scalars import Local, Members, Scalar

KINDS: tuple[type[Argument], ...] = (Buffer, Image, Sampler, Scalar, Local)
