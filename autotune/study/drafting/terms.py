"""Sums of products of names: the form of indices and their limits.

A name with `#` in it is a variable (`k#3`, `gid#0`); other names are known before a launch: sizes, parameters. Any
other expression is a name itself, with its text in parentheses: `(WG // LANES)`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

Product = tuple[str, ...]
_MOST = 40
"""The most products in a sum: longer sums are not read."""
_LONGEST = 1000
"""The most characters of the names in a sum."""


def divided(product: Product, by: Product) -> Product | None:
    """Return a product without the names of another; None if it does not have them all."""
    rest = list(product)
    for name in by:
        if name not in rest:
            return None
        rest.remove(name)
    return tuple(rest)


class Sum:
    """A sum of whole multiples of products of names; immutable."""

    __slots__ = ("_varying", "terms")

    def __init__(self, terms: Iterable[tuple[Product, int]] = ()) -> None:
        found: dict[Product, int] = {}
        for product, factor in terms:
            found[product] = found.get(product, 0) + factor
        in_order = sorted(found.items()) if len(found) > 1 else found.items()
        self.terms = {product: factor for product, factor in in_order if factor}
        self._varying: dict[Product, int] | None = None

    @classmethod
    def of(cls, value: int | str) -> Sum:
        return cls([((), value)]) if isinstance(value, int) else cls([((value,), 1)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and self.terms == other.terms

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __add__(self, other: Sum | int) -> Sum:
        return Sum([*self.terms.items(), *(other if isinstance(other, Sum) else Sum.of(other)).terms.items()])

    def __neg__(self) -> Sum:
        return Sum((product, -factor) for product, factor in self.terms.items())

    def __sub__(self, other: Sum | int) -> Sum:
        return self + (-other)

    def __mul__(self, other: Sum) -> Sum:
        """Return the product; a known sum remains one factor, so that `(y * (W + 2)) + x` tells its rows."""
        for one, many in ((self, other), (other, self)):
            if one.number is not None:
                return Sum((product, factor * one.number) for product, factor in many.terms.items())
        mine, theirs = self.as_factor(), other.as_factor()
        if len(mine.terms) * len(theirs.terms) > _MOST:
            return Sum.of(f"({self} * {other})")
        return mine.expanded(theirs)

    def expanded(self, other: Sum) -> Sum:
        """Return the product, multiplied out term by term."""
        pairs = ((mine, theirs) for mine in self.terms.items() for theirs in other.terms.items())
        return Sum((tuple(sorted((*a, *b))), m * n) for (a, m), (b, n) in pairs)

    def as_factor(self) -> Sum:
        """Return a known sum as one factor times the greatest common divisor: `16 * (n + 1)` for `16 * n + 16`."""
        if len(self.terms) < 2 or not self.known:
            return self
        each = math.gcd(*self.terms.values())
        return Sum([((f"({Sum((product, factor // each) for product, factor in self.terms.items())})",), each)])

    @property
    def names(self) -> set[str]:
        return {name for product in self.terms for name in product}

    @property
    def varying(self) -> dict[Product, int]:
        """The products that have a variable; sums that differ only by known products have the same."""
        if self._varying is None:
            found = {product: factor for product, factor in self.terms.items() if any("#" in name for name in product)}
            self._varying = found
        return self._varying

    @property
    def is_long(self) -> bool:
        """Whether it is too long to be read: repeated multiplication could soon fill the memory."""
        return len(self.terms) > _MOST or sum(len(name) for product in self.terms for name in product) > _LONGEST

    @property
    def known(self) -> bool:
        return not self.varying

    @property
    def number(self) -> int | None:
        """Its value if it is a number, else None."""
        return self.constant if not self.terms.keys() - {()} else None

    @property
    def constant(self) -> int:
        """The number that is added in the sum, 0 if none."""
        return self.terms.get((), 0)

    def part(self, wanted: Callable[[Product], bool]) -> Sum:
        """Return the sum of the products for which `wanted` is true."""
        return Sum((product, factor) for product, factor in self.terms.items() if wanted(product))

    @property
    def fixed(self) -> Sum:
        """The sum of its known products."""
        return self.part(lambda product: not any("#" in name for name in product))

    def factor_of(self, name: str) -> Sum:
        """Return the sum by which a name is multiplied."""
        parts = ((divided(product, (name,)), factor) for product, factor in self.terms.items())
        return Sum((rest, factor) for rest, factor in parts if rest is not None)

    def over(self, other: Sum) -> Sum | None:
        """Return the exact quotient; None if there is none."""
        if self == other:
            return Sum.of(1)
        if len(other.terms) != 1:
            return None
        (below, divisor), found = next(iter(other.terms.items())), []
        for product, factor in self.terms.items():
            rest = divided(product, below)
            if rest is None or factor % divisor:
                return None
            found.append((rest, factor // divisor))
        return Sum(found)

    def with_value(self, name: str, value: Sum) -> Sum:
        """Return the sum with a name replaced by a value."""
        rest = self.part(lambda product: name not in product)
        return rest + self.factor_of(name) * value if name in self.names else self

    def __str__(self) -> str:
        """Return the sum as the text of an expression."""
        parts = []
        for product, factor in sorted(self.terms.items(), key=lambda item: (not item[0], item[1] < 0, item[0])):
            names = [plain(product[0])] if len(product) == 1 and abs(factor) == 1 else list(product)
            if len(names) == 1 and factor < 0:
                names = [product[0]]
            size = [str(abs(factor))] if abs(factor) != 1 or not product else []
            parts.append(("- " if factor < 0 else "+ ") + " * ".join(size + names))
        text = " ".join(parts) or "0"
        return text[2:] if text.startswith("+ ") else "-" + text[2:] if text.startswith("- ") else text


def spread_out(factor: str) -> Sum | None:
    """Return the terms of a factor that is a sum, `(2 * n + 1)`; None for others, also with nested parentheses."""
    if re.fullmatch(r"\(-?\w+(?: [-+*] \w+)*\)", factor) is None:
        return None
    total = Sum()
    for sign, term in re.findall(r"([-+]?) ?(\w+(?: \* \w+)*)", factor):
        product = Sum.of(-1 if sign == "-" else 1)
        for part in term.split(" * "):
            product *= Sum.of(int(part) if part.isdigit() else part)
        total += product
    return total


def plain(text: str) -> str:
    """Return a text without parentheses around all of it."""
    return text[1:-1] if text.startswith("(") and re.fullmatch(r"\((?:[^()]|\([^()]*\))*\)", text) else text


def taken_off(index: Sum, part: Sum) -> bool:
    """Whether an index subtracts a part; only parts with names count, because a number may only shift the start."""
    return all(product and index.terms.get(product) == -factor for product, factor in part.terms.items())


def with_ids(value: Sum) -> Sum:
    """Replace `group * size + item` by the global id along each axis, and `groups * size` by the global size."""
    for axis in range(3):
        groups, size = f"ngr#{axis}", f"lsz#{axis}"
        for product in [*value.terms]:
            if (rest := divided(product, (groups, size))) is not None:
                factor = value.terms[product]
                value += Sum([(product, -factor), (tuple(sorted((*rest, f"gsz#{axis}"))), factor)])
        value = _joined(value, f"lid#{axis}", (f"lsz#{axis}", f"wid#{axis}"), f"gid#{axis}")
    return value


def counted_through(value: Sum) -> Sum:
    """Replace sums that count the items of all axes, `row * length + item`, by the first axis' id."""
    for others in _THROUGH if "gid#0" in value.names else ():
        value = _joined(value, "gid#0", others, "gid#0")
    return value


_THROUGH = (("gid#1", "gsz#0"), ("gsz#0", "wid#1"), ("gid#2", "gsz#0", "gsz#1"))


def _joined(value: Sum, one: str, other: Product, joined: str) -> Sum:
    """Replace the sum of a name and a product by `joined`, wherever both have the same factor."""
    for product in [*value.terms]:
        if (rest := divided(product, (one,))) is None:
            continue
        both, factor = tuple(sorted((*rest, *other))), value.terms[product]
        if value.terms.get(both) == factor:
            gone = [(product, -factor), (both, -factor), (tuple(sorted((*rest, joined))), factor)]
            value = Sum([*value.terms.items(), *gone])
    return value


def factors_of(value: Sum) -> tuple[int, ...]:
    """Return the factors of a sum's products."""
    return tuple(value.terms.values())


def is_multiple(value: Sum, least: Sum) -> bool:
    """Whether a sum has the same products as another, none with a smaller factor: then its index reaches as far."""
    same = value.terms.keys() == least.terms.keys()
    return same and all(more >= less for more, less in zip(factors_of(value), factors_of(least), strict=True))


def quotient(value: Sum, by: Sum) -> Sum:
    """Return the whole-number quotient, rounded down."""
    if by.number is not None and value.number is not None and by.number:
        return Sum.of(math.floor(value.number / by.number))
    exact = value.over(by)
    return exact if exact is not None else Sum.of(f"({_operand(value)} // {_operand(by)})")


def apart(extent: Sum, places: set[Sum]) -> Sum:
    """Return the number of items that share an extent if each uses these places, at distances of that number.

    This is `n // 2` for 0 and `n // 2`; the extent itself if each uses one place, or for other places.
    """
    for step in places:
        whole = extent == step * Sum.of(len(places)) or quotient(extent, Sum.of(len(places))) == step
        if step and whole and {step * Sum.of(turn) for turn in range(len(places))} == places:
            return step
    return extent


def undivided(value: Sum) -> Sum:
    """Return a sum that is not less, with `n // TILE * TILE` replaced by `n`."""
    found = Sum()
    for product, factor in value.terms.items():
        rest, each = list(product), factor
        for name in product:
            parts = re.fullmatch(r"\((\w+) // (\w+)\)", name)
            if parts is None or factor < 0:
                continue
            if parts[2].isdigit() and int(parts[2]) and each % int(parts[2]) == 0:
                each //= int(parts[2])
            elif parts[2] in rest:
                rest.remove(parts[2])
            else:
                continue
            rest[rest.index(name)] = parts[1]
        found += Sum([(tuple(sorted(rest)), each)])
    return found


def remainder(value: Sum, by: Sum) -> Sum:
    """Return the remainder of a division."""
    if by.number is not None and value.number is not None and by.number:
        return Sum.of(value.number % by.number)
    return Sum.of(0) if by == Sum.of(1) else Sum.of(f"({_operand(value)} % {_operand(by)})")


def places_of_group(value: Sum, axis: int) -> Sum | None:
    """Return how many items of a group have places apart, TILE in `group * TILE + item`; None for other sums.

    Groups or items along another axis may be nearer: 4 places are apart in `(group1 * W + group0) * 4 + item1`.
    """
    group, item = value.factor_of(f"wid#{axis}"), value.factor_of(f"lid#{axis}")
    if not (group and group.known and item and item.known):
        return None
    near = [value.factor_of(f"{kind}#{other}") for kind in ("wid", "lid") for other in range(3) if other != axis]
    told = [each.over(item) for each in (group, *near) if each and each.known and group.over(each) and each != item]
    return min(filter(None, told), key=lambda extent: (len(extent.names), extent.number or 0), default=None)


def put_together(value: Sum, name: str, whole: Sum, by: Sum) -> Sum:
    """Replace a quotient (`name`) times divisor plus remainder by the dividend: `n // W * W + n % W` is n."""
    left = remainder(whole, by)
    each = value.factor_of(min(left.names, default=""))
    if not each or value.factor_of(name) != each * by:
        return value
    return value - left * each - Sum.of(name) * (each * by) + whole * each


def in_elements(value: Sum, parts: int) -> Sum:
    """Convert a sum that counts parts of elements, such as bytes, into elements: divide it term by term."""
    total = Sum()
    for product, factor in value.terms.items():
        if factor % parts == 0:
            total += Sum([(product, factor // parts)])
            continue
        variables = tuple(name for name in product if "#" in name)
        stride = Sum([(tuple(name for name in product if "#" not in name), factor)])
        share = quotient(stride, Sum.of(parts)) if stride.names else Sum.of("part.#0")
        total += Sum([(variables, 1)]) * share
    return total


def _operand(value: Sum) -> str:
    single = len(value.terms) == 1 and next(iter(value.terms.values())) == 1 and sum(map(len, value.terms)) == 1
    return str(next(iter(value.terms))[0]) if single else f"({value})" if value.number is None else str(value.number)
