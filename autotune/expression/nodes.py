"""The tree of an expression: what each node gives for scalars and, row by row the same, for columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from autotune.expression.columns import Frame, Rows
from autotune.expression.operators import COMPARISONS, Column, Operand, Operator
from autotune.expression.scalars import FaultError, Scalar, truth


class Node:
    """Base of the nodes: immutable, equal where they look alike; `parts` are the nodes below."""

    parts: tuple[Node, ...]

    @cached_property
    def names(self) -> frozenset[str]:
        """The free names of the node and all below it."""
        return frozenset().union(*(part.names for part in self.parts))

    def with_parts(self, parts: tuple[Node, ...]) -> Self:
        """This node over other parts (of the same number)."""
        return replace(self, parts=parts)  # type: ignore[type-var]

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        """The value for scalar names; FaultError where there is none."""
        raise NotImplementedError

    def columns(self, frame: Frame, active: Rows) -> Operand:
        """The values for columns of names, needed on the `active` rows; the others hold anything."""
        raise NotImplementedError


class Leaf(Node):
    """Base of the nodes with nothing below."""

    parts = ()

    def with_parts(self, parts: tuple[Node, ...]) -> Self:
        return self


@dataclass(frozen=True)
class Constant(Leaf):
    """A number or a text of the source; its type tells 1, 1.0 and True apart, which are equal."""

    value: Scalar
    type: type = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", type(self.value))

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        return self.value

    def columns(self, frame: Frame, active: Rows) -> Operand:
        return self.value


@dataclass(frozen=True)
class Name(Leaf):
    """A free name."""

    name: str

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset({self.name})

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        value = names[self.name]
        if isinstance(value, tuple):
            raise FaultError(f"uses the list {self.name} as a value")
        return value  # type: ignore[no-any-return]

    def columns(self, frame: Frame, active: Rows) -> Operand:
        value = frame.names[self.name]
        if isinstance(value, tuple):
            frame.failed |= active
            return 0
        return value  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Extension(Leaf):
    """`has_extension("cl_khr_fp16")`: looks in the tuple named `extensions`."""

    extension: str

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset({"extensions"})

    def scalar(self, names: Mapping[str, Any]) -> bool:
        if not isinstance(names["extensions"], tuple):
            raise FaultError("looks for an extension in `extensions`, which is no list")
        return self.extension in names["extensions"]

    def columns(self, frame: Frame, active: Rows) -> Operand:
        try:
            return self.scalar(frame.names)
        except FaultError:
            frame.failed |= active
            return False


@dataclass(frozen=True)
class Apply(Node):
    """An operator or a function on its parts; all of them are needed."""

    operator: Operator
    parts: tuple[Node, ...]

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        return self.operator.scalar(*[part.scalar(names) for part in self.parts])

    def columns(self, frame: Frame, active: Rows) -> Operand:
        operands = tuple(part.columns(frame, active) for part in self.parts)
        return frame.apply(self.operator, operands, active)


@dataclass(frozen=True)
class Both(Node):
    """`and`: a part is needed where the parts before it are true."""

    parts: tuple[Node, ...]

    def scalar(self, names: Mapping[str, Any]) -> bool:
        return all(truth(part.scalar(names)) for part in self.parts)

    def columns(self, frame: Frame, active: Rows) -> Operand:
        for part in self.parts:
            if not active.any():
                break
            active = active & frame.truth(part.columns(frame, active), active)
        return active


@dataclass(frozen=True)
class Either(Node):
    """`or`: a part is needed where the parts before it are false."""

    parts: tuple[Node, ...]

    def scalar(self, names: Mapping[str, Any]) -> bool:
        return any(truth(part.scalar(names)) for part in self.parts)

    def columns(self, frame: Frame, active: Rows) -> Operand:
        rest = active
        for part in self.parts:
            if not rest.any():
                break
            rest = rest & ~frame.truth(part.columns(frame, rest), rest)
        return active & ~rest


@dataclass(frozen=True)
class Chain(Node):
    """`a < b <= c`: each part is computed once, and only where the comparisons before it hold."""

    parts: tuple[Node, ...]
    operators: tuple[Operator, ...]

    def scalar(self, names: Mapping[str, Any]) -> bool:
        left = self.parts[0].scalar(names)
        for operator, part in zip(self.operators, self.parts[1:], strict=True):
            right = part.scalar(names)
            if not operator.scalar(left, right):
                return False
            left = right
        return True

    def columns(self, frame: Frame, active: Rows) -> Operand:
        left = self.parts[0].columns(frame, active)
        for operator, part in zip(self.operators, self.parts[1:], strict=True):
            active = active & ~frame.failed
            if not active.any():
                break
            right = part.columns(frame, active)
            active = active & frame.truth(frame.apply(operator, (left, right), active), active)
            left = right
        return active


@dataclass(frozen=True)
class Member(Node):
    """`x in (a, b)`: the first part is the item, the others the list; all are needed."""

    parts: tuple[Node, ...]

    def scalar(self, names: Mapping[str, Any]) -> bool:
        item, *listed = [part.scalar(names) for part in self.parts]
        return item in listed

    def columns(self, frame: Frame, active: Rows) -> Operand:
        item, *listed = [part.columns(frame, active) for part in self.parts]
        found = np.zeros(frame.length, dtype=np.bool_)
        for each in listed:
            found |= frame.truth(frame.apply(COMPARISONS["=="], (item, each), active), active)
        return found


@dataclass(frozen=True)
class Choice(Node):
    """`body if condition else other`; parts (condition, body, other), the latter two needed on their rows."""

    parts: tuple[Node, ...]

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        condition, body, other = self.parts
        return (body if truth(condition.scalar(names)) else other).scalar(names)

    def columns(self, frame: Frame, active: Rows) -> Operand:
        condition, body, other = self.parts
        chosen = frame.truth(condition.columns(frame, active), active)
        first, second = active & chosen, active & ~chosen & ~frame.failed
        if not second.any():
            return body.columns(frame, first) if first.any() else 0
        if not first.any():
            return other.columns(frame, second)
        return _merge(chosen, body.columns(frame, first), other.columns(frame, second))


def _merge(chosen: Rows, body: Operand, other: Operand) -> Column:
    a, b = np.asarray(body), np.asarray(other)
    if a.dtype != b.dtype and not a.dtype.kind == b.dtype.kind == "U":
        a, b = a.astype(object), b.astype(object)
    return np.where(chosen, a, b)


def decide(tree: Node, names: Mapping[str, Any]) -> tuple[Rows, Rows]:
    """The rows where `tree` is true, and those where it cannot be computed; names as for `Frame`."""
    frame = Frame(names)
    active = ~frame.failed
    return frame.truth(tree.columns(frame, active), active), frame.failed


def compute(tree: Node, names: Mapping[str, Any]) -> tuple[Column, Rows]:
    """The value of `tree` on each row, and the rows where it cannot be computed."""
    frame = Frame(names)
    value = np.asarray(tree.columns(frame, ~frame.failed))
    return np.broadcast_to(value, (frame.length,)), frame.failed
