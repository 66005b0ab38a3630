"""Proposals for a kernel file: parameters with values, choices, work-groups, and its kernels' indices as read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from autotune.devices import KernelArgument
from autotune.expression import FUNCTIONS
from autotune.study.drafting.branches import (
    asked_by_directives,
    asked_by_pragmas,
)
from autotune.study.drafting.byvalue import WHOLE_TYPES, ByValue, is_by_value
from autotune.study.drafting.functions import reached
from autotune.study.drafting.groups import FIRST, MADE, WorkGroup, by_default, is_alone
from autotune.study.drafting.indices import Basis
from autotune.study.drafting.macros import Macros
from autotune.study.drafting.nouns import COUNT_NAME, SMALL_NAME, is_of_group
from autotune.study.drafting.reading import Reading
from autotune.study.drafting.repeats import lengths, operands, radii, repeats, row_lengths
from autotune.study.drafting.scopes import Kernel
from autotune.study.drafting.shapes import Shapes
from autotune.study.drafting.signatures import deciding
from autotune.study.drafting.sketch import Sketch
from autotune.study.drafting.statements import read
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.tiles import ends
from autotune.study.drafting.touching import components
from autotune.study.drafting.typedefs import as_written, cast_to, enumerators, in_structs, structs_of, typedefs_of
from autotune.study.drafting.vectors import of_components, pointer, widths_of
from autotune.study.scope import DEVICE_FACTS
from autotune.study.types import SCALAR_TYPES, is_plain


class Proposal(Macros):
    """The proposals for the launched kernels."""

    def __init__(self, sketch: Sketch, launched: Sequence[str], given: Mapping[str, str]) -> None:
        super().__init__(sketch, launched, given)
        self.made: dict[str, str] = {}
        """Sizes that the kernel does not take, each with a remark."""
        self._readings: dict[tuple[object, ...], Reading] = {}
        self.arguments = self._merged()
        self._type_untyped()
        self._set_apart_counts()
        self._set_apart_repeats()
        self.extra: dict[str, int] = {}
        """New parameters for work-groups, which are no macros of the kernel, with their defaults."""
        self.alone: set[str] = set()
        """Kernels in which one work-item does all the work."""
        self.doubts: dict[str, str] = {}
        """Why a kernel's work-group is a guess."""
        self.locals: dict[str, list[str]] = {}
        for entry in launched:  # a work-group may be copied from an earlier kernel
            self.locals[entry] = self._local(entry)
        self._leave_out_idle()
        self.tuned = {entry: self._shapes(entry, tuned=True) for entry in launched}
        self._set_apart_lengths()
        self.shapes = {entry: self._shapes(entry, tuned=False) for entry in launched}

    @property
    def whole(self) -> list[str]:
        """The arguments that are whole numbers and may be sizes."""
        alone = [one.name for one in self.arguments.values() if one.address == "private" and self._is_whole(one)]
        return [*alone, *self.members.values()]

    @property
    def members(self) -> Mapping[str, str]:
        """Whole numbers in structs and vectors by value (`world.count`, `dim.x`), with their names as sizes."""
        return self.by_value.sizes

    @cached_property
    def by_value(self) -> ByValue:
        """The vectors and structs that kernels take by value."""
        taken = {*self.arguments, *self.parameters, *self.choices, *self.tasks, *self.counts, *FUNCTIONS, *DEVICE_FACTS}
        kinds = {one.name: one.type_name for one in filter(is_by_value, self.arguments.values())}
        return ByValue(kinds, self.structs, self.meant, taken)

    def is_small(self, name: str) -> bool:
        """Whether a whole number is, by its name or as loops begin at minus it, probably not a large size."""
        return SMALL_NAME.match(name) is not None or name in self.radii

    def is_known(self, kind: str) -> bool:
        """Whether a type is one of OpenCL's, of the text's structs, or a choice."""
        return is_plain(kind) or kind in self.structs or kind in self.choices

    def configuration(self) -> dict[str, int | str]:
        """Return the default of every parameter."""
        return {
            name: self.given[name] if name in self.words else default
            for name, default in {**self.parameters, **self.extra}.items()
        }

    def kind(self, type_name: str) -> str:
        """Return a type as the study names it: a choice, what a typedef stands for, or the name itself."""
        name = type_name.strip().removeprefix("struct ")
        if name not in SCALAR_TYPES and name not in self.structs:
            meant = self._typedefs.get(name, name)
            if is_plain(meant) or meant in self.choices:
                return meant
        return next((choice for choice, kind in self.choices.items() if kind == name), name)

    _typedefs = cached_property(typedefs_of)

    def kind_of(self, one: KernelArgument) -> str:
        """Return the type of an argument's elements as the study names it; of several choices, the one in the text."""
        told = one.type_name.removesuffix("*")
        stated = self.stated.get(one.name, "")
        usable = stated in self.choices or is_plain(stated)
        return stated if usable and self.choices.get(stated, stated) == told else self.kind(told)

    @cached_property
    def stated(self) -> dict[str, str]:
        """The types of arguments as written in the text, by name."""
        told = {entry: self.sketch.signatures[entry] for entry in self.launched}
        return as_written(told, self.sketch.source, {*self.choices})

    structs = cached_property(structs_of)
    radii = cached_property(radii)

    def kinds(self, name: str) -> list[set[str]]:
        """Return how each kernel that takes an argument uses it: `read`, `write`, `both`."""
        taking = [entry for entry in self.launched if name in {one.name for one in self.sketch.signatures[entry]}]
        return [self.shapes[entry].reading.kinds(name) for entry in taking]

    # -- macros that are none to tune -------------------------------------------------------------

    def _set_apart_repeats(self) -> None:
        """Turn the macros that decide what is computed, and on what, into tasks: these must not be tuned."""
        pointers = [one.name for one in self.arguments.values() if one.address != "private"]
        names = self.parameters.keys() - self.words.keys()
        found = in_structs(self.text, names, self.arguments.values()) | deciding(self, names)
        if (tokens := self.code.tokens(self.kept(tuned=True))) is not None:
            found |= repeats(tokens, names, pointers) | operands(tokens, names, pointers)
        self._take_for(self.tasks, found)

    def _set_apart_lengths(self) -> None:
        """Turn macros that alone give the length of inputs into tasks: inputs are the same for all configurations."""
        if found := lengths(self, self.parameters.keys() - self.words.keys() - self._extents()):
            self._take_for(self.tasks, found)
            self.tuned = {entry: self._shapes(entry, tuned=True) for entry in self.launched}

    def _extents(self) -> set[str]:
        """The names in the extents of work-groups."""
        return {word for extents in self.locals.values() for extent in extents for word in re.findall(r"\w+", extent)}

    def _set_apart_counts(self) -> None:
        """Turn macros that are sizes into counts: by their names, or as the end or row length of global ids."""
        found = {name for name in self.parameters if COUNT_NAME.match(name)}
        for reading in (self._reading(entry, tuned=True) for entry in self.launched):
            for limit in ends(reading):
                if limit.names <= self.parameters.keys() and not any(map(is_of_group, limit.names)):
                    found |= limit.names
            found |= row_lengths(reading, self.parameters)
        found -= {*self.words, *widths_of(self, tuned=True).values()}
        self._take_for(self.counts, {name for name in found if self.parameters[name] > 0})

    # -- arguments --------------------------------------------------------------------------------

    def _merged(self) -> dict[str, KernelArgument]:
        """Return the arguments of all kernels by name; const if each kernel takes it as const."""
        found: dict[str, KernelArgument] = {}
        for entry in self.launched:
            for one in self.sketch.signatures[entry]:
                before = found.get(one.name, one)
                least = min(before.type_name, one.type_name, key=lambda kind: components(kind.removesuffix("*"))[1])
                found[one.name] = replace(before, const=before.const and one.const, type_name=least)
        return {name: replace(one, type_name=of_components(self, one)) for name, one in found.items()}

    def meant(self, type_name: str) -> str:
        """Return the type that the name of a type stands for by default."""
        return self.choices.get(kind := self.kind(type_name.removesuffix("*")), kind)

    def _type_untyped(self) -> None:
        """Give each `void *` argument the type to which it is cast when it is read and written, if that is one type."""
        self.cast = cast_to(self, (self._reading(entry, tuned=False) for entry in self.launched))
        signatures = {
            entry: [replace(one, type_name=f"{self.cast[one.name]}*") if one.name in self.cast else one for one in told]
            for entry, told in self.sketch.signatures.items()
        }
        self.sketch = replace(self.sketch, signatures=signatures)
        self.arguments = self._merged()

    def _is_whole(self, one: KernelArgument) -> bool:
        reserved = one.name in FUNCTIONS or one.name in DEVICE_FACTS or one.name in SCALAR_TYPES
        return one.type_name in WHOLE_TYPES and not reserved

    # -- work-groups ------------------------------------------------------------------------------

    def _local(self, entry: str) -> list[str]:
        """Return the extents of a kernel's work-group; adds parameters for extents that nothing in the kernel tells."""
        of_kernel = WorkGroup(self, entry, self._reading(entry, tuned=True), self._dimensions(entry))
        if is_alone(self, entry):
            self.alone.add(entry)
            return ["1"]
        told = of_kernel.told()
        group = told or of_kernel.made_up()
        self.doubts[entry] = group.doubt
        if told is not None:
            return told.extents
        least = FIRST[sum(extent != "1" for extent in group.extents)]
        for name in [each for each in group.extents if each in MADE and each not in self.own]:
            self.extra[name] = min(self.extra.get(name, 64), least)
        return [self.own.get(name, name) for name in group.extents]

    def _leave_out_idle(self) -> None:
        """Remove parameters that only their default or other kernels name, except extents of work-groups."""
        asked = {name for name in self.parameters if not self.is_idle(name)}
        if (tokens := self.code.tokens(self.kept(tuned=True))) is not None:
            # Words become numbers in preprocessing, and so are not met there.
            words = reached(tokens, self.launched) | self.words.keys()
            put_in = re.findall(r"#[ \t]*define[ \t]+(\w+)", self.text)  # macros may be joined into words by ##
            words = words.union(*(self.code.joined.get(word, ()) for word in (*words, *put_in)))
            asked &= words | asked_by_directives(self.text) | asked_by_pragmas(self.text)
        for name in [name for name in self.parameters if name not in asked | self._extents()]:
            self._set_apart(name)

    def _dimensions(self, entry: str) -> int:
        if axes := self._reading(entry, tuned=True).ids.asked:
            return max(axes) + 1
        asked = re.findall(r"get_(?:global|local|group)_(?:id|size)\s*\(\s*([012])\s*\)", self.text)
        return max([int(one) for one in asked], default=0) + 1

    # -- indices ----------------------------------------------------------------------------------

    def _shapes(self, entry: str, *, tuned: bool) -> Shapes:
        local, each = self.locals[entry], dict[int, Sum]()
        if not tuned:
            numbers = {**self.parameters, **self.extra}
            local = [by_default(extent, numbers) for extent in local]
            each = {a: Sum.of(int(by_default(str(n), numbers))) for a, n in self.tuned[entry].each.items()}
        given = [*self.parameters, *self.choices, *self.tasks, *self.counts, *self.extra]
        members, taken = set(self.members.values()), [one.name for one in self.sketch.signatures[entry]]
        whole = sorted(self.whole, key=lambda name: name not in taken)  # this kernel's before those of others
        sizes = {name: name in members or self.is_small(name) for name in whole} | dict.fromkeys(self.counts, False)
        reading, names = self._reading(entry, tuned=tuned), {*self.arguments, *given, *members}
        return Shapes(Basis(reading, sizes, local, taken=names, made=self.made, each=each))

    def read_by_own_names(self, entry: str) -> Reading:
        """Walk through a kernel; its own numbers remain names."""
        return self._reading(entry, tuned=True, own=[*self.own])

    def _reading(self, entry: str, *, tuned: bool, own: Sequence[str] = ()) -> Reading:
        """Walk through a kernel: its parameters remain names if it is `tuned`, else they have their defaults."""
        kept, widths = [*self.kept(tuned=tuned), *own], widths_of(self, tuned=tuned)
        known = {name: number for name, number in enumerators(self.text).items() if name not in self.arguments}
        known |= {name: name for name in (*self.whole, *kept)}
        called = self.sketch.called.get(entry, {})
        known |= {theirs: name for name, theirs in called.items() if name in known}
        given = {
            called.get(one.name, one.name): (
                self.by_value.value(one.name) if is_by_value(one) else pointer(self, one, widths)
            )
            for one in self.sketch.signatures[entry]
        }
        key = (entry, *kept, *known.items(), *self.members.items(), *map(str, given.items()))
        if key not in self._readings:
            self._readings[key] = read(Kernel(self.code.functions(kept), entry, given, known, widths))
        return self._readings[key]
