"""The bench's own kernels, in OpenCL C.

They are: the checks of verify.py; one that clears the caches between runs; one that fills local memory before a run;
one that changes what a run has left; one that keeps the device busy while a batch is queued; and an empty one, which
shows how long a launch takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.devices import Memory, Session

EACH = """
/* Walk a range together: neighbouring items take neighbours on a GPU, each a stretch of its own on a CPU. */
#if CONTIGUOUS
#define EACH(i, from, to)                                                                    \\
    for (ulong each = ((to) - (from) + get_global_size(0) - 1) / get_global_size(0),         \\
               i = (from) + get_global_id(0) * each, end = min((ulong)(to), i + each); i < end; i++)
#else
#define EACH(i, from, to) for (ulong i = (from) + get_global_id(0); i < (to); i += get_global_size(0))
#endif
"""

CHECKS = (
    EACH
    + """
/* Counts the bytes of both guards, before the data and after it, that are no longer the word's. */
kernel void guards(global const uchar *whole, ulong start, ulong stop, ulong size, uint word, global uint *results,
                   uint slot) {
    uint before = 0, after = 0;
    EACH(i, 0, start)
        before += whole[i] != (uchar)(word >> 8 * (i & 3));
    EACH(i, stop, size)
        after += whole[i] != (uchar)(word >> 8 * (i & 3));
    if (before) atomic_add(results + 4 * slot, before);
    if (after) atomic_add(results + 4 * slot + 1, after);
}

/* A sum of mixed words: the order of summation does not matter, the place of each word does. */
kernel void checksum(global const uint *whole, ulong start, ulong stop, global uint *results, uint slot) {
    uint sum = 0;
    EACH(i, start, stop) {
        uint mixed = (whole[i] ^ (uint)i * 2654435761u) * 2246822519u;
        sum += mixed ^ mixed >> 15;
    }
    atomic_add(results + 4 * slot, sum);
}
#if IS_DOUBLE
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#if IS_HALF
#define LOAD(p, i) vload_half(i, p)
#else
#define LOAD(p, i) p[i]
#endif

/* Four words: wrong values, NaNs, ~(index of the first wrong one), largest error as a share of what is allowed. */
kernel void compare(global const TYPE *found, global const TYPE *expected, ulong start, ulong count, ulong4 extent,
                    ulong4 stride, REAL relative, REAL absolute, global uint *results, uint slot) {
    uint wrong = 0, nans = 0, first = 0;
    float worst = 0;
    EACH(i, 0, count) {
        ulong at = i;
        if (extent.s3 != count || stride.s3 != 1) {
            ulong row = i / extent.s3, plane = row / extent.s2;
            at = i % extent.s3 * stride.s3 + row % extent.s2 * stride.s2 + plane % extent.s1 * stride.s1
               + plane / extent.s1 * stride.s0;
        }
        REAL_OR_INT x = LOAD(found, start + at), e = LOAD(expected, i);
#if IS_INTEGER
        REAL error = (REAL)abs_diff(x, e), allowed = absolute + relative * (REAL)abs(e);
        bool same = x == e, is_nan = false;
#else
        REAL error = fabs(x - e), allowed = absolute + relative * fabs(e);
        bool same = x == e || (isnan(x) && isnan(e)),
             is_nan = isnan(x) && !isnan(e);
#endif
        if (same) continue;
        bool finite = error < INFINITY, right = finite && error <= allowed;  /* of an infinity all is allowed */
        float share = allowed > 0 && finite ? (float)(error / allowed) : INFINITY;
        worst = fmax(worst, share);
        nans += is_nan;
        if (!right) {
            wrong++;
            first = max(first, ~(uint)min(i, (ulong)UINT_MAX));
        }
    }
    results += 4 * slot;
    if (wrong) atomic_add(results, wrong);
    if (nans) atomic_add(results + 1, nans);
    if (wrong) atomic_max(results + 2, first);
    if (worst > 0) atomic_max(results + 3, as_uint(worst));
}
"""
)
"""Checks for one type of numbers: `verify.OnDevice` defines its macros."""

FLUSH = (
    EACH
    + """
kernel void flush(global uint *words, ulong count) {
    EACH(i, 0, count) words[i] = (uint)i;
}
"""
)

SPOIL = """
kernel void spoil(volatile local uint16 *lines, uint count, uint word) {
    for (uint i = get_local_id(0); i < count; i += get_local_size(0)) lines[i] = (uint16)word;
}
"""

DISTURB = (
    EACH
    + """
/* Changes about half of the words, by chance: those of one part, 0 or 1. */
kernel void disturb(global uint *words, ulong count, uint seed, uint part, uint change) {
    EACH(i, 0, count) {
        uint mixed = ((uint)i ^ seed) * 2654435761u;
        mixed = (mixed ^ mixed >> 15) * 2246822519u;
        if (mixed >> 31 == part) words[i] ^= change;
    }
}
"""
)

HOLDER = """
kernel void holder(global uint *word, uint turns) {
    uint v = word[0];
    for (uint i = 0; i < turns; ++i) v = v * 1664525u + 1013904223u;
    word[0] = v;
}
"""

EMPTY = "kernel void empty(global uint *word) {}\n"


def common_options(session: Session) -> list[str]:
    """Return the build options that all these sources need."""
    return [f"-DCONTIGUOUS={int(session.traits.shares_cores)}"]


_ITEMS, _GROUP = 64 * 1024, 64


def flusher(session: Session) -> Callable[[], None]:
    """Return a function that enqueues overwriting a buffer larger than the last-level cache. It has run once.

    A kernel overwrites the buffer where the device runs one, because a fill may bypass the caches.
    """
    size = min(2 * session.cache, session.info.memory // 8)
    buffer, kernel = session.allocate(size), None
    if session.traits.checks_on_device:
        kernel = session.build(FLUSH, common_options(session)).kernel("flush")
        session.set_arguments(kernel, (buffer, np.uint64(size // 4)))

    def flush() -> None:
        if kernel is None:
            session.fill(buffer, 0, 0, size)
        else:
            session.launch(kernel, (_ITEMS,), (_GROUP,))

    flush()
    session.finish()
    return flush


_LINE = 64  # bytes that one store of the spoiler fills

_GROUPS = 64
"""Work-groups for each compute unit, enough that no unit is left out: those of a CPU are threads, and each takes the
next group that is left."""


def spoiler(session: Session) -> Callable[[int, int], None]:
    """Return a function that enqueues filling local memory with a word, on every compute unit.

    Its arguments are the bytes to fill at least, and the word. The kernel is built here. Raises BackendError.
    """
    kernel = session.build(SPOIL, common_options(session)).kernel("spoil")
    items, most = _GROUP * _GROUPS * session.info.compute_units, session.info.local_memory // _LINE

    def spoil(nbytes: int, word: int) -> None:
        count = min(-(-nbytes // _LINE), most)
        session.set_arguments(kernel, (_LINE * count, np.uint32(count), np.uint32(word)))
        session.launch(kernel, (items,), (_GROUP,))

    return spoil


def disturber(session: Session) -> Callable[[Memory, int, int, int, int], None]:
    """Return a function that enqueues changing (by XOR) one part of two of a buffer's first `count` words.

    A seed decides which words belong to which part. The kernel is built here. Raises BackendError.
    """
    kernel = session.build(DISTURB, common_options(session)).kernel("disturb")

    def disturb(memory: Memory, count: int, seed: int, part: int, change: int) -> None:
        words = (np.uint64(count), np.uint32(seed), np.uint32(part), np.uint32(change))
        session.set_arguments(kernel, (memory, *words))
        session.launch(kernel, (_ITEMS,), (_GROUP,))

    return disturb


def ask(session: Session, source: str, options: Sequence[str], entry: str, found: NDArray[Any]) -> None:
    """Run a kernel whose only argument is a buffer, in one work-item, and read it into `found`. Raises BackendError."""
    kernel = session.build(source, options).kernel(entry)
    memory = session.allocate(found.nbytes)
    session.fill(memory, 0, 0, found.nbytes)
    session.set_arguments(kernel, [memory])
    session.launch(kernel, (1,), (1,))
    session.read(memory, found)
    session.busy_ns()  # releases the events
