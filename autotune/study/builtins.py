"""The reserved words of OpenCL C, and its functions, whose names a kernel may take."""

from __future__ import annotations

import re

_WORDS = """
    acos acosh acospi asin asinh asinpi atan atan2 atanh atanpi atan2pi cbrt ceil copysign cos cosh cospi erfc
    erf exp exp2 exp10 expm1 fabs fdim floor fma fmax fmin fmod fract frexp hypot ilogb ldexp lgamma lgamma_r
    log log2 log10 log1p logb mad maxmag minmag modf nan nextafter pow pown powr remainder remquo rint rootn
    round rsqrt sin sincos sinh sinpi sqrt tan tanh tanpi tgamma trunc abs abs_diff add_sat hadd rhadd clamp clz
    ctz mad_hi mad_sat max min mul_hi rotate sub_sat upsample popcount mad24 mul24 degrees mix radians step
    smoothstep sign cross dot distance length normalize fast_distance fast_length fast_normalize isequal
    isnotequal isgreater isgreaterequal isless islessequal islessgreater isfinite isinf isnan isnormal isordered
    isunordered signbit any all bitselect select barrier mem_fence read_mem_fence write_mem_fence prefetch
    async_work_group_copy async_work_group_strided_copy wait_group_events vec_step shuffle shuffle2 printf
    atomic_add atomic_sub atomic_xchg atomic_inc atomic_dec atomic_cmpxchg atomic_min atomic_max atomic_and
    atomic_or atomic_xor
"""
_NAMES = frozenset(_WORDS.split())

_FAMILIES = re.compile(
    r"(native|half)_(cos|divide|exp|exp2|exp10|log|log2|log10|powr|recip|rsqrt|sin|sqrt|tan)"
    r"|(convert|as)_(u?(char|short|int|long)|float|double|half)\d*\w*|v(load|store)a?(_half)?\d+"
)

_RESERVED = """
    auto bool break case char const continue default do double else enum extern float for goto half if inline int long
    register restrict return short signed sizeof static struct switch typedef union unsigned void volatile while
    event_t image1d_t image2d_t image3d_t ptrdiff_t sampler_t size_t intptr_t uintptr_t
"""
_WORDS_OF_C = frozenset(_RESERVED.split())
_QUALIFIERS = ("constant", "global", "kernel", "local", "private", "attribute")


def is_word(name: str) -> bool:
    """Whether a name is a reserved word of OpenCL C, which a macro of that name would replace."""
    return name in _WORDS_OF_C or name.removeprefix("__").removesuffix("__") in _QUALIFIERS


def is_access(name: str) -> bool:
    """Whether a name is an access qualifier of images in OpenCL C: few kernels use them, but drivers' headers do."""
    return name in ("read_only", "write_only", "read_write")


def is_builtin(name: str) -> bool:
    """Whether OpenCL C has a function of that name."""
    return name in _NAMES or _FAMILIES.fullmatch(name) is not None
