"""Proposals for each argument: its extents, how the kernels use it, its data or value, and its structs."""

from __future__ import annotations

import re
from collections.abc import Collection

from autotune.devices import KernelArgument
from autotune.errors import StudyError
from autotune.study.drafting.byvalue import letters
from autotune.study.drafting.contents import chosen_rows, leads, offsets, places_in, scatters
from autotune.study.drafting.images import BEYOND, extents_of
from autotune.study.drafting.leaving import left_alone, untouched
from autotune.study.drafting.nouns import is_of_group
from autotune.study.drafting.parts import counted
from autotune.study.drafting.proposal import Proposal
from autotune.study.drafting.repeats import codes
from autotune.study.drafting.scanning import of_unions, struct_attributes
from autotune.study.drafting.shapes import product
from autotune.study.drafting.syntax import names_in
from autotune.study.drafting.terms import Sum, spread_out
from autotune.study.drafting.touching import components
from autotune.study.types import is_plain, scalar_type

_REAL = ("half", "float", "double")

_REALS = (0.5, 0.75, 0.625, 0.875, 0.5625, 0.6875, 0.8125, 0.9375)
"""Values for floating-point numbers, exact in each of these types, and different so that swapped ones show."""


def in_memory(one: KernelArgument) -> bool:
    """Whether an argument is a buffer or an image (compilers may report images as private)."""
    return one.address == "global" or bool(one.access)


class Uses:
    """The uses of all arguments; `shapes`: the extents of arguments whose indices tell them, by name."""

    def __init__(self, proposal: Proposal) -> None:
        self._of = proposal
        self.shapes: dict[str, list[Sum]] = {}
        self._reals: dict[str, int] = {}  # the index into _REALS for an argument or member
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
        self._left_alone = left_alone(proposal)
        self.untouched = untouched(proposal, self._left_alone)
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
        """Return an argument's extents as its indices tell them; scratch and local memory's in terms of parameters."""
        image = extents_of(one.type_name)
        if one.address == "private" and image is None:
            return None
        own = self.access(one) == "scratch" or one.address == "local"
        written = self.access(one) in ("out", "inout")
        if image is not None:
            found = [shapes.image(one.name, image) for shapes in self._of.shapes.values()]
            if any(one.name in shapes.doubts for shapes in self._of.shapes.values()):
                self.doubts[one.name] = BEYOND
            shape = max((shape for shape in found if shape is not None), key=len, default=None)
            for entry, shapes in self._of.shapes.items() if shape is None and self.access(one) == "in" else ():
                if any(each.name == one.name for each in self._of.sketch.signatures[entry]):
                    self.doubts[one.name] = "its coordinates were not read"  # samplers can read at any coordinates
                    self.unread.add(one.name)
                    return shapes.unread_image(image)
            return shape
        told = self._told(one.name, written=written, tuned=own)
        shape = told[0] if told else None
        if shape is not None and not own and (depends := self._defaults_in(one.name, written=written)):
            if whole := self._in_whole_vectors(one.name, written=written):
                return whole
            by_default = f"as {depends} {'have' if ' and ' in depends else 'has'} it by default"
            if written:  # the same elements are compared for every configuration
                self.by_default[one.name] = f'"{", ".join(map(str, shape))}" {by_default}'
                if self.access(one) == "out" and any(map(is_of_group, names_in(depends))):  # one result per group
                    self.by_default[one.name] += "; with a [check] that adds the parts, sum(...), it may"
                return None
            self.doubts.setdefault(one.name, f"{by_default}: it may not depend on a parameter")
        return shape

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
                    shape[axis] = Sum.of(f"round_up({length - rim}, {max(of.values(width, default)[0])})") + rim
        return [] if names_in(" ".join(map(str, shape))) & {*of.parameters, *of.extra} else shape

    def codes(self) -> set[str]:
        """Return the whole numbers that kernels only use to tell cases apart: they are no sizes."""
        functions = self._of.code.functions()
        bodies = (functions[entry].body for entry in self._of.launched if entry in functions)
        return codes([token for body in bodies for token in body], self._of.whole)

    def access(self, one: KernelArgument) -> str:
        """Return how the kernels use an argument; `scratch` if one kernel writes it and a later one reads it."""
        if one.name in self.untouched:
            return "in"
        if one.access:
            return {"read_only": "in", "write_only": "out"}.get(one.access, "inout")
        if one.const or one.address == "constant":
            return "in"
        kinds = [each for each in self._of.kinds(one.name) if each]
        if len(kinds) > 1 and kinds[0] == {"write"} and kinds[-1] == {"read"}:
            return "scratch"
        if not kinds:
            return self._written(one.name)
        return {frozenset({"write"}): "out", frozenset({"read"}): "in"}.get(frozenset().union(*kinds), "inout")

    def overwritten(self, entry: str) -> tuple[str, str] | None:
        """Return a buffer that a kernel writes without reading, and the earlier kernel that wrote it; or None.

        The earlier kernel may only seem to write it. As nothing reads the buffer between the two, one kernel is an
        alternative or an optional step.
        """
        for name, one in self._of.arguments.items():
            if in_memory(one) and self.kinds(entry, name) == {"write"}:
                before = (other for other in reversed(self._before(entry)) if self.kinds(other, name))
                if (last := next(before, None)) is not None and self.kinds(last, name) != {"read"}:
                    return name, last
        return None

    def may_swap(self, one: str, other: str) -> bool:
        """Whether two buffers have the same type and extents, as buffers that are swapped must have."""
        kinds = {self._of.kind_of(self._of.arguments[name]) for name in (one, other)}
        return len(kinds) == 1 and self.shapes.get(one) == self.shapes.get(other)

    def _before(self, entry: str) -> list[str]:
        launched = list(self._of.launched)
        return launched[: launched.index(entry)]

    def kinds(self, entry: str, name: str) -> set[str]:
        """Return how one kernel uses an argument; `both` if its text was not understood and nothing forbids that."""
        left = self._left_alone.get(entry, ())
        taken = [one for one in self._of.sketch.signatures[entry] if one.name == name and name not in left]
        known = self._of.shapes[entry].reading.kinds(name)
        said = {"read_only": "read", "write_only": "write"}
        return known or {"read" if one.const else said.get(one.access, "both") for one in taken}

    def in_text(self, name: str) -> str:
        """Return the name of an argument in the text."""
        return next((called[name] for called in self._of.sketch.called.values() if name in called), name)

    def taken_as(self, name: str) -> str:
        """Return a remark if kernels take a buffer as different types, of which the study can have only one; or ""."""
        told = {
            entry: one.type_name
            for entry in self._of.launched
            for one in self._of.sketch.signatures[entry]
            if one.name == name
        }
        if name in self._of.cast:
            return "its type: void in the kernel, which casts it"
        mine = self._of.arguments[name].type_name
        other = next((entry for entry, kind in told.items() if kind != mine and kind.endswith("*")), None)
        return "" if other is None else f"{other} takes it as {told[other].removesuffix('*')}"

    def _written(self, name: str) -> str:
        """Return `out` if every mention in the bodies stores to an element, else `inout`."""
        name, bodies = self.in_text(name), self._of.text[self._of.text.find("{") :]
        mentions = re.findall(rf"\b{name}\b(?!\s*[,)])", bodies)
        stores = re.findall(rf"\b{name}\s*\[[^;=]*\]\s*=(?!=)", bodies)
        return "out" if stores and len(stores) == len(mentions) else "inout"

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

    def data(self, one: KernelArgument, kind: str, sizes: Collection[str]) -> tuple[str, str]:
        """Return the key for an input's data, in terms of `sizes`, and a remark; empty strings for the default data."""
        if not is_whole(kind):
            led = kind in self._of.structs and any(leads(each.reading, one.name) for each in self._of.shapes.values())
            said = "its data: members of it are indices into other arguments"
            return (self._of.by_value.first_places(kind), said) if led else ("", "")
        others = {*self._of.whole} - {*sizes}
        for each in (*self._of.tuned.values(), *self._of.shapes.values()):
            if one.name in offsets(each.reading) and one.name in self.shapes:
                rows = self.shapes[one.name][0] - 1
                steps = f"arange({rows + 1}) * ENTRIES // {rows if len(rows.terms) == 1 else f'({rows})'}"
                real = 'rows of equal length; for a real matrix { file = "FILE.mtx", part = "indptr" }'
                return f', data = {{ numpy = "{steps}" }}', real
            elements = {name: product(shape) for name, shape in self.shapes.items()}
            places = places_in(each.reading, one.name, elements, each.upper)
            for name in others:
                places = places and places.with_value(name, Sum.of(int(name not in self.shifts)))
            if places is not None and not names_in(str(places)) & {*self._of.parameters, *self._of.extra, *others}:
                if scatters(each.reading, one.name) and self.shapes.get(one.name) == [places]:
                    return ', data = { distribution = "permutation" }', "indices of the places to write, each once"
                largest = {"uchar": 255, "char": 127}.get(kind)
                high = f"{(spread_out(f'({places})') or places) - 1}"
                taken_off = any(factor < 0 < len(names) for names, factor in places.terms.items())
                if taken_off or "//" in high:  # the number of places might be 0
                    high = f"max({high}, 0)"
                high = high if largest is None else f"min({high}, {largest})"
                real = "random indices"
                if any("ENTRIES" in str(extent) for extent in self.shapes.get(one.name, [])):
                    real += '; for a real matrix { file = "FILE.mtx", part = "indices" }'
                return f', data = {{ low = 0, high = "{high}" }}', real
        if self._of.kinds(one.name) and set().union(*self._of.kinds(one.name)) == {"both"}:
            return ', data = { distribution = "constant", value = 0 }', "it starts at 0, as results are added to it"
        return ", data = { low = 0, high = 100 }", "its data"

    def value(self, kind: str, path: str, sizes: Collection[str]) -> str:
        """Return a value of a type: by member for a struct, by part if the parts differ.

        `path`: its place in an argument, such as `world.origin`; `sizes`: those that the study has.
        """
        if kind in self._of.structs:
            members = self._of.by_value.members(kind)
            table = (f"{name} = {self._part(of, f'{path}.{name}', length, sizes)}" for name, of, length in members)
            return "{ " + ", ".join(table) + " }"
        parts = [
            self._number(f"{path}.{letter}", kind, sizes, of=path)
            for letter in letters(components(self._of.meant(kind))[1])
        ]
        return self._number(path, kind, sizes) if len({*parts}) == 1 else f"[{', '.join(parts)}]"

    def _part(self, kind: str, path: str, length: int | None, sizes: Collection[str]) -> str:
        numbers = [self._number(f"{path}[{place}]", kind, sizes) for place in range(length or 0)]
        return f"[{', '.join(numbers)}]" if len({*numbers}) > 1 else self.value(kind, path, sizes)

    def _number(self, path: str, kind: str, sizes: Collection[str], of: str = "") -> str:
        """Return a number in an argument, or a component `of` a vector: its size, 0 if it only shifts places, else 1.

        A floating-point number is not 1, so that a product with it shows, and differs from the others.
        """
        if path in self.counts:
            return f'"{self.counts[path]}"'
        size = self._of.members.get(path, path)
        if size in sizes and path in self._of.members:
            return f'"{size}"'
        meant = self._of.meant(kind)
        if size in self.shifts or not is_plain(meant) or is_whole(meant):
            return '"0"' if size in self.shifts else '"1"'
        place = self._reals.setdefault(of or path, len(self._reals))
        return f'"{_REALS[place % len(_REALS)]}"'

    def structs(self) -> list[tuple[str, str, str]]:
        """Return the lines for the structs of arguments, inner ones first, each with what is missing and a remark."""
        attributes, unions = struct_attributes(self._of.text), of_unions(self._of.text)
        bodies, lines = self._of.structs, dict[str, tuple[str, str, str]]()

        def add(name: str) -> None:
            if name in lines or name not in bodies:
                return
            for member in bodies[name]:
                add(member.split()[0])
            listed = ", ".join(f'"{member}"' for member in (*attributes.get(name, ()), *bodies[name]))
            unread = ", ".join(member for member in bodies[name] if not self._is_member(member))
            asked = f"its members: the meaning of {unread} is not known" if unread else ""
            said = "the largest member of a union" if unions & {*bodies[name]} else ""
            lines[name] = f"{name} = [{listed}]", asked, said

        for one in self._of.arguments.values():
            add(one.type_name.removesuffix("*").removeprefix("struct ").strip())
        return list(lines.values())

    def _is_member(self, member: str) -> bool:
        kind, _, name = member.partition(" ")
        return self._of.is_known(kind) and re.fullmatch(r"\w+(\s*\[\s*\d+\s*\])*", name) is not None


def is_whole(kind: str) -> bool:
    """Whether a type is one of whole numbers."""
    return is_plain(kind) and scalar_type(kind)[1] not in _REAL


def is_real(one: KernelArgument) -> bool:
    """Whether an argument has floating-point numbers, or a type that is not OpenCL's."""
    try:
        return scalar_type(one.type_name.removesuffix("*"))[1] in _REAL
    except StudyError:
        return True
