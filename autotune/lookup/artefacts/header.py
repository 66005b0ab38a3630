"""A C99 and C++ header without dependencies: a table of bests, which of them to take, and how to launch it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from autotune import text
from autotune.errors import StudyError
from autotune.identity import text_digest
from autotune.lookup.architecture import words_of
from autotune.lookup.artefacts.catalogue import Artefact, Catalogue, alike, left_out, zeroed
from autotune.lookup.artefacts.ctext import arithmetic, checked_prefix, lines, prefix_of, string
from autotune.lookup.artefacts.geometry import ArgumentText, Geometry, LaunchText, geometry, kind_of
from autotune.lookup.losses import MOST_SIZES
from autotune.text import c_comment

_FLOATS = ("half", "float", "double")
"""Types of scalars that a program gets as a double, also if they are whole numbers."""


def render(catalogue: Catalogue, *, embed: bool = False, prefix: str | None = None) -> Artefact:
    """Return the header; `embed`: with the kernel's text; `prefix`: what all of its names begin with.

    A best that no header can express, such as one with a long loop at its size, is left out and noted. Raises
    StudyError if none can be expressed, UsageError for a prefix that no name can begin with.
    """
    made = _Header(catalogue, prefix)
    return Artefact(made.text(embed), len(made.catalogue.entries), tuple(made.notes()))


class _Header:
    """One header. `p` is the prefix; a size `M` is `M_` in C, in case the program has a macro `M`."""

    def __init__(self, catalogue: Catalogue, prefix: str | None) -> None:
        study, choices = catalogue.study, catalogue.choices
        self.p = checked_prefix(prefix) if prefix is not None else prefix_of(study.name, study.chosen(choices))
        self.sizes = list(catalogue.study.sizes)
        self.names = {name: f"{name}_" for name in self.sizes}
        self.parameters = ", ".join(f"long long {name}" for name in self.names.values()) or "void"
        self.passed = ", ".join(self.names.values())
        said, unsaid = self._said(catalogue)
        defaults = [unsaid.pop(place, None) for place in range(len(catalogue.entries), len(catalogue.all))]
        self.unsaid_default = defaults[0] if defaults else None
        if len(unsaid) == len(catalogue.entries):
            raise unsaid[0]
        self.found = list(said.values())
        self.refused = [*catalogue.refused, *unsaid.values()]
        self.catalogue = catalogue = catalogue.keeping(said)
        self.variants: list[Geometry] = list(dict.fromkeys(self.found))
        self.variant_of = [self.variants.index(one) for one in self.found]
        swapped = study.swapped
        self.moved = [one.name for one in study.outputs if one.name in swapped]
        self.losses, count = dict[tuple[int, ...], int](), 0  # each once, with its place
        for entry in catalogue.all:
            if entry.lost not in self.losses:
                self.losses[entry.lost] = count
                count += len(entry.lost)

    def _said(self, catalogue: Catalogue) -> tuple[dict[int, Geometry], dict[int, StudyError]]:
        """Return the geometry of each item of `all` that a header can express, by place, and errors for the others."""
        said, unsaid = dict[int, Geometry](), dict[int, StudyError]()
        for place, entry in enumerate(catalogue.all):
            try:
                found = geometry(entry, self.names, self.p)
            except StudyError as error:
                unsaid[place] = error
                continue
            stands_in = place > len(catalogue.entries)
            if not (stands_in and found.unsayable):  # then it serves its own size alone, which no program asks for
                said[place] = found
        return said, unsaid

    def text(self, embed: bool) -> str:
        p = self.p
        functions = list(self._functions())
        parts = [
            "#include <stdio.h>\n#include <string.h>\n",
            arithmetic(p),
            self._types(),
            self._entries(),
            *functions,
            self._select(),
            *self._macros(),
            self._source() if embed else "",
        ]
        body = "\n".join(part for part in parts if part)
        guard, number = f"{p}_TUNED_H", f"0x{text_digest(body)[:8]}"
        opening = f"#ifndef {guard}\n#define {guard} {number}\n"
        # Otherwise the second of two headers with the same names would be ignored silently.
        closing = f"#elif {guard} != {number}\n#error another header with the names of {p} came before: --prefix NAME\n"
        return "\n".join([*self._about(), opening, body, f"{closing}#endif /* {guard} */"]) + "\n"

    def notes(self) -> Iterator[str]:
        """Yield what a program will miss."""
        count = len(self.catalogue.entries)
        bests = sum(bool(one.unsayable) for one in self.found[:count])
        who = [f"{bests} of {text.count(count, 'best')}"] if bests else []
        who += ["the default" for one in self.found[count:] if one.unsayable]
        if who and self.sizes:
            what = ", ".join(dict.fromkeys(one.unsayable for one in self.found if one.unsayable))
            yield f"{' and '.join(who)}: each for its own size alone, as C cannot express {what}"
        yield from left_out(self.refused)
        yield from alike(self.catalogue)
        if self.unsaid_default is not None:
            yield f"left out: the study's default: {self.unsaid_default}"

    def _about(self) -> Iterator[str]:
        named = f"{self.catalogue.study.name} {text.pairs(self.catalogue.choices)}".strip()
        yield f"/* {c_comment(named)}: written by autotune export --format header"
        yield f" *   {self.p}_selection s = {self.p}_select({', '.join(['device_name', *self.sizes])});"
        if self.moved:
            yield " *   Buffers change places. Each argument has the name with which it begins a run, and"
            yield f" *   {self.p}_ENDS_{self.moved[0]}(s) is the name of the one that holds {self.moved[0]} in the end."
        unsaid = list(dict.fromkeys(name for one in self.variants for name in one.unsaid))
        if unsaid:
            told = "images, samplers, vectors and structs by value"
            yield f" *   The program makes these arguments itself, {told}: {', '.join(unsaid)}."
        if names := zeroed(self.catalogue.study):
            yield f" *   The program fills these with zeros before each run: {', '.join(names)}."
        yield from (f" *   {c_comment(note)}." for note in self.notes())
        yield " *   s.match says how it was chosen; s.entry is NULL where nothing stored may run at these sizes, nor be"
        yield " *   counted: a number that follows from them is beyond 2**62. */"

    def _types(self) -> str:
        p = self.p
        longest = max(len(one.options.encode()) + sum(each.longest for each in one.computed) for one in self.variants)
        return f"""
#define {p}_SIZE_COUNT {len(self.sizes)}
#define {p}_LONGEST_OPTIONS {longest + 2}

typedef enum {{ {p}_NONE, {p}_EXACT, {p}_NEAREST_SIZE, {p}_SAME_ARCHITECTURE, {p}_DEFAULT }} {p}_match;

/* What is stored of one device and size; all empty but the sizes, options and variant for defaults. */
typedef struct {{
    const char *device_name;   /* CL_DEVICE_NAME */
    const char *device;        /* the fingerprint of its model */
    const char *architecture;
    long long size[{max(1, len(self.sizes))}];
    const char *options;       /* for clBuildProgram; {p}_build_options adds what depends on the sizes */
    double time_ns;            /* the median of one run; 0: never measured */
    unsigned variant;
    int first, last;           /* the entries of its device: up to `last` */
    const int *lost;           /* what it loses at the size of each of these: 1e4 times the logarithm */
}} {p}_entry;

typedef struct {{ const {p}_entry *entry; {p}_match match; }} {p}_selection;
"""

    def _entries(self) -> str:
        rows = list(map(self._entry, range(len(self.catalogue.all))))
        patterns = [
            f"    {{ {string(name)}, {string(word)} }},"
            for name in dict.fromkeys(entry.architecture for entry in self.catalogue.entries)
            for word in words_of(name)
        ]
        p, count = self.p, len(self.catalogue.entries)
        lost = [",".join(map(str, row)) + "," for row in self.losses]
        return "\n".join([
            f"static const int {p}_lost_[] = {{", *lost, "};",
            f"static const {p}_entry {p}_entries[] = {{", *rows, "};",
            f"#define {p}_ENTRY_COUNT {count}\n#define {p}_DEFAULT_COUNT {len(rows) - count}\n",
            "/* Words in the names of devices: # is a digit, * some, % a hexadecimal one. */",
            f"static const char *const {p}_architectures_[][2] = {{", *patterns, "    { 0, 0 }\n};",
        ])  # fmt: skip

    def _entry(self, place: int) -> str:
        entry, variant, count = self.catalogue.all[place], self.variant_of[place], len(self.catalogue.entries)
        own = [at for at in range(count) if self.catalogue.entries[at].device == entry.device] or [place]
        size = ", ".join(f"{entry.problem.size[name]}LL" for name in self.sizes) or "0"
        told = ", ".join(map(string, (entry.best.device_name, entry.device, entry.architecture)))
        options, time = string(self.variants[variant].options), entry.best.time_ns or 0.0
        group = f"{own[0]}, {own[-1] + 1}, {self.p}_lost_ + {self.losses[entry.lost]}"
        return f"    {{ {told}, {{ {size} }},\n      {options}, {time!r}, {variant}u, {group} }},"

    # What depends on the variant --------------------------------------------------------------------------

    def _functions(self) -> Iterator[str]:
        p = self.p
        yield self._valid()
        yield self._switch(f"unsigned {p}_launches_", lambda one: f"return {len(one.launches)}u;", "0u", sized=False)
        yield self._per_launch(f"int {p}_active_", lambda launch: f"return {launch.active} != 0;")
        yield from map(self._per_dimension, ("global_size", "local_size", "offset"))
        yield self._per_launch(
            f"unsigned {p}_dimensions_", lambda launch: f"return {len(launch.global_size)}u;", "0u", sized=False
        )
        yield self._per_launch(
            f"int {p}_has_local_", lambda launch: f"return {int(launch.local_size is not None)};", sized=False
        )
        yield self._per_launch(
            f"const char *{p}_kernel_", lambda launch: f"return {string(launch.entry)};", sized=False
        )
        yield self._per_launch(
            f"const char *{p}_argument_",
            lambda launch: _pick("argument", map(string, launch.arguments), cast=""),
            given=", unsigned argument",
            sized=False,
        )
        for name, kind in self._arguments().items():
            if kind == "scalar":
                yield self._scalar(name)
            else:
                yield self._per_argument(
                    f"size_t {p}_extent_{name}_", name, lambda one: _pick("dimension", one.extents),
                    given=", unsigned dimension",
                )  # fmt: skip
                yield self._per_argument(
                    f"size_t {p}_bytes_{name}_", name, lambda one: f"return (size_t){one.total(p)};"
                )
        yield from map(self._ends, self.moved)
        yield self._build_options()

    def _valid(self) -> str:
        """Return the function that says whether a variant may run. Conditions common to all are written once."""
        first, *others = (one.valid for one in self.variants)
        common = [condition for condition in first if all(condition in other for other in others)]

        def found(one: Geometry) -> str:
            return f"return {' && '.join(each for each in one.valid if each not in common) or '1'};"

        needs = f"    if (!({' && '.join(common)})) return 0;" if common else ""
        return self._switch(f"int {self.p}_valid_", found, first=needs)

    def _arguments(self) -> dict[str, str]:
        """Return the kinds of all arguments, also of those that no variant takes: a program may name any of them.

        Otherwise the program would not compile any more once another configuration is the best.
        """
        found = {argument.name: argument.kind for one in self.variants for argument in one.arguments}
        known = self.catalogue.all[0].problem.arguments
        for name in sorted(self.catalogue.study.launched - found.keys()):
            if (kind := kind_of(known[name])) is not None:
                found[name] = kind
        return found

    def _switch(
        self,
        head: str,
        body: Callable[[Geometry], str],
        none: str = "0",
        *,
        given: str = "",
        sized: bool = True,
        first: str = "",
    ) -> str:
        """Return a function over the variants, which takes what is `given` and, if it is `sized`, the sizes.

        It returns `none` for any other variant; `first` precedes the switch.
        """
        sizes = f", {self.parameters}" if sized and self.sizes else ""
        unused = "".join(f" (void){name};" for name in self.names.values()) if sized else ""
        cases = [f"    case {place}: {body(one)}" for place, one in enumerate(self.variants)]
        opening = f"static inline {head}(unsigned variant{given}{sizes}) {{"
        unused = f"   {unused}" if unused else ""
        ends = [f"    default: return {none};", "    }", "}"]
        return "\n".join(line for line in (opening, unused, first, "    switch (variant) {", *cases, *ends) if line)

    def _per_launch(
        self, head: str, body: Callable[[LaunchText], str], none: str = "0", *, given: str = "", sized: bool = True
    ) -> str:
        def launches(one: Geometry) -> str:
            cases = " ".join(f"case {place}: {body(launch)}" for place, launch in enumerate(one.launches))
            return f"switch (launch) {{ {cases} default: return {none}; }}"

        return self._switch(head, launches, none, given=f", unsigned launch{given}", sized=sized)

    def _per_dimension(self, name: str) -> str:
        """Return the function for these extents of a LaunchText."""
        return self._per_launch(
            f"size_t {self.p}_{name}_",
            lambda launch: _pick("dimension", getattr(launch, name) or ()),
            given=", unsigned dimension",
        )

    def _per_argument(self, head: str, name: str, body: Callable[[ArgumentText], str], given: str = "") -> str:
        missing = _pick("dimension", ()) if given else "return 0;"

        def found(one: Geometry) -> str:
            return next((body(argument) for argument in one.arguments if argument.name == name), missing)

        return self._switch(head, found, given=given)

    def _scalar(self, name: str) -> str:
        values = [argument for one in self.variants for argument in one.arguments if argument.name == name]
        kind = "double" if any(one.type in _FLOATS for one in values) else "long long"
        return self._per_argument(f"{kind} {self.p}_scalar_{name}_", name, lambda one: f"return ({kind})({one.value});")

    def _ends(self, name: str) -> str:
        head = f"const char *{self.p}_ends_{name}_"
        return self._switch(head, lambda one: f"return {string(dict(one.ends).get(name, name))};", sized=False)

    def _build_options(self) -> str:
        def body(one: Geometry) -> str:
            form = string("%s" + "".join(each.form for each in one.computed))
            values = "".join(f", {value}" for each in one.computed for value in each.values)
            return f"return snprintf(buffer, length, {form}, {string(one.options)}{values});"

        return self._switch(f"int {self.p}_build_options_", body, "-1", given=", char *buffer, size_t length")

    # Choosing ---------------------------------------------------------------------------------------------

    def _select(self) -> str:
        given = ", ".join(["const char *device_name", *(f"long long {name}" for name in self.names.values())])
        passed = f", {self.passed}" if self.passed else ""
        words = {"@PASSED": passed, "@ASKED": self.passed or "0", "@GIVEN": given}
        words |= {"@MOST": str(MOST_SIZES), "@LARGEST": str(text.LARGEST_SIZE), "@P": self.p}  # @P last
        found = "\n" + Path(__file__).with_name("select.c.in").read_text(encoding="utf-8")
        for word, meant in words.items():
            found = found.replace(word, meant)
        return found

    def _macros(self) -> Iterator[str]:
        p, listed = self.p, list(self.names.values())
        sizes = "".join(f", {name}" for name in listed)
        values = "".join(f", ({name})" for name in listed)
        yield f"\n/* s: a {p}_selection with an entry; the sizes: those that it was selected for. */"
        for name, function, more in (
            ("LAUNCHES", "launches", ""), ("DIMENSIONS", "dimensions", "launch"), ("HAS_LOCAL", "has_local", "launch"),
            ("KERNEL", "kernel", "launch"), ("ARGUMENT", "argument", "launch, number"),
        ):  # fmt: skip
            yield _macro(f"{p}_{name}", f"{p}_{function}_", more, "", "")
        for name, function, more in (
            ("ACTIVE", "active", "launch"), ("GLOBAL_SIZE", "global_size", "launch, dimension"),
            ("LOCAL_SIZE", "local_size", "launch, dimension"),
            ("OFFSET", "offset", "launch, dimension"), ("BUILD_OPTIONS", "build_options", "buffer, length"),
        ):  # fmt: skip
            yield _macro(f"{p}_{name}", f"{p}_{function}_", more, sizes, values)
        for name, kind in self._arguments().items():
            if kind == "scalar":
                yield _macro(f"{p}_SCALAR_{name}", f"{p}_scalar_{name}_", "", sizes, values)
            else:
                yield _macro(f"{p}_BYTES_{name}", f"{p}_bytes_{name}_", "", sizes, values)
                yield _macro(f"{p}_EXTENT_{name}", f"{p}_extent_{name}_", "dimension", sizes, values)
        for name in self.moved:
            yield _macro(f"{p}_ENDS_{name}", f"{p}_ends_{name}_", "", "", "")

    def _source(self) -> str:
        pieces = lines(self.catalogue.study.source)
        rows = "\n".join(f"    {piece}," for piece in pieces)
        return f"""
/* The kernel's text, as clCreateProgramWithSource takes it. */
#define {self.p}_SOURCE_COUNT {len(pieces)}
static const char *const {self.p}_source[] = {{
{rows}
}};
"""


def _pick(index: str, values: Iterable[str], cast: str = "(size_t)") -> str:
    cases = " ".join(f"case {place}: return {cast}{value};" for place, value in enumerate(values))
    return f"switch ({index}) {{ {cases} default: return 0; }}"


def _macro(name: str, function: str, more: str, sizes: str, values: str) -> str:
    own = "".join(f", {part}" for part in more.split(", ") if part)
    given = "".join(f", ({part})" for part in more.split(", ") if part)
    return f"#define {name}(s{own}{sizes}) {function}((s).entry->variant{given}{values})"
