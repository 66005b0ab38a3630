"""The text of a study to start from: the proposals of proposal.py, uses.py and shapes.py, with each guess marked."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace

from autotune.devices import KernelArgument
from autotune.study.drafting.alternatives import alternatives, idle
from autotune.study.drafting.branches import AROUND, Proposed
from autotune.study.drafting.divisors import whole_rows, zero_for_some
from autotune.study.drafting.fixed import hints, own_to_tune
from autotune.study.drafting.groups import OF_GROUPS, widths
from autotune.study.drafting.images import extents_of
from autotune.study.drafting.inputs import Inputs, is_real, is_whole
from autotune.study.drafting.lines import GUESS, Lines
from autotune.study.drafting.naming import nameable, told_apart
from autotune.study.drafting.proposal import Proposal
from autotune.study.drafting.scanning import candidates
from autotune.study.drafting.shapes import product
from autotune.study.drafting.sizes import Sizes
from autotune.study.drafting.sketch import Sketch, launched_of
from autotune.study.drafting.typedefs import spelt_out
from autotune.study.drafting.uses import Uses
from autotune.study.scope import GAP
from autotune.study.types import SCALAR_TYPES
from autotune.study.writing import toml_text, toml_texts


def draft(sketch: Sketch, wanted: str | None = None, defined: Mapping[str, str] | None = None) -> str:
    """Return the text of a study. `defined`: the macros that may be set from outside, with their defaults as text.

    Fills `sketch.gaps` and `sketch.guesses` with a line for each gap and guess, which are also marked in the text.
    Raises StudyError if the file has no such kernel.
    """
    given = candidates(sketch.source) if defined is None else defined
    sketch.gaps.clear()
    sketch.guesses.clear()
    types = {name for name, text in given.items() if {text, sketch.macros.get(name)} & SCALAR_TYPES.keys()}
    plain = replace(sketch, signatures=spelt_out(sketch.signatures, sketch.source, types))
    launched = launched_of(sketch, wanted)
    return _Writer(Proposal(told_apart(nameable(plain), launched), launched, given)).study()


class _Writer(Lines):
    def __init__(self, proposal: Proposal) -> None:
        super().__init__(proposal.sketch)
        self._of = proposal
        self._outputs: list[KernelArgument] = []
        self._uses = Uses(proposal)
        self._inputs, self._shapes = Inputs(proposal, self._uses), self._uses.shapes
        self._items = {entry: self._global(entry) for entry in proposal.launched}
        self._sizes = Sizes(proposal, self._uses, self._items)
        self._alternatives = alternatives(proposal, self._uses)
        self._values = {name: proposal.values(name, default) for name, default in proposal.parameters.items()}
        self._values |= {name: Proposed(widths(default), OF_GROUPS) for name, default in proposal.extra.items()}

    def study(self) -> str:
        """Return the whole text."""
        sketch, of = self._sketch, self._of
        told = "read from the text without a compiler: a guess" if sketch.guessed else "as the compiler reports them"
        self._add(f"# A study to start from; its arguments are {told}. A line with {GAP}")
        self._add(f'# must be completed, one with "{GUESS}" checked; shapes and launches are read from the indices.')
        self._add("# Then: autotune check ./FILE.toml, autotune search ./FILE.toml.")
        self._add("# Every key: docs/studies-reference.md.")
        self._add(f'name = "{sketch.name}"', f'about = "{sketch.name}"', f"kernel = {toml_text(sketch.kernel)}")
        for flag in sketch.flags:
            self._add("", "[[options]]", f"flag = {toml_text(flag)}")
        for name, value in of.fixed.items():
            self._add("", "[[options]]", f'flag = "-D{name}={value}"')
        self._size_tables()
        self._parameter_tables()
        self._constraint_tables()
        self._argument_table()
        for entry in of.launched:
            self._launch(entry)
        self._reference()
        return "\n".join(self._lines) + "\n"

    def _doubt(self, one: KernelArgument, what: str) -> str:
        doubt = self._uses.doubts.get(one.name)
        return f"{what}, {doubt}" if doubt else ""

    # -- sizes and parameters -----------------------------------------------------------------------

    def _size_tables(self) -> None:
        of, sizes = self._of, [*self._sizes.names, *self._of.made]
        if sizes or of.counts:
            guessed = f" {GUESS}: {self._sizes.each}." if sizes else ""
            self._add("", f"# Whole numbers that the kernel takes are sizes: --size changes them.{guessed}", "[sizes]")
        for name in sizes:
            line = f"{name} = {self._sizes.first(name)}"
            if name in of.made:
                real = (
                    '; for a real matrix { file = "FILE.mtx", part = "entries" }' if name.startswith("ENTRIES") else ""
                )
                self._guess(line, of.made[name][7:] + real)
            elif self._sizes.is_small(name):
                self._guess(line, "its value")
            elif name in self._sizes.idle:
                self._guess(line, "its value; no extent was found to depend on it")
            else:
                self._add(line)
        for name, given in of.counts.items():
            self._guess(
                f"{name} = {self._sizes.count(name, given)}",
                f"how much there is to compute; if not, make it [parameters.{name}]",
            )
        if of.counts:
            self._add("", "# The kernel has them as macros.", "[defines]")
            self._add(*(f'{name} = "{name}"' for name in of.counts))
        self._choice_table()

    def _choice_table(self) -> None:
        of = self._of
        if of.choices or of.tasks:
            self._add("", "# What the user picks with --choice; it is not tuned.", "[choices]")
            self._add(*(f'{name} = ["{kind}"]' for name, kind in of.choices.items()))
        for name, number in of.tasks.items():
            said = f"the result depends on it; if not, make it [parameters.{name}]"
            if of.is_flag(name):
                said = "the kernel tests only whether it is defined, not its value"
            self._guess(f"{name} = [{number}]", said)

    def _parameter_tables(self) -> None:
        of = self._of
        for one in self._alternatives:
            self._add("", f"[parameters.{one.name}]")
            what = f"one of them is launched, as each overwrites {', '.join(one.written)}; --entry drafts only one"
            self._guess(f"values = {json.dumps(one.entries)}", what)
            self._add(f'default = "{one.entries[0]}"')
        for name, default in {**of.parameters, **of.extra}.items():
            numbers, said = self._values[name]
            values, stands = str(numbers), str(default)
            if name in of.words:
                values, said, stands = toml_texts(of.words[name]), AROUND, f'"{of.given[name]}"'
            self._add("", f"[parameters.{name}]", f"values = {values}  # {GUESS}: {said}", f"default = {stands}")
        tunable = bool(of.parameters or of.extra or self._alternatives)
        if not tunable:
            what = "the kernel uses no macro with a default: #ifndef WPT, #define WPT 1, #endif make one"
            if own := own_to_tune(of):
                what = f"write #ifndef {own[0]} before the kernel's #define, #endif after it"
            self._add("")
            self._gap(f"[parameters.{GAP}]", f"what to tune: {what}")
            self._add("values = []")
        for told in hints(of, tunable=tunable):
            self._hint(told)

    def _constraint_tables(self) -> None:
        of = self._of
        numbers = {name: told.numbers for name, told in self._values.items() if name not in of.words}
        numbers |= {name: [number] for name, number in of.tasks.items()}
        numbers |= {name: [self._sizes.first(name)] for name in (*self._sizes.names, *of.made)}
        texts = [extent or "" for each in self._items.values() for extent in each]
        texts += [extent for each in of.locals.values() for extent in each]
        texts += [str(extent) for each in self._shapes.values() for extent in each]
        for divisor in zero_for_some(texts, numbers):
            self._add("", "[[constraints]]")
            self._guess(f'require = "{divisor} > 0"', "an expression below divides by it")
            self._add(f'reason = "{divisor} is a divisor"')
        for required, reason in (*idle(of, self._alternatives), *whole_rows(of)):
            self._add("", "[[constraints]]", f'require = "{required}"', f'reason = "{reason}"')

    # -- arguments ----------------------------------------------------------------------------------

    def _argument_table(self) -> None:
        structs = self._inputs.structs()
        if structs:
            self._add("", "# Members in the kernel's order, as C writes them.", "[structs]")
        for line, asked, said in structs:
            if asked:
                self._gap(line, asked)
            else:
                self._told(line, said)
        self._add("", "# Inputs are random numbers from -1 to 1, or what their data says.", "[arguments]")
        for one in self._of.arguments.values():
            if one.name not in self._sizes.names:
                self._argument(one)
            elif one.type_name not in ("int", "uint"):
                self._add(f'{one.name} = {{ type = "{_long(one.type_name)}", value = "{one.name}" }}')

    def _argument(self, one: KernelArgument) -> None:
        kind = self._of.kind_of(one)
        if one.type_name == "sampler_t":
            normalized = json.dumps(any(shapes.normalized for shapes in self._of.shapes.values()))
            how = f'addressing = "clamp_to_edge", filter = "nearest", normalized = {normalized}'
            self._guess(f"{one.name} = {{ sampler = {{ {how} }} }}", "how images are read")
        elif one.type_name.startswith("image"):
            self._image(one)
        elif one.address == "local":
            count = self._shapes.get(one.name)
            if not self._of.is_known(kind):
                self._gap(f'{one.name} = {{ type = "{GAP}", local = "{GAP}" }}', _typeless(kind))
            elif count is None:
                self._gap(f'{one.name} = {{ type = "{kind}", local = "{GAP}" }}', "how many elements")
            else:
                self._told(
                    f'{one.name} = {{ type = "{kind}", local = "{product(count)}" }}', self._doubt(one, "how many")
                )
        elif not self._of.is_known(kind):
            self._untyped(one, kind)
        elif one.address == "private":
            value = self._inputs.value(kind, one.name, self._sizes.names)
            shifts = self._uses.shifts.get(one.name)
            what = f"{shifts} before what is used" if shifts else "its value"
            self._guess(f'{one.name} = {{ type = "{_long(kind)}", value = {value} }}', what)
        else:
            self._buffer(one, kind)

    def _untyped(self, one: KernelArgument, kind: str) -> None:
        """Leave a gap for the type of a scalar or buffer whose typedef is not known."""
        given = "value = 1"
        if one.address != "private":
            access, extents = self._uses.access(one), self._shapes.get(one.name) or (GAP,)
            given = f'shape = {toml_texts(extents)}, access = "{access}"'
            if access != "in":
                self._outputs.append(one)
        self._gap(f'{one.name} = {{ type = "{GAP}", {given} }}', _typeless(kind))

    def _image(self, one: KernelArgument) -> None:
        shape, access = self._shapes.get(one.name), self._uses.access(one)
        if (dimensions := extents_of(one.type_name)) is None:
            asked = f"{one.type_name} is not a kind of argument here: let the kernel take an image2d_t or a buffer"
            self._gap(f'{one.name} = {{ type = "{GAP}" }}', asked)
            return
        if access != "in":
            self._outputs.append(one)
        extents = toml_texts(shape or (GAP,) * dimensions)
        name = re.escape(self._uses.in_text(one.name))
        called = re.search(rf"(?:read|write)_image(f|i|ui|h)\s*\(\s*{name}\b", self._of.text)
        kind = {"f": "float", "i": "int", "ui": "uint", "h": "half"}[called[1] if called else "f"]
        data = ", data = { low = 0, high = 255 }" if access != "out" and kind in ("int", "uint") else ""
        form = f', form = "{told[1]}"' if (told := re.search("_(array|buffer)_", one.type_name)) else ""
        table = f'{{ type = "{kind}", image = {extents}{form}, channels = "RGBA", access = "{access}"{data} }}'
        if shape is None:
            self._gap(f"{one.name} = {table}", "its extents, rows first; its type is that of a channel")
        else:
            said = filter(None, (self._doubt(one, "its extents"), "type and order of its channels"))
            self._guess(f"{one.name} = {table}", "; ".join(said))

    def _buffer(self, one: KernelArgument, kind: str) -> None:
        access, shape = self._uses.access(one), self._shapes.get(one.name)
        whole = is_whole(kind)
        if access in ("out", "inout"):
            self._outputs.append(one)
        extents = toml_texts(shape or (GAP,))
        data, said = self._inputs.data(one, kind, self._sizes.names) if access in ("in", "inout") else ("", "")
        placed = ", constant = true" if one.address == "constant" else ""
        line = f'{one.name} = {{ type = "{kind}", shape = {extents}, access = "{access}"{placed}{data} }}'
        if shape is None:
            asked = "its shape, row by row" + (", and its data" if whole and access == "in" else "")
            self._gap(line, ": ".join(filter(None, (asked, self._uses.by_default.get(one.name)))))
        else:
            if one.name in self._uses.indexed:
                said = said or "as many as there are rows; indices into it are read from a buffer"
            self._told(
                line, "; ".join(filter(None, (self._doubt(one, "its shape"), self._uses.taken_as(one.name), said)))
            )

    # -- launch and reference -----------------------------------------------------------------------

    def _global(self, entry: str) -> list[str | None]:
        if entry in self._of.alone:
            return ["1"]
        return [self._of.tuned[entry].items(axis) for axis in range(len(self._of.locals[entry]))]

    def _launch(self, entry: str) -> None:
        self._add("", "[[launch]]", f'entry = "{entry}"')
        items = self._items[entry]
        line = f"global = {toml_texts(extent or GAP for extent in items)}"
        if None in items:
            self._gap(line, "work-items along each axis, in whole work-groups")
        elif self._of.tuned[entry].inferred:
            why = "all must reach a barrier" if self._of.tuned[entry].barred else "no condition skips the others"
            self._guess(line, f"as many work-items as there are places to write: {why}")
        elif self._of.words:
            self._guess(line, "right for the defaults; check it for the other variants")
        else:
            self._add(line)
        self._told(f"local = {toml_texts(self._of.locals[entry])}", self._of.doubts.get(entry, ""))
        if self._of.tuned[entry].reading.ids.begun:
            offset = json.dumps(["0"] * len(items))
            self._guess(f"offset = {offset}", "the kernel reads where its global ids begin")
        self._when(entry)
        self._add(f"arguments = {json.dumps([one.name for one in self._sketch.signatures[entry]])}")
        self._swaps(entry)

    def _when(self, entry: str) -> None:
        """Add the condition of a launch, if it may have one."""
        if when := " and ".join(filter(None, (one.when(entry) for one in self._alternatives))):
            self._add(f'when = "{when}"')
        elif overwritten := self._uses.overwritten(entry):
            name, other = overwritten
            what = f'{other} has written {name}, which {entry} overwrites: a condition, or "1" if both run'
            what += "; --entry drafts only one kernel"
            self._gap(f'when = "{GAP}"', what)
        elif len(self._of.launched) > 1:
            self._add('# when = "..."  # if this launch does not always run')

    def _swaps(self, entry: str) -> None:
        """Add comments on how to launch a stencil repeatedly."""
        for one in self._outputs:
            sources = self._of.shapes[entry].reading.stencils_of(one.name)
            if source := next((each for each in sources if self._uses.may_swap(one.name, each)), ""):
                self._add("# Launched repeatedly, alternating between two buffers? Then these lines, with")
                other = f'"scratch" for {one.name}'
                if one.name in self._uses.rimmed:  # its rim must have data before the launch
                    other = f'for {one.name} too with data = {{ numpy = "{source}" }}'
                self._add(f'# access = "inout" for {source}, {other}: {source} is compared at the end.')
                self._add('# repeat = "1000"', f'# swap = [["{source}", "{one.name}"]]')

    def _reference(self) -> None:
        names = [one.name for one in self._outputs]
        if not names:
            self._add("", "[reference.numpy]")
            self._gap(f'{GAP} = "{GAP}"', "no argument seems to be written: give one access")
            return
        self._add(
            "",
            "# The expected results: here, those of this configuration of the kernel. An error in all of them goes",
            "# unnoticed; better are expressions over inputs, scalars and sizes, or a kernel that you trust:",
            f"# numpy = {{ {', '.join(f'{name} = {chr(34)}...{chr(34)}' for name in names)} }}",
            "[reference]",
        )
        chosen = {one.name: one.entries[0] for one in self._alternatives} | self._of.configuration()
        values = ", ".join(f"{name} = {json.dumps(value)}" for name, value in chosen.items())
        self._guess(f"configuration = {{ {values or f'{GAP} = 1'} }}", "the defaults are assumed to be right")
        if any(is_real(one) for one in self._outputs):
            self._add("", "[tolerance]", "relative = 1e-5", "absolute = 1e-5  # for a sum over K terms about 1e-6 * K")


def _typeless(kind: str) -> str:
    """Return a text on what is missing in a type."""
    if kind == "void":
        return "its type: the kernel has void, and does not cast it to one type"
    return f"its type: the meaning of {kind} is not known"


def _long(type_name: str) -> str:
    return {"size_t": "ulong"}.get(type_name, type_name)
