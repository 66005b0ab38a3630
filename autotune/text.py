"""Text of others made safe where it is shown: on a terminal, in JSON or TOML, in a C header. Standard library only.

What a database, a study, a driver or a compiler says may hold escape sequences that move a terminal's cursor,
line breaks that forge a line of ours, or marks that show text in another order than it stands in.
"""

from __future__ import annotations

import re

_C_MARKS = re.compile(r"\*/|/\*|\?\?/|\\$")


def line(text: str) -> str:
    """Return text as one line of visible characters: breaks become spaces, other controls `\\x1b` or `\\u202e`."""
    if text.isprintable():  # controls, line and paragraph breaks, bidi marks and lone surrogates are not
        return text
    return _visible(re.sub(r"\s*[\r\n\t\v\f\x85\u2028\u2029]\s*", " ", text), "")


def lines(text: str) -> str:
    """Return text of several lines, each of visible characters; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return _visible(text.replace("\r\n", "\n"), "\n\t")


def in_quotes(document: str, *, pairs: bool) -> str:
    """Return a JSON or TOML document with what is not visible in its strings written as `\\uXXXX`.

    The document may hold such characters in strings only, line breaks apart. Beyond U+FFFF JSON writes `pairs` of
    surrogates, TOML `\\UXXXXXXXX`.
    """
    if document.isprintable():
        return document
    return "".join(char if char.isprintable() or char == "\n" else _escaped(char, pairs) for char in document)


def c_comment(text: str) -> str:
    """Return text that stays within the `/* ... */` it is put in: one line without the marks of a comment."""
    return re.sub(r"\*(?=/)|/(?=\*)", lambda mark: mark[0] + " ", line(text))


def is_c_value(text: str) -> bool:
    """True where `#define NAME text` is one line of C that leaves the lines after it alone."""
    return text.isprintable() and _C_MARKS.search(text) is None


def _visible(text: str, kept: str) -> str:
    return "".join(char if char.isprintable() or char in kept else _hex(char) for char in text)


def _hex(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(char: str, pairs: bool) -> str:
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04X}"
    if not pairs:
        return f"\\U{code:08X}"
    return f"\\u{0xD800 + (code - 0x10000 >> 10):04X}\\u{0xDC00 + (code - 0x10000 & 0x3FF):04X}"
