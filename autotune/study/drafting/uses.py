"""Proposals for the extents of each argument, and for numbers that follow from extents."""

from __future__ import annotations

from autotune.devices import KernelArgument
from autotune.study.drafting.accesses import Accesses
from autotune.study.drafting.contents import chosen_rows, offsets
from autotune.study.drafting.images import BEYOND, extents_of
from autotune.study.drafting.nouns import is_of_group
from autotune.study.drafting.parts import counted
from autotune.study.drafting.proposal import Proposal
from autotune.study.drafting.repeats import codes
from autotune.study.drafting.shapes import product
from autotune.study.drafting.syntax import names_in
from autotune.study.drafting.terms import Sum


class Uses(Accesses):
    """The uses of all arguments; `shapes`: the extents of arguments whose indices tell them, by name."""

    def __init__(self, proposal: Proposal) -> None:
        super().__init__(proposal)
        self.shapes: dict[str, list[Sum]] = {}
        self.doubts: dict[str, str] = {}
        """Why the extents of an argument are a guess."""
        self.by_default: dict[str, str] = {}
        """Remarks on outputs whose extents depend on a parameter, which is not allowed: the extents by its default."""
        read = [each.reading for each in proposal.shapes.values()]
        self.shifts = {name: "places" for each in read for name in each.added() & {*proposal.whole}}
        self.shifts |= {name: "bytes" for each in read for name in each.shifts}
        """Numbers that only shift places, with their unit."""
        self.unread: set[str] = set()
        """Images whose extents are only assumed."""
        for one in proposal.arguments.values():
            if one.name in self.untouched:
                self.shapes[one.name], self.doubts[one.name] = [Sum.of(1)], "since no kernel touches it"
            elif (shape := self._shape_read(one)) is not None:
                self.shapes[one.name] = shape
        self.indexed: set[str] = set()
        """Buffers whose places are contents of another buffer, so that nothing says how many there are."""
        for name, one in proposal.arguments.items():
            if name in self.shapes or one.address == "local":  # local memory is never as long as a launch
                continue
            if shape := self._indexed(name):
                self.shapes[name] = shape
                self.indexed.add(name)
        self.rimmed = self._widened()
        """Grids whose rim the kernels do not touch."""
        self.counts: dict[str, str] = {}
        """Whole numbers that are the count of partial results of earlier kernels, with that count as an expression."""
        for name, count, extents in counted(proposal, self):
            self.shapes[name], self.counts[count] = extents, str(product(extents))

    def _shape_read(self, one: KernelArgument) -> list[Sum] | None:
        """Return an argument's extents as its indices tell them; None if they tell none."""
        if (dimensions := extents_of(one.type_name)) is not None:
            return self._image_read(one, dimensions)
        return None if one.address == "private" else self._buffer_read(one)

    def _image_read(self, one: KernelArgument, dimensions: int) -> list[Sum] | None:
        all_shapes = self._of.shapes
        found = [shapes.image(one.name, dimensions) for shapes in all_shapes.values()]
        if any(one.name in shapes.doubts for shapes in all_shapes.values()):
            self.doubts[one.name] = BEYOND
        shape = max((shape for shape in found if shape is not None), key=len, default=None)
        if shape is not None or self.access(one) != "in":
            return shape
        for entry, shapes in all_shapes.items():
            if any(each.name == one.name for each in self._of.sketch.signatures[entry]):
                self.doubts[one.name] = "its coordinates were not read"  # samplers can read at any coordinates
                self.unread.add(one.name)
                return shapes.unread_image(dimensions)
        return None

    def _buffer_read(self, one: KernelArgument) -> list[Sum] | None:
        """Return a buffer's extents; scratch and local memory's in terms of parameters, which others may not have."""
        access = self.access(one)
        own, written = access == "scratch" or one.address == "local", access in ("out", "inout")
        shape = next(iter(self._told(one.name, written=written, tuned=own)), None)
        if shape is None or own or not (depends := self._defaults_in(one.name, written=written)):
            return shape
        if whole := self._in_whole_vectors(one.name, written=written):
            return whole
        by_default = f"as {depends} {'have' if ' and ' in depends else 'has'} it by default"
        if not written:
            self.doubts.setdefault(one.name, f"{by_default}: it may not depend on a parameter")
            return shape
        # The same elements are compared for every configuration.
        self.by_default[one.name] = f'"{", ".join(map(str, shape))}" {by_default}'
        if access == "out" and any(map(is_of_group, names_in(depends))):  # one result per group
            self.by_default[one.name] += "; with a [check] that adds the parts, sum(...), it may"
        return None

    def _told(self, name: str, *, written: bool, tuned: bool) -> list[list[Sum]]:
        """Return a buffer's extents by kernel, those with the most axes and elements first; notes doubts."""
        told = list[list[Sum]]()
        sizes = dict[int, float]()
        all_shapes = (self._of.tuned if tuned else self._of.shapes).values()
        for shapes in all_shapes:
            local = self._of.arguments[name].address == "local"
            shape = shapes.shape(name, written=written, farthest=tuned, local=local)
            if shape is not None:  # a size that one kernel shows to be small is small for all
                sizes[id(shape)] = min(each.elements(shape) for each in all_shapes)
                told.append(shape)
            elif shapes.reading.of(name):
                self.doubts[name] = BEYOND
            if name in shapes.doubts:
                self.doubts[name] = BEYOND
        told.sort(key=lambda shape: (len(shape), sizes[id(shape)]), reverse=True)
        if any(sizes[id(shape)] > sizes[id(told[0])] for shape in told):
            self.doubts[name] = BEYOND
        return told

    def _defaults_in(self, name: str, *, written: bool) -> str:
        """Return the parameters that a buffer's extents depend on, joined by "and"; empty if there are none."""
        told = [shapes.shape(name, written=written) for shapes in self._of.tuned.values()]
        mentioned = {word for shape in told for extent in shape or () for word in names_in(str(extent))}
        return " and ".join(sorted(mentioned & {*self._of.parameters, *self._of.extra}))

    def _in_whole_vectors(self, name: str, *, written: bool) -> list[Sum]:
        """Return the extents of an array if a parameter only decides how far its last vector reaches.

        They are as far as the widest vector reaches; empty if more depends on parameters.
        """
        of = self._of
        shape = next(iter(self._told(name, written=written, tuned=True)), [])
        strides = set[str]().union(*(shapes.strides(name) for shapes in of.tuned.values()))
        for width, default in of.parameters.items():
            if width not in strides:  # a sliding window
                continue
            for axis, extent in enumerate(shape):
                length = extent.with_value(width, Sum.of(1))
                if length.names and extent - length == Sum.of(width) - 1:
                    rim = max(length.constant, 0)  # of a window, beyond the last of the widest share
                    shape[axis] = Sum.of(f"round_up({length - rim}, {max(of.values(width, default).numbers)})") + rim
        return [] if names_in(" ".join(map(str, shape))) & {*of.parameters, *of.extra} else shape

    def codes(self) -> set[str]:
        """Return the whole numbers that kernels only use to tell cases apart: they are no sizes."""
        functions = self._of.code.functions()
        bodies = (functions[entry].body for entry in self._of.launched if entry in functions)
        return codes([token for body in bodies for token in body], self._of.whole)

    def may_swap(self, one: str, other: str) -> bool:
        """Whether two buffers have the same type and extents, as buffers that are swapped must have."""
        kinds = {self._of.kind_of(self._of.arguments[name]) for name in (one, other)}
        return len(kinds) == 1 and self.shapes.get(one) == self.shapes.get(other)

    def _indexed(self, name: str) -> list[Sum]:
        """Return the extents of a buffer whose elements or rows are chosen by contents of another; empty for others.

        It has as many as other buffers have rows, or as there are work-items.
        """
        for shapes in self._of.shapes.values():
            if (lengths := chosen_rows(shapes.reading, name)) and 0 in shapes.axes:
                begun = offsets(shapes.reading)
                rows = (self.shapes[other][0] - 1 for other in begun if other in self.shapes)
                many = next(rows, shapes.axes[0]) + (name in begun)
                longer = [each for each in lengths if each != Sum.of(1) and min(each.terms.values(), default=0) > 0]
                return [many, *(longer if len(longer) == 1 else ())]
        return []

    def _widened(self) -> set[str]:
        """Give grids that differ by rows the extents of the largest; return which have grown."""
        grown = set()
        for name, shape in self.shapes.items():
            for other in self.shapes.values():
                more = (other[0] - shape[0]).number
                counted = len(shape) > 1 and shape[0].names  # a fixed number of components is not a grid
                if counted and other[1:] == shape[1:] and more is not None and more > 0:
                    self.shapes[name] = shape = other
                    grown.add(name)
        return grown
