"""Vectors and structs that kernels take by value: the whole numbers in them, and the names of these as sizes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from autotune.devices import KernelArgument
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.touching import components
from autotune.study.types import SCALAR_TYPES

WHOLE_TYPES = ("int", "uint", "long", "ulong", "size_t", "short", "ushort", "char", "uchar")
NARROW = {"short": 2**15 - 1, "ushort": 2**16 - 1, "char": 2**7 - 1, "uchar": 2**8 - 1}
"""The largest numbers of narrow types: a number of such a type is a size only if extents depend on it."""
_MOST = 32
"""The most array elements that are read in a struct, and levels of structs within structs."""
_LONGEST = 64
"""Characters of the name of a size."""

Kinds = Mapping[str, Sequence[str]]
"""The members of structs, as C writes them."""


class Member(NamedTuple):
    """A member of a struct; `length`: of an array, 0 if that is not one number, None if it is no array."""

    name: str
    kind: str
    length: int | None


class ByValue:
    """The whole numbers in arguments that are vectors and structs.

    `kinds`: the arguments' types; `meant`: returns what a type name stands for; `taken`: names that no size may have.
    """

    def __init__(
        self, kinds: Mapping[str, str], structs: Kinds, meant: Callable[[str], str], taken: Collection[str]
    ) -> None:
        self._kinds, self._structs, self._meant = kinds, structs, meant
        paths = [(name, *told) for name, kind in kinds.items() for told in self._paths(kind, 0)]
        alike = Counter(path for _, path, _ in paths)
        self.sizes: dict[str, str] = {}
        """The name of a size, by the path of its number: `count` for `world.count`, `dim_x` for `dim.x`."""
        self.most = dict[str, int]()
        """The largest value of each size of a narrow type."""
        for name, path, of in paths:
            short = "_".join(re.findall(r"\w+", path))
            own = meant(kinds[name]) in structs
            called = (
                short
                if own and alike[path] == 1 and not {short} & {*taken, *self.sizes.values(), *SCALAR_TYPES}
                else ""
            )
            called = called or f"{name}_{short}"
            if len(called) <= _LONGEST and called not in taken and called not in SCALAR_TYPES:
                self.sizes[name + path] = called
                self.most |= {called: NARROW[of]} if of in NARROW else {}

    def _paths(self, kind: str, depth: int) -> Iterator[tuple[str, str]]:
        """Yield the path of each whole number in a type, as `.count`, `.dims[0]` or `.x`, and its type."""
        of, count = components(self._meant(kind))
        if count > 1 and of in WHOLE_TYPES:
            yield from ((f".{letter}", of) for letter in letters(count))
        for name, inner, length in self.members(kind) if depth < _MOST else ():
            if (of := self._meant(inner)) in WHOLE_TYPES:
                places = (f"[{place}]" for place in range(min(length or 0, _MOST)))
                yield from [(f".{name}", of)] if length is None else ((f".{name}{place}", of) for place in places)
            elif length is None:
                yield from ((f".{name}{rest}", of) for rest, of in self._paths(inner, depth + 1))

    def members(self, kind: str) -> Iterator[Member]:
        """Yield each member of a struct."""
        for member in self._structs.get(self._meant(kind), ()):
            if found := re.fullmatch(r"(\w+)\s+(\w+)\s*(\[.*)?", member):
                alone = re.fullmatch(r"\[\s*(\d{1,9})\s*\]", found[3] or "")
                yield Member(found[2], found[1], int(alone[1]) if alone else 0 if found[3] else None)

    def first_places(self, kind: str) -> str:
        """Return the key for data of structs with whole numbers 0 and 1: nearly all arrays have these places."""
        members = [(member.name, self._meant(member.kind)) for member in self.members(kind)]
        whole = [name for name, of in members if components(of)[0] in WHOLE_TYPES]
        if not whole or any(of in self._structs for _, of in members):
            return ", data = { low = 0, high = 1 }"
        return f", data = {{ fields = {{ {', '.join(f'{name} = {{ low = 0, high = 1 }}' for name in whole)} }} }}"

    def value(self, name: str) -> Any:
        """Return an argument's value in sums of sizes: a dict for a struct, a list for an array or a tuple of these."""
        return self._value(self._kinds[name], name, 0)

    def _value(self, kind: str, path: str, depth: int) -> Any:
        if path in self.sizes:
            return Sum.of(self.sizes[path])
        if (count := components(self._meant(kind))[1]) > 1:
            return tuple(self._value("", f"{path}.{letter}", 0) for letter in letters(count))
        if depth >= _MOST or self._meant(kind) not in self._structs:
            return None
        found = dict[str, Any]()
        for name, inner, length in self.members(kind):
            places = [f"{path}.{name}[{place}]" for place in range(min(length or 0, _MOST))]
            each = [self._value(inner, place, depth + 1) for place in places]
            found[name] = self._value(inner, f"{path}.{name}", depth + 1) if length is None else each
        return found


def is_by_value(one: KernelArgument) -> bool:
    """Whether an argument is passed by value; images, whose address space is private too, are not."""
    return one.address == "private" and not one.type_name.startswith("image")


def letters(count: int) -> Sequence[str]:
    """Return the names of a vector's components."""
    return "xyzw"[:count] if count <= len("xyzw") else [f"s{place:x}" for place in range(count)]


def swizzled(value: tuple[Any, ...], name: str) -> Any:
    """Return one or several components of a vector by their names; None if it does not have them."""
    places = _places(name)
    if not all(0 <= place < len(value) for place in places):
        return None
    return value[places[0]] if len(places) == 1 else tuple(value[place] for place in places)


def with_component(value: tuple[Any, ...], name: str, component: Any) -> tuple[Any, ...]:
    """Return a vector with one or several components replaced."""
    places = _places(name)
    each = component if type(component) is tuple and len(component) == len(places) > 1 else [component] * len(places)
    new = dict(zip(places, each, strict=True))
    return tuple(new.get(place, old) for place, old in enumerate(value))


def spread(one: Any, other: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return two values as vectors: a scalar is repeated for each component."""
    length = min(len(each) for each in (one, other) if type(each) is tuple)
    wide = [each if type(each) is tuple else (each,) * length for each in (one, other)]
    return wide[0], wide[1]


def _places(name: str) -> list[int]:
    told = re.fullmatch(r"[sS]([0-9a-fA-F]+)", name)
    return [int(digit, 16) for digit in told[1]] if told else ["xyzw".find(letter) for letter in name]
