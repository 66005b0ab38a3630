"""Keeping numerical libraries to one thread where matrices are small."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

import scipy.linalg.blas  # noqa: F401  (its library must be loaded before the controller looks for it)
from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """One thread of BLAS and OpenMP inside the block.

    A proposal multiplies matrices of a few hundred rows: more threads save nothing, and while compilers keep
    the cores busy they wait for each other (measured on two busy cores: 23 s instead of 2 s).
    """
    limits: AbstractContextManager[object] = _controller().limit(limits=1)
    return limits
