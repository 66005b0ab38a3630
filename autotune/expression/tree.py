"""The tree of an expression and its meaning: compiled to a Python function of scalars, once for all rows.

Whole numbers stay within +-2**62, floats stay finite, exponents are small: so no operator takes long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, NoReturn

LIMIT = 2**62
MAX_EXPONENT = 64

Compiled = Callable[..., Any]
"""Returns the value for the values of `sorted(tree.names)`. Raises ArithmeticError (`fault`) if there is none."""


class FaultError(ArithmeticError):
    """An expression cannot be computed; the message is a phrase whose subject is the expression."""


def fault(error: ArithmeticError) -> str:
    """Return the phrase for an error that a compiled expression raised."""
    return "divides by zero" if isinstance(error, ZeroDivisionError) else str(error)


class Text(str):
    """Text in an expression: it can only be compared with ==, != and in; all other operations raise FaultError."""

    __slots__ = ()

    def _condition(self) -> NoReturn:
        raise FaultError(f"uses the text {self!r} as a condition")

    def _number(self, *_: object) -> NoReturn:
        raise FaultError(f"calculates with the text {self!r}")

    def _order(self, _: object) -> NoReturn:
        raise FaultError("compares text by size; text compares with ==, != and in")

    __bool__ = _condition
    __neg__ = __pos__ = __abs__ = _number
    __add__ = __sub__ = __mul__ = __truediv__ = __floordiv__ = __mod__ = __pow__ = _number
    __radd__ = __rsub__ = __rmul__ = __rtruediv__ = __rfloordiv__ = __rmod__ = _number
    __lt__ = __le__ = __gt__ = __ge__ = _order


def operand(value: Any) -> Any:
    """Return a value as compiled expressions take it: text as Text, a list as a tuple, NumPy's scalars as Python's."""
    if hasattr(value, "item") and not getattr(value, "shape", None):
        value = value.item()
    return Text(value) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Node:
    """`sign` applied to the `parts` below it; immutable; nodes with equal content are equal.

    Signs are those of the text, the names of functions, `negative`, `positive`, `if` (condition, value, other
    value) and `chain` (`a < b <= c`; `value` holds the signs). A `name` node has its name as `value`. A constant
    has the name of its type as sign, so that 1, 1.0 and True differ.
    """

    sign: str
    parts: tuple[Node, ...] = ()
    value: Any = None

    @cached_property
    def names(self) -> frozenset[str]:
        """The free names of the node and all below it."""
        return frozenset({self.value}) if self.sign == "name" else frozenset().union(*(p.names for p in self.parts))

    @property
    def is_constant(self) -> bool:
        """Whether this is a value from the text, or one that was put in."""
        return not self.parts and self.sign != "name"


def constant(value: Any) -> Node:
    """Return the node of a value."""
    value = operand(value)
    return Node(type(value).__name__, value=value)


# --- functions --------------------------------------------------------------------------------------------


def bounded(value: Any) -> Any:
    """Return a number unchanged. Raises FaultError for whole numbers beyond +-2**62 and for floats not finite."""
    if -LIMIT <= value <= LIMIT or (isinstance(value, float) and math.isfinite(value)):
        return value
    whole = not isinstance(value, float)
    raise FaultError("gives a whole number beyond 2**62" if whole else "gives a number too large for a float")


def _whole(value: Any, name: str) -> int:
    if not isinstance(value, int):
        hint = "// divides without remainder" + (", -(-a // b) rounds up" if name == "ceil_div" else "")
        raise FaultError(f"gives {name} {value!r}, which is not a whole number ({hint})")
    return value


def _power(base: Any, exponent: Any) -> Any:
    if not isinstance(exponent, int) or not 0 <= exponent <= MAX_EXPONENT:
        raise FaultError(f"raises to the power {exponent!r}; exponents are whole numbers from 0 to {MAX_EXPONENT}")
    try:
        return bounded(base**exponent)
    except OverflowError:
        raise FaultError("gives a number too large for a float") from None


def _ceil_div(a: Any, b: Any) -> int:
    return -(-_whole(a, "ceil_div") // _whole(b, "ceil_div"))


def _round_up(a: Any, b: Any) -> Any:
    return bounded(-(-_whole(a, "round_up") // _whole(b, "round_up")) * b)


def _log2(a: Any) -> float:
    if +a <= 0:  # + refuses text as any arithmetic does
        raise FaultError(f"takes log2 of {a}")
    return math.log2(a)


def _is_power_of_two(a: Any) -> bool:
    value = _whole(a, "is_power_of_two")
    return value > 0 and value & (value - 1) == 0


def _has_extension(extensions: Any, extension: str) -> bool:
    if not isinstance(extensions, tuple):
        raise FaultError("looks for an extension in `extensions`, which is not a list")
    return extension in extensions


def _unlisted(value: Any) -> Any:
    if isinstance(value, tuple):
        raise FaultError("uses the list extensions as a value")
    return value


class Function(NamedTuple):
    """A function of the language, with the least and most number of its operands."""

    apply: Callable[..., Any]
    least: int = 2
    most: int = 2


FUNCTIONS = {
    "abs": Function(abs, 1, 1),
    "ceil_div": Function(_ceil_div),
    "is_power_of_two": Function(_is_power_of_two, 1, 1),
    "log2": Function(_log2, 1, 1),
    "max": Function(max, 2, 100),
    "min": Function(min, 2, 100),
    "round_up": Function(_round_up),
}
_NAMESPACE: dict[str, Any] = {
    "__builtins__": {},
    "bool": bool,
    "bounded": bounded,
    "power": _power,
    "has_extension": _has_extension,
    "unlisted": _unlisted,
    **{name: function.apply for name, function in FUNCTIONS.items()},
}


# --- the tree as a function -----------------------------------------------------------------------------

_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
_TRUTHS = {*_COMPARISONS, "not", "and", "or", "in", "chain", "is_power_of_two", "has_extension", "bool"}
_LOOSE = {*_COMPARISONS, "not", "in", "chain"}  # come without parentheses


def compiled(tree: Node) -> Compiled:
    """Return the function of a tree. The source that Python compiles has only the numbers of a study's text."""
    texts: list[Text] = []
    source = _source(tree, {name: f"n{place}" for place, name in enumerate(sorted(tree.names))}, texts)
    return _function(f"lambda {', '.join(f'n{place}' for place in range(len(tree.names)))}: {source}", tuple(texts))


@lru_cache(maxsize=1000)
def _function(source: str, texts: tuple[Any, ...]) -> Compiled:
    function: Compiled = eval(source, _NAMESPACE | {f"k{place}": text for place, text in enumerate(texts)})
    return function


def _source(node: Node, names: Mapping[str, str], texts: list[Any]) -> str:
    """Return Python source for a node with few parentheses: Python's parser allows 200 nested ones, or fewer."""
    if node.sign == "name":
        return names[node.value]
    if isinstance(node.value, Text | tuple) and node.is_constant:
        texts.append(node.value)
        return f"k{len(texts) - 1}"
    if node.is_constant:
        return repr(node.value)
    parts = [_source(part, names, texts) for part in node.parts]
    match node.sign:
        case "and" | "or":
            truths = all(part.sign in _TRUTHS for part in node.parts)
            return f"{'' if truths else 'bool'}({f' {node.sign} '.join(parts)})"
        case "not":
            return f"not {parts[0]}"
        case "if":
            return f"({parts[1]} if {parts[0]} else {parts[2]})"
    operands = [f"({p})" if part.sign in _LOOSE else p for p, part in zip(parts, node.parts, strict=True)]
    match node.sign:
        case "chain":
            return " ".join([operands[0], *(f"{s} {p}" for s, p in zip(node.value, operands[1:], strict=True))])
        case "in":
            return f"{operands[0]} in [{', '.join(parts[1:])}]"
        case "+" | "-" | "*" | "/" | "//":
            value = f"{operands[0]} {node.sign} {operands[1]}"
            if "(" in value:
                return f"bounded({value})"
            return f"(t if {-LIMIT} <= (t := {value}) <= {LIMIT} else bounded(t))"  # no call where nothing nests
        case "%":
            return f"({operands[0]} % {operands[1]})"
        case "negative" | "positive":
            return f"({'-' if node.sign == 'negative' else '+'}{operands[0]})"
    if node.sign in _COMPARISONS:
        return f"{operands[0]} {node.sign} {operands[1]}"
    return f"{'power' if node.sign == '**' else node.sign}({', '.join(parts)})"


# --- the tree with what is known put in ---------------------------------------------------------------


def put_in(tree: Node, constants: Mapping[str, Any]) -> Node:
    """Return `tree` with the constants' values put in, and all parts computed that they decide.

    A part that cannot be computed (a zero divisor) stays unchanged, and fails only if it is needed.
    """

    def value(part: Node) -> Node | None:
        try:
            return constant(compiled(part)(*[constants[name] for name in sorted(part.names)]))
        except ArithmeticError:
            return None

    return reduced(tree, frozenset(constants), value)


def reduced(tree: Node, known: frozenset[str], replacement: Callable[[Node], Node | None]) -> Node:
    """Return `tree` with its largest parts over `known` names replaced; if `replacement` gives None, smaller parts."""
    if tree.is_constant:
        return tree
    if tree.names <= known:
        replaced = replacement(tree)
        if replaced is not None:
            return replaced
    if not tree.parts:
        return tree
    return _simplified(Node(tree.sign, tuple(reduced(part, known, replacement) for part in tree.parts), tree.value))


def _simplified(node: Node) -> Node:
    """Return a node without the parts that constants decide, but with all parts that could fail before them."""
    if node.sign == "if":
        decided = _decided(node.parts[0])
        return node if decided is None else node.parts[1] if decided else node.parts[2]
    if node.sign not in ("and", "or"):
        return node
    ends = node.sign == "or"  # the truth value that ends the search
    parts: list[Node] = []
    for part in node.parts:
        decided = _decided(part)
        if decided is None or decided is ends:
            parts.append(part)
        if decided is ends:
            break
    if not parts:
        return constant(not ends)
    return constant(ends) if len(parts) == 1 and _decided(parts[0]) is ends else Node(node.sign, tuple(parts))


def _decided(node: Node) -> bool | None:
    return bool(node.value) if node.is_constant and not isinstance(node.value, Text | tuple) else None
