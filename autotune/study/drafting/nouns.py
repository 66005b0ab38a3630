"""Usual names of a kernel's numbers that are not parameters: they say what is computed, how much, or how far."""

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
