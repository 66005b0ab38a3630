"""Expressions and text of others, safe in C: whatever a study or a database says stays in its place."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.expression import Node


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


HELPERS = """
static inline long long {p}_floor_(long long a, long long b) {{
    return b == 0 ? 0 : a / b - (a % b != 0 && (a < 0) != (b < 0));
}}
static inline long long {p}_max_(long long a, long long b) {{ return a > b ? a : b; }}
static inline long long {p}_min_(long long a, long long b) {{ return a < b ? a : b; }}
static inline long long {p}_power_(long long a, long long n) {{ long long r = 1; while (n-- > 0) r *= a; return r; }}
"""
"""What the translated expressions call; `{p}` is the prefix. Python's // and % round down, C's towards zero."""

_PLAIN = {"+", "-", "*"}
_COMPARISONS = {"==", "!=", "<", "<=", ">", ">="}
_JOINED = {"and": "&&", "or": "||"}


def whole(node: Node, names: Mapping[str, str], prefix: str) -> str:
    """Return C of type long long for an expression of whole numbers; `names` are what its names are in C.

    Raises NoCError for what has no such form: text, `/`, log2, a name that C does not know.
    """

    def of(part: Node) -> str:
        return whole(part, names, prefix)

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
            links = zip(parts, node.value, parts[1:], strict=False)
            return "(" + " && ".join(f"({a} {sign} {b})" for a, sign, b in links) + ")"
        case "in":
            return "(" + " || ".join(f"({parts[0]} == {other})" for other in parts[1:]) + ")"
        case "//":
            return f"{prefix}_floor_({parts[0]}, {parts[1]})"
        case "%":
            return f"({parts[0]} - {prefix}_floor_({parts[0]}, {parts[1]}) * {parts[1]})"
        case "**":
            return f"{prefix}_power_({parts[0]}, {parts[1]})"
        case "ceil_div":
            return f"(-{prefix}_floor_(-{parts[0]}, {parts[1]}))"
        case "round_up":
            return f"(-{prefix}_floor_(-{parts[0]}, {parts[1]}) * {parts[1]})"
        case "abs":
            return f"{prefix}_max_({parts[0]}, -{parts[0]})"
        case "is_power_of_two":
            return f"({parts[0]} > 0 && ({parts[0]} & ({parts[0]} - 1)) == 0)"
        case "min" | "max":
            found = parts[0]
            for part in parts[1:]:
                found = f"{prefix}_{node.sign}_({found}, {part})"
            return found
    raise NoCError(f"`{node.sign}`")
