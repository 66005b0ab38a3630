"""Arguments in global memory: buffers and images, and how images are read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from autotune.errors import StudyError
from autotune.expression import Expression
from autotune.study.argument import BRACES, Argument, Data, Extent, concrete_type, declared_type, extents
from autotune.study.structs import astride
from autotune.study.types import numpy_type, scalar_type

if TYPE_CHECKING:
    from autotune.devices import Session
    from autotune.study.schema import ArgumentTable
    from autotune.study.scope import Scope

_UNIFORM = Data()
_READ, _WRITTEN = {"in", "inout"}, {"out", "inout"}


@dataclass(frozen=True, slots=True)
class Buffer(Argument):
    """A global buffer: its data fills `shape`; the kernel sees `allocate`, each extent >= that of `shape`.

    `access` is `in`, `out`, `inout` (restored before each verified run), `scratch` or `zeroed` (zeroed before each
    run). The part of `allocate` outside `shape` is zero. `filled` names the input whose contents it begins with, if
    that is another's because the two change places by the end of the run. `constant`: it is in constant memory; in a
    study an expression if that depends on the configuration.
    """

    shape: tuple[Extent, ...]
    allocate: tuple[Extent, ...]
    access: str = "in"
    data: Data = _UNIFORM
    filled: str = ""
    constant: bool | Expression = False

    key: ClassVar[str] = "shape"
    kind: ClassVar[str] = "a buffer"

    @property
    def reads(self) -> bool:
        return self.access in _READ

    @property
    def writes(self) -> bool:
        return self.access in _WRITTEN

    @property
    def data_shape(self) -> tuple[int, ...]:
        """The shape of its data: a vector type has one more axis."""
        _, width = numpy_type(self.type)
        return (*self.shape, width) if width > 1 else self.shape

    @property
    def _extents(self) -> tuple[Extent, ...]:
        return self.allocate

    @classmethod
    def declare(cls, name: str, table: ArgumentTable, given: Scope, tuned: Scope) -> Self:
        where, access, shaped = f"arguments.{name}", table.access or "", tuned
        if access in _READ | _WRITTEN:  # every configuration solves the same problem
            _require_no_parameter(table, where, given, tuned)
            shaped = given
        shape = shaped.expressions(table.shape or (), f"{where}.shape")
        kind = declared_type(table.type, where, shaped, tuned)
        allocate = shape if table.allocate is None else tuned.expressions(table.allocate, f"{where}.allocate")
        data = Data.declare(dict(table.data or {}), f"{where}.data", given)
        placed = table.constant
        constant = tuned.expression(placed, f"{where}.constant") if isinstance(placed, str) else placed
        return cls(name, kind, shape, allocate, access, data, constant=constant)

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        where = f"arguments.{self.name}"
        kind, shape = concrete_type(self.type, names), extents(self.shape, names, f"{where}.shape")
        allocate = extents(self.allocate, names, f"{where}.allocate") if padded else shape
        if tuple(map(max, allocate, shape)) != allocate:
            raise StudyError(f"allocates {allocate}, less than its shape {shape}", where=where)
        if self.access in _WRITTEN and (leaf := astride(kind)) is not None:
            what = f"{self.name}{leaf.label} is not aligned to its size, and cannot be compared"
            raise StudyError(
                what, where=where, hint='write outputs to a struct that is not packed; "in" and "scratch" may be'
            )
        data = self.data.concrete(names, f"{where}.data")
        placed = self.constant
        # Without a configuration, nothing needs to know in which memory it is.
        constant = placed if isinstance(placed, bool) else padded and bool(placed.evaluate(names))
        return replace(self, type=kind, shape=shape, allocate=allocate, data=data, constant=constant)

    def create(self, session: Session) -> Any:
        return session.allocate(self.nbytes)


@dataclass(frozen=True, slots=True)
class Image(Buffer):
    """An image of one to three dimensions; as data it is a buffer of vectors, one component a channel.

    `shape` is in NumPy's order: `(height, width)`. `order` is OpenCL's order of channels; `normalized`: the kernel sees
    whole numbers as 0 to 1 (or -1 to 1). `form` is `array` for an array of two-dimensional images, whose first extent
    is the number of layers, and `buffer` for an image of one dimension over a buffer. On the device, a buffer beside
    the image holds its pixels: the image is filled from it, and copied into it for checks.
    """

    order: str = "RGBA"
    normalized: bool = False
    form: str = ""

    key: ClassVar[str] = "image"
    kind: ClassVar[str] = "an image"

    @classmethod
    def declare(cls, name: str, table: ArgumentTable, given: Scope, tuned: Scope) -> Self:
        where, shape = f"arguments.{name}", given.expressions(table.image or (), f"arguments.{name}.image")
        order, kind = table.channels or "RGBA", declared_type(table.type, where, given, tuned)
        if "{" not in kind and (scalar_type(kind)[2] != 1 or kind in ("long", "ulong", "double")):
            hint = f'an image of order {order} and type "float" is read as float4 by the kernel'
            raise StudyError(f"{kind!r} is not a type of a channel", where=f"{where}.type", hint=hint)
        width = "" if CHANNELS[order] == 1 else str(CHANNELS[order])
        data, normalized = Data.declare(dict(table.data or {}), f"{where}.data", given), bool(table.normalized)
        access = table.access or ""
        form = table.form or ""
        return cls(name, kind + width, shape, shape, access, data, order=order, normalized=normalized, form=form)

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        made = super(Image, self).concrete(names, padded=padded)
        if self.normalized and made.channel not in ("char", "uchar", "short", "ushort"):
            what = f"a channel of {made.channel} is not normalized: that is for whole numbers of 8 and 16 bits"
            raise StudyError(what, where=f"arguments.{self.name}.normalized")
        return made

    @property
    def channel(self) -> str:
        """OpenCL's scalar type of one channel."""
        return scalar_type(self.type)[1]

    @property
    def called(self) -> str:
        """What OpenCL calls it: `image2d`, `image2d_array`, `image1d_buffer`."""
        return f"image{len(self.shape) - (self.form == 'array')}d{f'_{self.form}' if self.form else ''}"

    def create(self, session: Session, shape: tuple[int, ...] = ()) -> Any:
        """Return one on the device, or one of another `shape`."""
        return session.image(shape or self.shape, self.order, self.channel, self.normalized, self.form)


CHANNELS = {
    "R": 1, "A": 1, "RG": 2, "RA": 2, "RGBA": 4, "BGRA": 4, "ARGB": 4, "INTENSITY": 1, "LUMINANCE": 1,
}  # fmt: skip
"""Orders of channels, and how many components they have."""


@dataclass(frozen=True, slots=True)
class Sampler(Argument):
    """How a kernel reads images, as an argument: addressing, filter, whether coordinates run from 0 to 1."""

    addressing: str
    filter: str
    normalized: bool

    key: ClassVar[str] = "sampler"
    kind: ClassVar[str] = "a sampler"

    @property
    def _extents(self) -> tuple[Extent, ...]:
        return ()

    @classmethod
    def declare(cls, name: str, table: ArgumentTable, given: Scope, tuned: Scope) -> Self:
        said = table.sampler
        assert said is not None
        return cls(name, "sampler_t", said.addressing, said.filter, said.normalized)

    def concrete(self, names: Mapping[str, Any], *, padded: bool = True) -> Self:
        return self

    def create(self, session: Session) -> Any:
        return session.sampler(self.addressing, self.filter, self.normalized)


def _require_no_parameter(table: ArgumentTable, where: str, given: Scope, tuned: Scope) -> None:
    """Raise StudyError if a parameter shapes data that all configurations share."""
    cure = "pad with allocate, which may use parameters"
    if table.access == "out":  # nothing is copied into it from the host
        cure += ", or let [check] replace the output"
    for text in table.shape or ():  # an unknown name is reported with the names that a shape may use
        named = Expression.parse(text, where=f"{where}.shape").names
        for name in sorted(named - tuned.known - tuned.definitions.keys()):
            given.require(name, f"{where}.shape")
    shapes = tuned.expressions(table.shape or (), f"{where}.shape")
    used = [(name, "shape") for each in shapes for name in each.names]
    used += [(name, "type") for name in BRACES.findall(table.type) or [table.type]]
    for name, key in sorted(used):
        if name in tuned.known - given.known:
            raise StudyError(
                f"{name} is a parameter, and cannot shape data that all configurations share",
                where=f"{where}.{key}",
                hint=cure if key == "shape" else "make it a choice, or cast in the kernel",
            )
