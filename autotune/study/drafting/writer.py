"""The text of a study to start from: what proposal.py and shapes.py propose, each guess with a comment that says so."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from autotune.devices import KernelArgument
from autotune.errors import StudyError
from autotune.study.drafting.proposal import Proposal, Sketch, is_plain, proposed
from autotune.study.drafting.scanning import candidates
from autotune.study.drafting.terms import Sum
from autotune.study.scope import GAP
from autotune.study.types import scalar_type

_GUESS = "guess"
_REAL = ("half", "float", "double")
_ENTRIES_EACH = 16
"""Entries that a row of other arrays is proposed to have."""


def entries(sketch: Sketch, wanted: str | None) -> list[str]:
    """Return the kernels to launch: the one that is wanted, or all. Raises StudyError."""
    known = list(sketch.signatures)
    if not known:
        raise StudyError("has no kernel", where=sketch.kernel, hint="write kernel void name(...)")
    if wanted is None:
        return known
    if wanted not in known:
        raise StudyError(f"has no kernel {wanted!r}", where=sketch.kernel, hint=f"it has {', '.join(known)}")
    return [wanted]


def draft(sketch: Sketch, wanted: str | None = None, defined: Mapping[str, str] | None = None) -> str:
    """Return the text of a study. `defined`: what may be set from outside, with its defaults as written.

    `sketch.gaps` and `sketch.guesses` then hold a line for each of theirs, which are marked in the text. Raises
    StudyError where the file has no such kernel.
    """
    given = candidates(sketch.source) if defined is None else defined
    sketch.gaps.clear()
    sketch.guesses.clear()
    return _Writer(Proposal(sketch, entries(sketch, wanted), given)).study()


class _Writer:
    def __init__(self, proposal: Proposal) -> None:
        self._of, self._sketch = proposal, proposal.sketch
        self._lines: list[str] = []
        self._outputs: list[KernelArgument] = []
        self._shapes: dict[str, list[Sum]] = {}
        for one in proposal.arguments.values():
            if (shape := self._shape_read(one)) is not None:
                self._shapes[one.name] = shape
        for name in proposal.arguments:  # what is indexed by contents is as long as the launch
            if name not in self._shapes and (extent := self._indexed(name)) is not None:
                self._shapes[name] = [extent]
        self._items = {entry: self._global(entry) for entry in proposal.launched}
        self._sizes = self._named_sizes()

    def study(self) -> str:
        """Return the whole text."""
        sketch, of = self._sketch, self._of
        told = "read from the text, no compiler was asked: a guess" if sketch.guessed else "as the compiler tells them"
        self._add(f"# A study to start from; its arguments are {told}. A line with {GAP}")
        self._add(
            f'# has to be written, one with "{_GUESS}" wants a look; shapes and launches are read from the indices.'
        )
        self._add("# Then: autotune check ./FILE.toml, autotune search ./FILE.toml. docs/studies.md has every key.")
        self._add(f'name = "{sketch.name}"', f'about = "{sketch.name}"', f'kernel = "{sketch.kernel}"')
        self._size_tables()
        self._parameter_tables()
        self._argument_table()
        for entry in of.launched:
            self._launch(entry)
        self._reference()
        return "\n".join(self._lines) + "\n"

    def _add(self, *lines: str) -> None:
        self._lines += lines

    def _gap(self, line: str, what: str) -> None:
        """Add a line that has to be written."""
        self._lines.append(f"{line}  # {GAP}: {what}")
        self._sketch.gaps.append(f"line {len(self._lines)}: {what}")

    def _guess(self, line: str, what: str) -> None:
        """Add a line that wants a look."""
        self._lines.append(f"{line}  # {_GUESS}: {what}")
        self._sketch.guesses.append(f"line {len(self._lines)}: {what}")

    # -- sizes and parameters -----------------------------------------------------------------------

    def _named_sizes(self) -> list[str]:
        """The whole numbers that are sizes: those not small by name, and those that an extent names."""
        used = {name for extents in self._shapes.values() for extent in extents for name in _words(str(extent))}
        used |= {name for items in self._items.values() for extent in items for name in _words(extent or "")}
        buffers = [one.name for one in self._of.arguments.values() if one.type_name.endswith("*")]
        read = all(name in self._shapes for name in buffers) and bool(used)
        return [name for name in self._of.whole if name in used or not (read or self._of.is_small(name))]

    def _size_tables(self) -> None:
        of, sizes = self._of, [*self._sizes, *self._of.made]
        big = [name for name in sizes if not of.is_small(name) and not name.startswith("ENTRIES")]
        dimensions = max((len(local) for local in of.locals.values()), default=1)
        each = {1: 2**16, 2: 512}.get(max(len(big), dimensions), 128)
        if sizes:
            self._add("", f"# Whole numbers that the kernel takes are sizes: --size changes them. {_GUESS}: {each}.")
            self._add("[sizes]")
        for name in sizes:
            if name in of.made:
                entries = name.startswith("ENTRIES")
                real = '; of a real matrix { file = "FILE.mtx", part = "entries" }' if entries else ""
                self._guess(f"{name} = {each * _ENTRIES_EACH if entries else each}", of.made[name][7:] + real)
            elif of.is_small(name):
                self._guess(f"{name} = 1", "its value")
            else:
                self._add(f"{name} = {each}")
        if of.choices:
            self._add("", "# Types that the user picks with --choice.", "[choices]")
            self._add(*(f'{name} = ["{kind}"]' for name, kind in of.choices.items()))

    def _parameter_tables(self) -> None:
        of = self._of
        for name, default in {**of.parameters, **of.extra}.items():
            said = f"  # {_GUESS}: around the default; keep what makes sense"
            if name in of.words:
                values = ", ".join(f'"{word}"' for word in of.words[name])
                stands = f'"{of.given[name]}"'
            else:
                values, stands = ", ".join(map(str, proposed(default))), str(default)
                if name in of.extra:
                    values = "32, 64, 128, 256" if len(of.extra) == 1 else "4, 8, 16, 32"
                    said = f"  # {_GUESS}: work-items of a work-group"
            self._add("", f"[parameters.{name}]", f"values = [{values}]{said}", f"default = {stands}")
        if not of.parameters and not of.extra:
            self._add("", "[parameters.WG]", "values = [32, 64, 128, 256]", "default = 64")

    # -- arguments ----------------------------------------------------------------------------------

    def _shape_read(self, one: KernelArgument) -> list[Sum] | None:
        """What indices say of an argument's extents: of scratch and local memory in terms of parameters."""
        image = re.fullmatch(r"image([123])d_t", one.type_name)
        if one.address == "private" and image is None:
            return None
        own = self._access(one) == "scratch" or one.address == "local"
        written = self._access(one) in ("out", "inout")
        found = None
        for shapes in (self._of.tuned if own else self._of.shapes).values():
            shape = shapes.image(one.name, int(image[1])) if image else shapes.shape(one.name, written=written)
            if shape is not None and (found is None or len(shape) > len(found)):
                found = shape
        return found

    def _access(self, one: KernelArgument) -> str:
        """How the kernels use an argument; `scratch` where one writes what a later one reads."""
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

    def _written(self, name: str) -> str:
        """`out` where every mention in a body stores to an element, else `inout`."""
        bodies = self._of.text[self._of.text.find("{") :]
        mentions = re.findall(rf"\b{name}\b(?!\s*[,)])", bodies)
        stores = re.findall(rf"\b{name}\s*\[[^;=]*\]\s*=(?!=)", bodies)
        return "out" if stores and len(stores) == len(mentions) else "inout"

    def _argument_table(self) -> None:
        structs = self._structs()
        if structs:
            self._add("", "# Members in the kernel's order, as C writes them.", "[structs]", *structs)
        self._add("", "# Inputs are random numbers from -1 to 1, or what their data says.", "[arguments]")
        for one in self._of.arguments.values():
            if one.name not in self._sizes:
                self._argument(one)
            elif one.type_name not in ("int", "uint"):
                self._add(f'{one.name} = {{ type = "{_long(one.type_name)}", value = "{one.name}" }}')

    def _argument(self, one: KernelArgument) -> None:
        kind = self._of.kind(one.type_name.removesuffix("*"))
        if one.type_name == "sampler_t":
            sampler = '{ sampler = { addressing = "clamp_to_edge", filter = "nearest", normalized = false } }'
            self._guess(f"{one.name} = {sampler}", "how images are read")
        elif one.type_name.startswith("image"):
            self._image(one)
        elif one.address == "local":
            count = self._shapes.get(one.name)
            if count is None or len(count) != 1:
                self._gap(f'{one.name} = {{ type = "{kind}", local = "{GAP}" }}', "how many elements")
            else:
                self._add(f'{one.name} = {{ type = "{kind}", local = "{count[0]}" }}')
        elif one.address == "private":
            self._guess(f'{one.name} = {{ type = "{_long(kind)}", value = {self._value(kind)} }}', "its value")
        else:
            self._buffer(one, kind)

    def _image(self, one: KernelArgument) -> None:
        shape, access = self._shapes.get(one.name), self._access(one)
        dimensions = re.fullmatch(r"image([123])d_t", one.type_name)
        if dimensions is None:
            self._gap(f'{one.name} = {{ type = "{GAP}" }}', f"{one.type_name} is no kind of argument here")
            return
        if access != "in":
            self._outputs.append(one)
        extents = ", ".join(f'"{extent}"' for extent in shape or (GAP,) * int(dimensions[1]))
        name = re.escape(one.name)
        called = re.search(rf"(?:read|write)_image(f|i|ui|h)\s*\(\s*{name}\b", self._of.text)
        kind = {"f": "float", "i": "int", "ui": "uint", "h": "half"}[called[1] if called else "f"]
        data = ", data = { low = 0, high = 255 }" if access != "out" and kind in ("int", "uint") else ""
        table = f'{{ type = "{kind}", image = [{extents}], channels = "RGBA", access = "{access}"{data} }}'
        if shape is None:
            self._gap(f"{one.name} = {table}", "its extents, rows first; its type is that of a channel")
        else:
            self._guess(f"{one.name} = {table}", "type and order of its channels")

    def _buffer(self, one: KernelArgument, kind: str) -> None:
        if kind != one.type_name.removesuffix("*") and is_plain(kind):  # of a typedef: count its components
            kind = scalar_type(kind)[1]
        access, shape = self._access(one), self._shapes.get(one.name)
        whole = _is_whole(kind)
        if access in ("out", "inout"):
            self._outputs.append(one)
        extents = ", ".join(f'"{extent}"' for extent in shape or (GAP,))
        data, said = self._data(one, kind) if access in ("in", "inout") else ("", "")
        line = f'{one.name} = {{ type = "{kind}", shape = [{extents}], access = "{access}"{data} }}'
        if shape is None:
            self._gap(line, "its shape, row by row" + (", and its data" if whole and access == "in" else ""))
        elif said:
            self._guess(line, said)
        else:
            self._add(line)

    def _indexed(self, name: str) -> Sum | None:
        """The length of a buffer whose places are contents of another: as many as the first axis counts."""
        for shapes in self._of.shapes.values():
            if shapes.indexed(name) and 0 in shapes.axes:
                return shapes.axes[0] + (name in shapes.offsets)
        return None

    def _data(self, one: KernelArgument, kind: str) -> tuple[str, str]:
        """Return the key for an input's data, and what is said of it; empty: drawn as all are."""
        if not _is_whole(kind):
            return "", ""
        for each in (*self._of.tuned.values(), *self._of.shapes.values()):
            if one.name in each.offsets and one.name in self._shapes:
                rows = self._shapes[one.name][0] - 1
                steps = f"arange({rows + 1}) * ENTRIES // {rows if len(rows.terms) == 1 else f'({rows})'}"
                real = 'rows of equal length; of a real matrix { file = "FILE.mtx", part = "indptr" }'
                return f', data = {{ numpy = "{steps}" }}', real
            places = each.places_in(one.name, self._shapes)
            if places is not None and not _words(str(places)) & {*self._of.parameters, *self._of.extra}:
                largest = {"uchar": 255, "char": 127}.get(kind)
                high = f"{places - 1}" if largest is None else f"min({places - 1}, {largest})"
                real = "places at random"
                if any("ENTRIES" in str(extent) for extent in self._shapes.get(one.name, [])):
                    real += '; of a real matrix { file = "FILE.mtx", part = "indices" }'
                return f', data = {{ low = 0, high = "{high}" }}', real
        if self._of.kinds(one.name) and set().union(*self._of.kinds(one.name)) == {"both"}:
            return ', data = { distribution = "constant", value = 0 }', "what is added to begins at 0"
        return ", data = { low = 0, high = 100 }", "its data"

    def _value(self, kind: str) -> str:
        bodies = self._of.structs
        if kind not in bodies:
            return '"1"'
        parts = (member.split() for member in bodies[kind])
        values = []
        for words in parts:
            name = re.sub(r"\[.*", "", words[-1])
            values.append(f"{name} = {self._value(words[0]) if words[0] in bodies else chr(34) + '1' + chr(34)}")
        return "{ " + ", ".join(values) + " }"

    def _structs(self) -> list[str]:
        bodies, lines = self._of.structs, dict[str, str]()

        def add(name: str) -> None:
            if name in lines or name not in bodies:
                return
            for member in bodies[name]:
                add(member.split()[0])
            listed = ", ".join(f'"{member}"' for member in bodies[name])
            lines[name] = f"{name} = [{listed}]"

        for one in self._of.arguments.values():
            add(one.type_name.removesuffix("*").removeprefix("struct ").strip())
        return list(lines.values())

    # -- launch and reference -----------------------------------------------------------------------

    def _global(self, entry: str) -> list[str | None]:
        return [self._of.tuned[entry].items(axis) for axis in range(len(self._of.locals[entry]))]

    def _launch(self, entry: str) -> None:
        self._add("", "[[launch]]", f'entry = "{entry}"')
        items = self._items[entry]
        line = f"global = [{', '.join(f'{chr(34)}{extent or GAP}{chr(34)}' for extent in items)}]"
        if None in items:
            self._gap(line, "work-items along each axis, in whole work-groups")
        elif self._of.tuned[entry].inferred:
            self._guess(line, "as many work-items as there are places to write")
        elif self._of.words:
            self._guess(line, "as the defaults want it; look at what the other variants want")
        else:
            self._add(line)
        extents = ", ".join(f'"{one}"' for one in self._of.locals[entry])
        self._add(f"local = [{extents}]")
        if len(self._of.launched) > 1:
            self._add('# when = "..."  # where this launch does not always take place')
        self._add(f"arguments = {json.dumps([one.name for one in self._sketch.signatures[entry]])}")
        for one in self._outputs:
            source = self._of.shapes[entry].stencil_of(one.name)
            if source is not None and self._shapes.get(source) == self._shapes.get(one.name) and source != one.name:
                self._add("# Launched again and again, in turns between two buffers? Then these lines, with")
                self._add(
                    f'# access = "inout" for {source}, "scratch" for {one.name}: {source} is compared at the end.'
                )
                self._add('# repeat = "1000"', f'# swap = [["{source}", "{one.name}"]]')

    def _reference(self) -> None:
        names = [one.name for one in self._outputs]
        if not names:
            self._add("", "[reference.numpy]")
            self._gap(f'{GAP} = "{GAP}"', "no argument seems to be written: give one access")
            return
        self._add(
            "",
            "# What is right: here, what this configuration of the kernel gives itself. What is wrong in all goes",
            "# unnoticed; better are expressions over inputs, scalars and sizes, or a kernel that you trust:",
            f"# numpy = {{ {', '.join(f'{name} = {chr(34)}...{chr(34)}' for name in names)} }}",
            "[reference]",
        )
        values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in self._of.configuration().items())
        self._guess(f"configuration = {{ {values or 'WG = 64'} }}", "the defaults are taken for right")
        if any(_is_real(one) for one in self._outputs):
            self._add("", "[tolerance]", "relative = 1e-5", "absolute = 1e-5  # for a sum over K terms about 1e-6 * K")


def _is_whole(kind: str) -> bool:
    return is_plain(kind) and scalar_type(kind)[1] not in _REAL


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_]\w*", text))


def _long(type_name: str) -> str:
    return {"size_t": "ulong"}.get(type_name, type_name)


def _is_real(one: KernelArgument) -> bool:
    try:
        return scalar_type(one.type_name.removesuffix("*"))[1] in _REAL
    except StudyError:
        return True
