"""The words that fill memory of which no kernel may count on anything: outputs, scratch, local memory, guards.

What a kernel makes of such memory is to be wrong: a sum, a product by zero, the lesser, the larger of what it finds and
what it computes. No word shows all of these: the larger of a NaN and a number is the number, the lesser of two numbers
may be the one that was computed. So there are three for each type, one below and one above all that is computed among
the first two, or where a type has no such two, among the three. A trial takes two in turn, before its first run and
before its last; all three take turns as a finalist is verified in many runs, and as a reference runs again.
"""

from __future__ import annotations

from functools import cache

from autotune.study import is_struct, numpy_type

POISON = 0x7FFFA5A5
"""Fills the outputs of a reference, and those of kernels where that left some unwritten: a NaN as half, float and
double, and an unlikely integer."""

Words = tuple[int, int, int]

_ANY: Words = 0x7F800000, 0xFF7F5A5A, 0
"""Of structs and local memory, whose types are many or not known: infinity as a float, then a large negative number,
each a large integer too; then what is small for unsigned integers."""

_SPOILT: dict[str, Words] = {
    "f2": (0xFC00FC00, 0x7BF57BF3, 0),
    "f4": (0xFF800000, 0x7F7C6D5B, 0),
    "f8": (POISON, 0x7FE35A63, 0xC1435A63),  # no word that is said twice is infinity
    "i1": (0x83828180, 0x7C7D7E7F, 0),
    "i2": (0x800E8001, 0x7FE27FFE, 0),
    "i4": (0x80005A5A, 0x7FFF9696, 0),
    "i8": (0x80005A5A, 0x7FFF9696, 0),
    "u1": (0xFCFDFEFF, 0, 0x7C7D7E7F),
    "u2": (0xFFE2FFFE, 0, 0x7FE27FFE),
    "u4": (0xFFFFA5A5, 0, 0x7FFF9696),
    "u8": (0xFFFFA5A5, 0, 0x7FFF9696),
}
"""Of floating-point types minus infinity, which times zero is NaN, then nearly the largest number, then one to which
another can be added: a reference that adds to it is not to seem to have left it alone. Of each type but double, which
needs all three, one is as small as data are: what leaves out numbers that are out of range, as a histogram does, takes
that. The first and the second of small values have no byte in common, so that what is left unwritten is right by chance
on one of them at most."""

_BEYOND: dict[str, Words] = {
    "f2": (0x7C007C00, 0xDC55DC59, 0),
    "f4": (0x7F800000, 0xCB3A5E69, 0),
    "f8": (0x7FFFC3C3, 0x41433C3C, 0xC1433C3C),
    "i1": (0x7874767A, 0x8685848C, 0),
    "i2": (0x7FD37FC3, 0x80208010, 0),
    "i4": (0x7FFFC3C3, 0x80003C3C, 0),
    "i8": (0x7FFFC3C3, 0x80003C3C, 0),
    "u1": (0xF5F6F4F7, 0x01010101, 0x7874767A),
    "u2": (0xFFC3FFD3, 0x00010001, 0x7FC37FD3),
    "u4": (0xFFFFC3C3, 0x00000001, 0x7FFFC3C3),
    "u8": (0xFFFFC3C3, 0, 0x7FFFC3C3),
}
"""Not the words that fill outputs in a first run: what a kernel copies from beyond an input's end is not unwritten.
One is as small as data are, but for double."""

LOCAL = _ANY
"""Fill local memory."""

FENCE: Words = 0x3FD1B54A, 0xC1A54C2B, 0x3E9D4C2B
"""Fill the guards of what a kernel may write. No NaN, nothing large: arithmetic on what lies beyond an input's end and
beyond an output's gives such a word again, so that a kernel that runs over the ends of both would leave it."""


@cache
def spoilt(kind: str) -> Words:
    """Return the words that fill outputs and scratch of a type, a first one that no guard of an input has."""
    return _ANY if is_struct(kind) else _SPOILT[numpy_type(kind)[0].str[1:]]


@cache
def beyond(kind: str) -> Words:
    """Return the words that fill the guards of inputs of a type, which may be read but not counted on."""
    return (0x7FFFC3C3, *_ANY[1:]) if is_struct(kind) else _BEYOND[numpy_type(kind)[0].str[1:]]
