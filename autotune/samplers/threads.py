"""Keeping numerical libraries to one thread where matrices are small."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """One thread of BLAS and OpenMP inside the block, in the libraries that were loaded at the first use.

    A proposal multiplies matrices of a few hundred rows: more threads save nothing, and while compilers keep
    the cores busy they wait for each other (measured on two busy cores: 23 s instead of 2 s).
    """
    limits: AbstractContextManager[object] = _controller().limit(limits=1)
    return limits
