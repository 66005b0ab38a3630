"""Expressions, names and text of others, safe in C: whatever a study or a database says stays in its place."""

from __future__ import annotations

import re
from collections.abc import Mapping

from autotune.errors import UsageError
from autotune.expression import Node
from autotune.model import Value


class NoCError(Exception):
    """What C's whole numbers and doubles do not say alike: a noun that ends "C cannot say"."""


def string(text: str) -> str:
    """Return a C string literal of the text's UTF-8: printable ASCII as it is, all else in octal, no trigraphs."""
    return '"' + "".join(map(_char, text.encode("utf-8", "replace"))) + '"'


def _char(byte: int) -> str:
    char = chr(byte)
    if char in '"\\?':
        return "\\" + char
    return char if 0x20 <= byte < 0x7F else f"\\{byte:03o}"


def lines(text: str) -> list[str]:
    """Return the literals of a long text, a line each, none beyond what every compiler takes."""
    pieces = [line[at : at + 200] for line in text.splitlines(keepends=True) for at in range(0, len(line), 200)]
    return [string(piece) for piece in pieces]


_HELPERS = {
    "chain": """#include <stdarg.h>
static inline int {p}_chain_(const char *signs, long long a, ...) {{
    int holds = 1;
    va_list rest;
    va_start(rest, a);
    for (; holds && *signs; signs++) {{
        const long long b = va_arg(rest, long long);
        switch (*signs) {{
        case '<': holds = a < b; break;
        case '>': holds = a > b; break;
        case 'l': holds = a <= b; break;
        case 'g': holds = a >= b; break;
        case '=': holds = a == b; break;
        default: holds = a != b;
        }}
        a = b;
    }}
    va_end(rest);
    return holds;
}}""",
    "in": """#include <stdarg.h>
static inline int {p}_in_(int count, long long a, ...) {{
    int found = 0;
    va_list rest;
    va_start(rest, a);
    while (count-- > 0) found |= va_arg(rest, long long) == a;
    va_end(rest);
    return found;
}}""",
    "mod": "static inline long long {p}_mod_(long long a, long long b) {{ return a - {p}_floor_(a, b) * b; }}",
    "round_up": "static inline long long {p}_round_up_(long long a, long long b) {{ return -{p}_floor_(-a, b) * b; }}",
    "floor": """static inline long long {p}_floor_(long long a, long long b) {{
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}}""",
    "abs": "static inline long long {p}_abs_(long long a) {{ return a < 0 ? -a : a; }}",
    "is_power_of_two": """static inline int {p}_is_power_of_two_(long long a) {{
    return a > 0 && (a & (a - 1)) == 0;
}}""",
    "max": "static inline long long {p}_max_(long long a, long long b) {{ return a > b ? a : b; }}",
    "min": "static inline long long {p}_min_(long long a, long long b) {{ return a < b ? a : b; }}",
    "power": """static inline long long {p}_power_(long long a, long long n) {{
    long long r = 1;
    while (n-- > 0) r *= a;
    return r;
}}""",
}
"""What the translated expressions call, each after those that call it; `{p}` is the prefix. With them each operand is
written once, however deep it lies. Python's // and % round down, C's towards zero.
"""

_LONGEST = 2**15
"""Characters of C that an expression may take."""


def helpers(text: str, prefix: str) -> str:
    """Return the functions that C which `whole` wrote calls, each after those that it calls itself."""
    found = ""
    for name, form in _HELPERS.items():
        if f"{prefix}_{name}_(" in text + found:
            found = form.format(p=prefix) + "\n" + found
    return found


_PLAIN = {"+", "-", "*"}
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
_JOINED = {"and": "&&", "or": "||"}
_SIGNS = {"<": "<", ">": ">", "<=": "l", ">=": "g", "==": "=", "!=": "!"}
"""What stands for a comparison in the first argument of `chain`."""


def whole(node: Node, names: Mapping[str, str], prefix: str) -> str:
    """Return C of type long long for an expression of whole numbers; `names` are what its names are in C.

    Raises NoCError for what has no such form: text, `/`, log2, a name that C does not know; and for what is too long.
    """
    found = _whole(node, names, prefix)
    if len(found) > _LONGEST:
        raise NoCError(f"an expression of {len(found):,} characters")
    return found


def _whole(node: Node, names: Mapping[str, str], prefix: str) -> str:
    def of(part: Node) -> str:
        return _whole(part, names, prefix)

    if node.is_constant:
        value = int(node.value) if isinstance(node.value, bool | int) else None
        if value is None or node.value != value:
            raise NoCError(f"{node.value!r:.40}, which is no whole number")
        return f"{value}LL" if value >= 0 else f"({value}LL)"
    if node.sign == "name":
        if node.value not in names:
            raise NoCError(f"the name {node.value}")
        return names[node.value]
    if node.sign in _PLAIN:
        return f"({of(node.parts[0])} {node.sign} {of(node.parts[1])})"
    if node.sign in _COMPARISONS:
        return f"({of(node.parts[0])} {node.sign} {of(node.parts[1])})"
    if node.sign in _JOINED:
        return "(" + f" {_JOINED[node.sign]} ".join(map(of, node.parts)) + ")"
    return _called(node, [of(part) for part in node.parts], prefix)


def _called(node: Node, parts: list[str], prefix: str) -> str:
    """Return C for what is no plain operator there."""
    match node.sign:
        case "negative":
            return f"(-{parts[0]})"
        case "positive":
            return parts[0]
        case "not":
            return f"(!{parts[0]})"
        case "if":
            return f"({parts[0]} ? {parts[1]} : {parts[2]})"
        case "chain":
            signs = "".join(_SIGNS[sign] for sign in node.value)
            return f"{prefix}_chain_({string(signs)}, {_passed(parts)})"
        case "in" if not node.parts[0].parts:
            return "(" + " || ".join(f"({parts[0]} == {other})" for other in parts[1:]) + ")"
        case "in":
            return f"{prefix}_in_({len(parts) - 1}, {_passed(parts)})"
        case "//":
            return f"{prefix}_floor_({parts[0]}, {parts[1]})"
        case "%":
            return f"{prefix}_mod_({parts[0]}, {parts[1]})"
        case "**":
            return f"{prefix}_power_({parts[0]}, {parts[1]})"
        case "ceil_div":
            return f"(-{prefix}_floor_(-{parts[0]}, {parts[1]}))"
        case "round_up" | "abs" | "is_power_of_two":
            return f"{prefix}_{node.sign}_({', '.join(parts)})"
        case "min" | "max":
            found = parts[0]
            for part in parts[1:]:
                found = f"{prefix}_{node.sign}_({found}, {part})"
            return found
    raise NoCError(f"`{node.sign}`")


def _passed(parts: list[str]) -> str:
    """Return arguments as a function of any number of them takes them: C converts none."""
    return ", ".join(f"(long long){part}" for part in parts)


def prefix_of(study: str, chosen: Mapping[str, Value]) -> str:
    """Return what every name in a study's header begins with; `chosen`: those of its choices that are no defaults."""
    words = "_".join([study, *(f"{name}_{value}" for name, value in chosen.items())])
    name = re.sub(r"[^A-Za-z0-9]", "_", words).upper().strip("_")
    return name if name[:1].isalpha() and not _is_opencl(name) else f"STUDY_{name}"


def checked_prefix(prefix: str) -> str:
    """Return a prefix that a user wrote. Raises UsageError where C takes no such names."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix):
        raise UsageError(f"no name in C begins with {prefix!r:.60}", where="--prefix", hint="write --prefix SCALE_F64")
    if _is_opencl(prefix):
        raise UsageError(f"names of OpenCL begin with {prefix}", where="--prefix", hint=f"write --prefix MY_{prefix}")
    return prefix


def _is_opencl(prefix: str) -> bool:
    """Whether OpenCL's own headers have names with it, such as the macros CL_NONE and CL_BUILD_NONE."""
    return f"{prefix}_".upper().startswith("CL_")
