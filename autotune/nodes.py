"""The tree of an expression: what each node gives for scalars and, row by row the same, for columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.operators import LIMIT, TRUTH, Column, FaultError, Operand, Operator, Scalar, bounded, truth

Rows = NDArray[np.bool_]


class Frame:
    """The names of one evaluation over many rows, and which rows have failed in it.

    `columns` holds scalars, tuples and columns of int64, bool, float64, text or (mixed) objects.
    """

    def __init__(self, names: Mapping[str, Any]) -> None:
        shapes = {value.shape for value in names.values() if isinstance(value, np.ndarray) and value.ndim}
        if len(shapes) > 1 or any(len(shape) != 1 for shape in shapes):
            raise ValueError(f"columns of one length are needed, not {sorted(shapes)}")
        self.length: int = next(iter(shapes))[0] if shapes else 1
        self.failed: Rows = np.zeros(self.length, dtype=np.bool_)
        self.columns = {name: self._load(name, value) for name, value in names.items()}

    def _load(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.ndim:
            column, bad = _column(value)
            if bad is not None:
                self.failed |= bad
            return column
        value = scalar(value)
        try:
            check_scalar(name, value)
        except FaultError:
            self.failed[:] = True
        return value

    def apply(self, operator: Operator, operands: tuple[Operand, ...], active: Rows) -> Operand:
        """One operator on the active rows; rows it cannot compute are marked and hold anything."""
        if not any(isinstance(operand, np.ndarray) for operand in operands):
            try:
                return operator.scalar(*operands)
            except FaultError:
                self.failed |= active
                return 0
        with np.errstate(all="ignore"):
            answer = operator.columns(*operands)
        if answer is None:
            return self._row_by_row(operator, operands, active)
        result, bad = answer
        if bad is not None:
            self.failed |= bad & active
        return result

    def _row_by_row(self, operator: Operator, operands: tuple[Operand, ...], active: Rows) -> Column:
        rows = np.flatnonzero(active)
        listed = [o[rows].tolist() if isinstance(o, np.ndarray) else [o] * len(rows) for o in operands]
        results: list[Scalar | None] = []
        for row, values in zip(rows, zip(*listed, strict=True), strict=True):
            try:
                results.append(operator.scalar(*values))
            except FaultError:
                self.failed[row] = True
                results.append(None)
        return _spread(results, rows, self.length)


def _column(values: Column) -> tuple[Column, Rows | None]:
    """A column in one of the types that the operators know, and its rows out of bounds."""
    kind = values.dtype.kind
    if kind in "bU":
        return values, None
    if kind in "iu":
        if values.size and (int(values.max()) > LIMIT or int(values.min()) < -LIMIT):
            bad = (values > LIMIT) | (values < -LIMIT)
            return np.where(bad, 0, values).astype(np.int64), bad
        return values.astype(np.int64, copy=False), None
    if kind == "f":
        column = values.astype(np.float64, copy=False)
        bad = ~np.isfinite(column)
        return column, bad if bad.any() else None
    if kind != "O":
        raise ValueError(f"an expression cannot use a column of {values.dtype}")
    plain = [scalar(value) for value in values]
    bad = np.array([not _is_bounded(value) for value in plain], dtype=np.bool_)
    return _spread([None if b else v for v, b in zip(plain, bad, strict=True)], np.arange(len(plain)), len(plain)), bad


def _is_bounded(value: Scalar) -> bool:
    try:
        check_scalar("", value)
    except FaultError:
        return False
    return True


def _spread(results: list[Scalar | None], rows: NDArray[np.intp], length: int) -> Column:
    """Results at their rows in a column of the narrowest type; the other rows hold a filler."""
    types = {type(result) for result in results if result is not None}
    if not types:
        return np.zeros(length, dtype=np.int64)
    if len(types) > 1:
        column: Column = np.zeros(length, dtype=object)
    else:
        kind = types.pop()
        values = np.array([kind() if r is None else r for r in results])
        column = np.zeros(length, dtype=values.dtype)
        column[rows] = values
        return column
    column[rows] = np.array([0 if r is None else r for r in results], dtype=object)
    return column


def scalar(value: Any) -> Any:
    """NumPy's scalars as Python's; a list as a tuple."""
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim):
        return value.item()
    return tuple(value) if isinstance(value, list) else value


def check_scalar(name: str, value: Any) -> None:
    """FaultError where a name's value is no number within bounds, no text and no tuple (of extensions)."""
    if isinstance(value, int | float):
        try:
            bounded(value)
        except FaultError:
            raise FaultError(f"uses {name}, which is out of bounds,") from None
    elif not isinstance(value, str | tuple):
        raise FaultError(f"uses {name}, which is neither a number nor text,")


def truth_column(value: Operand, frame: Frame) -> Rows:
    """The truth of a result, shape (rows,); False where it failed."""
    rows = frame.apply(TRUTH, (value,), ~frame.failed)
    return np.broadcast_to(np.asarray(rows, dtype=np.bool_), (frame.length,))


@dataclass(frozen=True)
class Node:
    """Base of the nodes."""

    names: frozenset[str] = field(init=False, default=frozenset())

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        """The value for scalar names; FaultError where there is none."""
        raise NotImplementedError

    def columns(self, frame: Frame, active: Rows) -> Operand:
        """The values for columns of names, needed on the `active` rows; others hold anything."""
        raise NotImplementedError


def _names(parts: tuple[Node, ...]) -> frozenset[str]:
    return frozenset().union(*(part.names for part in parts))


@dataclass(frozen=True)
class Constant(Node):
    """A number or a text of the source."""

    value: Scalar

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        return self.value

    def columns(self, frame: Frame, active: Rows) -> Operand:
        return self.value


@dataclass(frozen=True)
class Name(Node):
    """A free name."""

    name: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset({self.name}))

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        value = names[self.name]
        if isinstance(value, tuple):
            raise FaultError(f"uses the list {self.name} as a value")
        return value  # type: ignore[no-any-return]

    def columns(self, frame: Frame, active: Rows) -> Operand:
        value = frame.columns[self.name]
        if isinstance(value, tuple):
            frame.failed |= active
            return 0
        return value  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Apply(Node):
    """An operator or a function on its operands; all of them are needed."""

    operator: Operator
    operands: tuple[Node, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _names(self.operands))

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        return self.operator.scalar(*[operand.scalar(names) for operand in self.operands])

    def columns(self, frame: Frame, active: Rows) -> Operand:
        operands = tuple(operand.columns(frame, active) for operand in self.operands)
        return frame.apply(self.operator, operands, active & ~frame.failed)


@dataclass(frozen=True)
class Both(Node):
    """`and`: a part is needed where the parts before it are true."""

    parts: tuple[Node, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _names(self.parts))

    def scalar(self, names: Mapping[str, Any]) -> bool:
        return all(truth(part.scalar(names)) for part in self.parts)

    def columns(self, frame: Frame, active: Rows) -> Operand:
        open_rows = active & ~frame.failed
        for part in self.parts:
            if not open_rows.any():
                break
            true = frame.apply(TRUTH, (part.columns(frame, open_rows),), open_rows & ~frame.failed)
            open_rows = open_rows & true & ~frame.failed
        return open_rows


@dataclass(frozen=True)
class Either(Node):
    """`or`: a part is needed where the parts before it are false."""

    parts: tuple[Node, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _names(self.parts))

    def scalar(self, names: Mapping[str, Any]) -> bool:
        return any(truth(part.scalar(names)) for part in self.parts)

    def columns(self, frame: Frame, active: Rows) -> Operand:
        open_rows = needed = active & ~frame.failed
        for part in self.parts:
            if not open_rows.any():
                break
            true = frame.apply(TRUTH, (part.columns(frame, open_rows),), open_rows & ~frame.failed)
            open_rows = open_rows & ~np.asarray(true, dtype=np.bool_) & ~frame.failed
        return needed & ~open_rows


@dataclass(frozen=True)
class Choice(Node):
    """`body if condition else other`: each is needed on its own rows."""

    condition: Node
    body: Node
    other: Node

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", _names((self.condition, self.body, self.other)))

    def scalar(self, names: Mapping[str, Any]) -> Scalar:
        return (self.body if truth(self.condition.scalar(names)) else self.other).scalar(names)

    def columns(self, frame: Frame, active: Rows) -> Operand:
        needed = active & ~frame.failed
        true = frame.apply(TRUTH, (self.condition.columns(frame, needed),), needed & ~frame.failed)
        chosen = np.broadcast_to(np.asarray(true, dtype=np.bool_), (frame.length,))
        first, second = needed & chosen & ~frame.failed, needed & ~chosen & ~frame.failed
        if not second.any():
            return self.body.columns(frame, first) if first.any() else 0
        if not first.any():
            return self.other.columns(frame, second)
        return _merge(chosen, self.body.columns(frame, first), self.other.columns(frame, second))


def _merge(chosen: Rows, body: Operand, other: Operand) -> Column:
    a, b = np.asarray(body), np.asarray(other)
    if a.dtype != b.dtype and not a.dtype.kind == b.dtype.kind == "U":
        a, b = a.astype(object), b.astype(object)
    return np.where(chosen, a, b)


@dataclass(frozen=True)
class Extension(Node):
    """`has_extension("cl_khr_fp16")`: looks in the tuple named `extensions`."""

    extension: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "names", frozenset({"extensions"}))

    def scalar(self, names: Mapping[str, Any]) -> bool:
        return self.extension in names["extensions"]

    def columns(self, frame: Frame, active: Rows) -> Operand:
        return self.extension in frame.columns["extensions"]
