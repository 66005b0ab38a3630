"""The words that fill memory whose contents no kernel may rely on: outputs, scratch, local memory, guards.

A result that a kernel computes from such memory must come out wrong, be it a sum, a product by zero, or the minimum or
maximum of what it finds and what it computes. No single word achieves all of this: the maximum of a NaN and a number is
the number, and the minimum of two numbers may be the computed one. So each type has three words. One of the first two
is below, the other above all computed values; if a type has no such two, such words are among the three. A trial uses
two words, one before its first run and one before its last. All three are used in turn when a finalist is verified in
many runs, and when a reference runs again.
"""

from __future__ import annotations

from functools import cache

from autotune.study import is_struct, numpy_type

POISON = 0x7FFFA5A5
"""Fills the outputs of a reference, and the outputs of kernels if their reference left some values unwritten: a NaN as
half, float and double, and an unlikely integer."""

Words = tuple[int, int, int]

_ANY: Words = 0x7F800000, 0xFF7F5A5A, 0
"""For structs and local memory, whose types are mixed or unknown: infinity as a float, then a large negative number,
both large as integers too; then a value that is small for unsigned integers."""

_SPOILT: dict[str, Words] = {
    "f2": (0xFC00FC00, 0x7BF57BF3, 0),
    "f4": (0xFF800000, 0x7F7C6D5B, 0),
    "f8": (POISON, 0x7FE35A63, 0xC1435A63),  # no word repeated twice is infinity
    "i1": (0x83828180, 0x7C7D7E7F, 0),
    "i2": (0x800E8001, 0x7FE27FFE, 0),
    "i4": (0x80005A5A, 0x7FFF9696, 0),
    "i8": (0x80005A5A, 0x7FFF9696, 0),
    "u1": (0xFCFDFEFF, 0, 0x7C7D7E7F),
    "u2": (0xFFE2FFFE, 0, 0x7FE27FFE),
    "u4": (0xFFFFA5A5, 0, 0x7FFF9696),
    "u8": (0xFFFFA5A5, 0, 0x7FFF9696),
}
"""For floating-point types: minus infinity, which times zero is NaN; nearly the largest number; a number to which
another can be added, so that a reference that adds to it does not seem to have left it alone. For each type except
double, which needs all three, one word is as small as usual data: a kernel that leaves out numbers that are out of
range, such as a histogram, does not leave out this one. For small types the first and the second word have no byte in
common, so that an unwritten value is right by chance with one of them at most."""

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
"""For guards of inputs. They differ from the words that fill outputs in a first run, so that a value copied from beyond
an input's end does not look unwritten. One is as small as usual data, except for double."""

LOCAL = _ANY
"""Words that fill local memory."""

FENCE: Words = 0x3FD1B54A, 0xC1A54C2B, 0x3E9D4C2B
"""Fill the guards of buffers that a kernel may write. They are neither NaN nor large: arithmetic on such words gives
such a word again, so a kernel that runs over the ends of both an input and an output would leave it unchanged."""


@cache
def spoilt(kind: str) -> Words:
    """Return the words that fill outputs and scratch of a type; the first word is in no guard of an input."""
    return _ANY if is_struct(kind) else _SPOILT[numpy_type(kind)[0].str[1:]]


@cache
def beyond(kind: str) -> Words:
    """Return the words that fill the guards of inputs of a type: a kernel may read them, but must not rely on them."""
    return (0x7FFFC3C3, *_ANY[1:]) if is_struct(kind) else _BEYOND[numpy_type(kind)[0].str[1:]]
