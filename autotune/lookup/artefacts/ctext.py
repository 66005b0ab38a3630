"""Expressions, names and text of others, made safe for C: no text of a study or a database leaves its place."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import reduce
from pathlib import Path

from autotune.errors import UsageError
from autotune.expression import Node
from autotune.model import Value


class NoCError(Exception):
    """What C's whole numbers and doubles cannot express in the same way: a noun that completes "C cannot say"."""


def string(text: str) -> str:
    """Return a C string literal of the text's UTF-8: printable ASCII as it is, all else in octal, no trigraphs."""
    return '"' + "".join(map(_char, text.encode("utf-8", "replace"))) + '"'


def _char(byte: int) -> str:
    char = chr(byte)
    if char in '"\\?':
        return "\\" + char
    return char if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def lines(text: str) -> list[str]:
    """Return a long text as literals, at least one for each line, none longer than every compiler accepts."""
    pieces = [line[at : at + 200] for line in text.splitlines(keepends=True) for at in range(0, len(line), 200)]
    return [string(piece) for piece in pieces]


MOST = 2**62
"""The greatest whole number of expressions (autotune/expression), and of arithmetic.c.in."""

_LONGEST = 2**15
"""Characters of C that an expression may take."""


def arithmetic(prefix: str) -> str:
    """Return the functions that the C of `whole` calls. With them each operand is written once, at any depth."""
    return Path(__file__).with_name("arithmetic.c.in").read_text(encoding="utf-8").replace("@P", prefix)


_FUNCTIONS = {
    "+": "add", "-": "subtract", "*": "multiply", "//": "floor", "%": "mod", "**": "power", "negative": "minus",
    "not": "not", "and": "and", "or": "or", "if": "if", "min": "min", "max": "max", "abs": "abs",
    "ceil_div": "ceil_div", "round_up": "round_up", "is_power_of_two": "is_power_of_two",
}  # fmt: skip
"""The function in arithmetic.c.in for each sign."""

_ALONE = {"and": "1LL", "or": "0LL"}
"""The second operand if only one part is left besides constants: the result is then the truth of that part."""

_SIGNS = {"<": "<", ">": ">", "<=": "l", ">=": "g", "==": "=", "!=": "!"}
"""The character for each comparison in arguments of `compare` and `chain`."""


def whole(node: Node, names: Mapping[str, str], prefix: str) -> str:
    """Return C of type long long for an expression of whole numbers; `names` gives its names in C.

    Where the expression has no value, the C gives a special value that `PREFIX_known_` detects (arithmetic.c.in).
    Raises NoCError for what has no such form (text, `/`, log2, a name that C does not know) and for what is too long.
    """
    if node.is_constant:
        value = int(node.value) if isinstance(node.value, bool | int) else None
        if value is None or node.value != value:
            raise NoCError(f"{node.value!r:.40}, which is not a whole number")
        return f"{value}LL" if value >= 0 else f"({value}LL)"
    if node.sign == "name":
        if node.value not in names:
            raise NoCError(f"the name {node.value}")
        return names[node.value]
    parts, length = list[str](), 0
    for part in node.parts:
        parts.append(whole(part, names, prefix))
        length += len(parts[-1])
        if length > _LONGEST:
            raise NoCError(f"an expression of more than {_LONGEST:,} characters")
    return parts[0] if node.sign == "positive" else _called(node, parts, prefix)


def _called(node: Node, parts: list[str], prefix: str) -> str:
    if node.sign in _FUNCTIONS:
        function = f"{prefix}_{_FUNCTIONS[node.sign]}_"
        if node.sign in ("and", "or", "min", "max"):  # with any number of operands
            first, *rest = parts if len(parts) > 1 else [*parts, _ALONE[node.sign]]
            return reduce(lambda left, right: f"{function}({left}, {right})", rest, first)
        return f"{function}({', '.join(parts)})"
    if node.sign in _SIGNS:
        return f"{prefix}_compare_({parts[0]}, '{_SIGNS[node.sign]}', {parts[1]})"
    if node.sign == "chain":
        signs = "".join(_SIGNS[sign] for sign in node.value)
        return f"{prefix}_chain_({string(signs)}, {_passed(parts)})"
    if node.sign == "in":
        return f"{prefix}_in_({len(parts) - 1}, {_passed(parts)})"
    raise NoCError(f"`{node.sign}`")


def number_in(c: str) -> int | None:
    """Return the number if an expression in C is only a number of at least 0, else None."""
    return int(c[:-2]) if c[:-2].isdecimal() else None


def product(parts: Iterable[str], prefix: str) -> str:
    """Return C of type long long for the product of such expressions; beyond 2**62 it has no value."""
    parts = list(parts)
    fixed = [number for part in parts if (number := number_in(part)) is not None]
    if len(fixed) > 1 and math.prod(fixed) <= MOST:
        parts = [*(part for part in parts if number_in(part) is None), f"{math.prod(fixed)}LL"]
    return reduce(lambda left, right: f"{prefix}_multiply_({left}, {right})", parts)


def _passed(parts: list[str]) -> str:
    """Return arguments for a variadic function, cast because C does not convert them."""
    return ", ".join(f"(long long){part}" for part in parts)


def prefix_of(study: str, chosen: Mapping[str, Value]) -> str:
    """Return what every name in a study's header begins with; `chosen`: its choices that are not the defaults."""
    told = {name: re.sub("^-", "MINUS_", str(value)) for name, value in chosen.items()}  # -1 and 1 are two headers
    words = "_".join([study, *(f"{name}_{value}" for name, value in told.items())])
    name = re.sub(r"[^A-Za-z0-9]+", "_", words).upper().strip("_")  # names with __ are C++'s own
    return name if name[:1].isalpha() and not _is_opencl(name) else f"STUDY_{name}"


def checked_prefix(prefix: str) -> str:
    """Return a prefix that a user wrote. Raises UsageError if names in C cannot begin with it."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix):
        raise UsageError(f"no name in C begins with {prefix!r:.60}", where="--prefix", hint="write --prefix SCALE_F64")
    if _is_opencl(prefix):
        raise UsageError(f"names of OpenCL begin with {prefix}", where="--prefix", hint=f"write --prefix MY_{prefix}")
    return prefix


def _is_opencl(prefix: str) -> bool:
    """Whether OpenCL's own headers have names with it, such as the macros CL_NONE and CL_BUILD_NONE."""
    return f"{prefix}_".upper().startswith("CL_")
