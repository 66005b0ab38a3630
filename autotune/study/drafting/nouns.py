"""Usual names of a kernel's numbers: they say what is computed, how much, how far, or how wide a work-group is."""

from __future__ import annotations

import re

TASK_NAME = re.compile(
    r"^(r|.*radius|taps|.*halo|degree|max_?iter(ation)?s?|(filter|mask|stencil)_?(size|width|height))$", re.IGNORECASE
)
"""Names of macros that are probably not tuned: with another value the kernel computes something else."""
COUNT_NAME = re.compile(
    r"^([nmk]|n_?[xyz]|width|height|(n|num)_?(queens|bodies|particles|points|elements)"
    r"|(board|grid|matrix|problem|image|array|data)_?(size|width|height|length|dim))$",
    re.IGNORECASE,
)
"""Names of macros that are sizes of the problem."""
SMALL_NAME = re.compile(
    r"^(r|.*radius|taps|order|seed|iters?|(.*_)?iterations?|n?steps?|(.*_)?offset|.*stride|(.*_)?inc|alpha|beta"
    r"|(.*_)?(strides?|dilations?|kernel|filter|mask|window|stencil|pads?|padding)"
    r"(_?(size|shape|width|height|top|left|wh|hw|[whxy]))+"
    r"|(.*_)?(halo|border|margin|apron|pad|padding)(_?(size|width|height|rows|cols|left|right|top|bottom|[xyz]))?)$",
    re.IGNORECASE,
)
"""Names of numbers that are probably not a large size."""
WINDOW_NAME = re.compile(r"^(.*_)?(filter|mask|window|stencil)(_?(size|width|height|[whxy]))+$", re.IGNORECASE)
"""Names of small numbers that are the extent of a window, which has a middle and something around it."""
MUCH_NAME = re.compile(
    r"^[nmkwhNMKWH]$|^n[a-z0-9]?$|^(n|num)[A-Z_0-9]|(?i:size|width|height|depth|len|count|rows?$|cols?$|bytes|dim|total|elem|items|points|pixels)"
)
"""Names of arguments that say how much there is."""

_EXTENT = re.compile(
    r"(WG|WGS|LWS|WORK_?GROUP|GROUP|LOCAL|BLOCK|THREADS?|TB|BS|LS)(_?SIZE|_?DIM)?_?[XYZ012]?|[WLB][XYZ]", re.IGNORECASE
)
"""Names of macros that can only be extents of a work-group."""
_NEAR_EXTENT = re.compile(r"(^|_)(WG|WGS|LWS|GROUP|BLOCK|LOCAL|THREADS|BS|LS)|DIM", re.IGNORECASE)
"""What names of macros contain that are probably extents of a work-group."""
SIDE_NAME = re.compile(r"(^|[A-Z0-9]_?|_)[XYZ]$|(TILE|SIZE)", re.IGNORECASE)
"""What names of macros contain that may be extents although the kernel itself does not use them."""
GROUPS_NAME = re.compile(r"(GROUPS|BLOCKS|TILES)($|_)|^(NUM|N)_|_(COUNT|NUM)$|^N(GROUPS|BLOCKS|THREADS)", re.IGNORECASE)
"""What names contain that say how many work-groups there are."""


def is_extent_name(name: str) -> bool:
    """Whether a macro can only be the extent of a work-group, by its name."""
    return _EXTENT.fullmatch(name) is not None


def is_of_group(name: str) -> bool:
    """Whether a macro's name suggests the extent of a work-group, or the number of work-groups."""
    return is_extent_name(name) or bool(_NEAR_EXTENT.search(name) or GROUPS_NAME.search(name))
