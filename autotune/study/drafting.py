"""A study to start from: what a kernel's text and its compiler tell, written as TOML with gaps marked TODO.

What the compiler tells (arguments, what macros stand for) is taken as it is. The rest is proposed by habit, from names
and subscripts, and says so: nothing here decides a result, since `check` compares the whole with the reference.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.devices import KernelArgument
from autotune.errors import StudyError
from autotune.expression import FUNCTIONS
from autotune.identity import name_fault
from autotune.study.includes import without_comments
from autotune.study.study import DEVICE_FACTS
from autotune.study.types import SCALAR_TYPES, scalar_type

GAP = "TODO"
"""What stands where the author has to write: as an expression it is refused by its name."""

_GUARDED = re.compile(
    r"^[ \t]*#[ \t]*(?:ifndef[ \t]+(\w+)|if[ \t]+!defined[ \t(]*(\w+)\)?)[^\n]*\n(?:[ \t]*\n)*"
    r"[ \t]*#[ \t]*define[ \t]+(\w+)(?:[ \t]+([^\n]*))?",
    re.MULTILINE,
)
_DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)", re.MULTILINE)
_KERNEL = re.compile(r"\b(?:__)?kernel\b([^;{}]*?)\bvoid\s+(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
_STRUCT = re.compile(r"\bstruct\s*(\w*)\s*\{([^{}]*)\}\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?(\w*)\s*;", re.DOTALL)
_LOCAL_NAME = re.compile(
    r"(^|_)(WG|WGS|LWS|GROUP|BLOCK|LOCAL|THREADS|BS|LS)|^(WX|WY|WZ|BX|BY|BZ|LX|LY|LZ)$|DIM", re.IGNORECASE
)
_EACH_NAME = re.compile(r"WPT|PER_(ITEM|THREAD)|COARSEN|ITEMS|ROWS?$|COLS$|WORK", re.IGNORECASE)
_SMALL_NAME = re.compile(
    r"^(r|.*radius|taps|order|seed|iters?|.*iterations|n?steps?|offset|halo|.*stride)$", re.IGNORECASE
)
_WIDE_NAME = re.compile(r"^(w|nx|x|.*width|.*cols|.*columns)$", re.IGNORECASE)


@dataclass
class Sketch:
    """What is known of a kernel file. `guessed`: no compiler was asked, the text was read."""

    name: str
    kernel: str
    source: str
    signatures: Mapping[str, Sequence[KernelArgument]]
    macros: Mapping[str, str]
    guessed: bool = False
    gaps: list[str] = field(default_factory=list)


def candidates(source: str) -> dict[str, str]:
    """Return the macros that a text lets be defined from outside, with the text of their defaults."""
    plain = without_comments(source)
    found = {}
    for either, other, defined, value in _GUARDED.findall(plain):
        if defined == (either or other) and value.strip() and not name_fault(defined):
            found[defined] = value.strip()
    return found


def scanned(source: str) -> dict[str, tuple[KernelArgument, ...]]:
    """Return what a text's kernels seem to take, where no compiler tells."""
    found = {}
    for _, entry, arguments in _KERNEL.findall(without_comments(source)):
        parts = [part for part in re.split(r",(?![^()]*\))", arguments) if part.strip() not in ("", "void")]
        found[entry] = tuple(map(_scanned_argument, parts))
    return found


def _scanned_argument(text: str) -> KernelArgument:
    words = re.findall(r"\w+|\*", text.replace("__", " "))
    address = next((word for word in words if word in ("global", "constant", "local")), "private")
    access = next((word for word in words if word in ("read_only", "write_only", "read_write")), "")
    skipped = {"global", "constant", "local", "private", "const", "restrict", "volatile", "struct", access, "*"}
    left = [word for word in words if word not in skipped]
    name, kind = (left[-1], " ".join(left[:-1])) if left else ("", "")
    kind = {"unsigned int": "uint", "unsigned": "uint", "unsigned char": "uchar"}.get(kind, kind)
    return KernelArgument(name, kind + "*" * ("*" in words), address, access, "const" in words)


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

    Raises StudyError where the file has no such kernel.

    `sketch.gaps` then holds a line for each gap, which is marked in the text.
    """
    launched = entries(sketch, wanted)
    taken = {one.name: one for entry in launched for one in sketch.signatures[entry]}
    given = candidates(sketch.source) if defined is None else defined
    parameters, choices, words = _parameters(sketch, given)
    sizes = [one.name for one in taken.values() if _is_size(one)]
    text = without_comments(sketch.source)
    sketch.gaps.clear()
    writer = _Writer(sketch, given, parameters, choices, words, sizes, text)
    return writer.study(launched, list(taken.values()))


def _is_size(one: KernelArgument) -> bool:
    reserved = one.name in FUNCTIONS or one.name in DEVICE_FACTS or one.name in SCALAR_TYPES
    small = _SMALL_NAME.match(one.name) is not None
    return one.address == "private" and one.type_name in ("int", "uint") and not reserved and not small


def _parameters(
    sketch: Sketch, given: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, str], dict[str, list[str]]]:
    """Return tunable names with their defaults, those that stand for a type, and the words that others may be."""
    plain = without_comments(sketch.source)
    constants = {name: value.strip() for name, value in _DEFINE.findall(plain)}
    parameters, choices, words = {}, {}, dict[str, list[str]]()
    for name, text in given.items():
        value = sketch.macros.get(name, text)
        number = _number(constants.get(value, value))
        compared = dict.fromkeys(re.findall(rf"\b{name}\s*[=!<>]=?\s*([A-Za-z_]\w*)", plain))
        named = {word: _number(constants.get(word, "")) for word in compared}
        if re.fullmatch(r"[A-Za-z_]\w*", text) and number is not None and text in constants:
            siblings = _siblings(constants, text, plain)
            listed = dict.fromkeys([*(w for w, n in named.items() if n is not None), *siblings, text])
            words[name] = sorted(listed, key=lambda word: _number(constants.get(word, "")) or 0)
            parameters[name] = number
        elif number is not None:
            parameters[name] = number
        elif text in SCALAR_TYPES or value in SCALAR_TYPES:
            choices[name] = value or text
    return parameters, choices, words


def _siblings(constants: Mapping[str, str], word: str, plain: str) -> list[str]:
    """Return the words that are numbered together with one: lines of #define without a gap around it."""
    runs = re.findall(r"(?:^[ \t]*#[ \t]*define[ \t]+\w+[ \t]+\d+[ \t]*\n)+", plain + "\n", re.MULTILINE)
    for run in runs:
        named = re.findall(r"define[ \t]+(\w+)", run)
        if word in named:
            return [name for name in named if name in constants]
    return []


def _number(text: str) -> int | None:
    text = text.strip().strip("()").strip()
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else None


def proposed(default: int) -> list[int]:
    """Return values around a default: powers of two from a quarter to four times; 0 and 1 for a switch."""
    if default in (0, 1) or default < 0:
        return sorted({default, 0, 1}) if default < 1 else [1, 2, 4, 8]
    steps = {default // 4, default // 2, default, default * 2, default * 4}
    return sorted(step for step in steps if step >= 1)


class _Writer:
    def __init__(
        self,
        sketch: Sketch,
        given: Mapping[str, str],
        parameters: dict[str, int],
        choices: dict[str, str],
        words: dict[str, list[str]],
        sizes: list[str],
        text: str,
    ) -> None:
        self._sketch, self._parameters, self._choices = sketch, parameters, choices
        self._words, self._sizes, self._text = words, sizes, text
        self._given = given
        self._lines: list[str] = []

    def study(self, launched: Sequence[str], arguments: Sequence[KernelArgument]) -> str:
        """Return the whole text."""
        sketch = self._sketch
        told = "read from the text, no compiler was asked: a guess" if sketch.guessed else "as the compiler tells them"
        self._add(f"# A study to start from; its arguments are {told}. Each line with {GAP} wants a look:")
        self._add(
            "# then  autotune check ./FILE.toml  and  autotune search ./FILE.toml.  docs/studies.md has every key."
        )
        self._add(f'name = "{sketch.name}"', f'about = "{sketch.name}"', f'kernel = "{sketch.kernel}"')
        dimensions = self._dimensions()
        local, extra = self._local(launched, dimensions)
        self._size_tables()
        self._parameter_tables(extra)
        outputs = self._argument_table(arguments)
        for entry in launched:
            self._launch(entry, local, dimensions, several=len(launched) > 1)
        self._reference(outputs, arguments)
        return "\n".join(self._lines) + "\n"

    def _add(self, *lines: str) -> None:
        self._lines += lines

    def _gap(self, line: str, what: str) -> None:
        """Add a line that wants a look."""
        self._lines.append(f"{line}  # {GAP}: {what}")
        self._sketch.gaps.append(f"line {len(self._lines)}: {what}")

    def _size_tables(self) -> None:
        if self._sizes:
            each = {1: 2**16, 2: 512}.get(max(len(self._sizes), self._dimensions()), 128)
            self._add("", "# What is passed as a whole number is taken for a size: --size changes it.", "[sizes]")
            self._add(*(f"{name} = {each}" for name in self._sizes))
        if self._choices:
            self._add("", "# Types that the user picks with --choice.", "[choices]")
            self._add(*(f'{name} = ["{kind}"]' for name, kind in self._choices.items()))

    def _parameter_tables(self, extra: Mapping[str, int]) -> None:
        for name, default in {**self._parameters, **extra}.items():
            said = "  # proposed around the default; keep what makes sense"
            if name in self._words:
                values = ", ".join(f'"{word}"' for word in self._words[name])
                stands = '"' + self._given[name] + '"'
            else:
                values, stands = ", ".join(map(str, proposed(default))), str(default)
                if name in extra:
                    values, said = "32, 64, 128, 256" if len(extra) == 1 else "4, 8, 16, 32", "  # of a work-group"
            self._add("", f"[parameters.{name}]", f"values = [{values}]{said}", f"default = {stands}")
        if not self._parameters and not extra:
            self._add("", "[parameters.WG]", "values = [32, 64, 128, 256]", "default = 64")

    # -- launch -----------------------------------------------------------------------------------

    def _dimensions(self) -> int:
        asked = re.findall(r"get_(?:global|local|group)_(?:id|size)\s*\(\s*([012])\s*\)", self._text)
        return max([int(one) for one in asked], default=0) + 1

    def _local(self, launched: Sequence[str], dimensions: int) -> tuple[list[str], dict[str, int]]:
        """Return the extents of a work-group, and parameters that the study adds for them."""
        required = self._required(launched)
        if required:
            return required[:dimensions], {}
        named = [name for name in self._parameters if _LOCAL_NAME.search(name)]
        if len(named) == dimensions:
            return sorted(named, key=_axis) if dimensions > 1 else named, {}
        if dimensions == 1:
            return (named[:1], {}) if named else (["WG"], {"WG": 64})
        names = [f"W{axis}" for axis in "XYZ"[:dimensions]]
        return names, dict.fromkeys(names, 16 if dimensions == 2 else 8)

    def _required(self, launched: Sequence[str]) -> list[str]:
        """Return the work-group that the last of the kernels asks for, in terms of parameters; empty: none found."""
        found = []
        for before, entry, _ in _KERNEL.findall(self._text):
            asked = re.search(r"reqd_work_group_size\s*\((.*)\)\s*\)\s*\)", before)
            if entry in launched and asked:
                found.append([self._spelt(part) for part in re.split(r",(?![^()]*\))", asked[1])])
        usable = [each for each in found if len(each) == 3 and all(each)]
        return usable[-1] if usable else []

    def _spelt(self, text: str) -> str:
        """Return a C expression of simple macros as an expression over parameters; empty where it is none."""
        simple = {name: value for name, value in _DEFINE.findall(self._text) if re.fullmatch(r"[\w\s()+*/%-]+", value)}
        for _ in range(6):
            text = re.sub(
                r"[A-Za-z_]\w*",
                lambda match: match[0] if match[0] in self._parameters else simple.get(match[0], match[0]),
                text,
            )
        names = set(re.findall(r"[A-Za-z_]\w*", text))
        usable = names <= set(self._parameters) and re.fullmatch(r"[\w\s()+*/%-]+", text) is not None
        spelt = " ".join(re.sub(r"(?<!/)/(?!/)", "//", text).split())
        while re.fullmatch(r"\((?:[^()]|\([^()]*\))*\)", spelt):  # one pair around all of it
            spelt = spelt[1:-1]
        return spelt if usable else ""

    def _launch(self, entry: str, local: Sequence[str], dimensions: int, *, several: bool) -> None:
        each = [name for name in self._parameters if _EACH_NAME.search(name) and name not in local]
        self._add("", "[[launch]]", f'entry = "{entry}"')
        whole = []
        axes = self._axes(dimensions)
        for axis, (extent, group) in enumerate(zip(axes, local, strict=True)):
            per = each[0] if len(each) == 1 and axis == len(local) - 1 else ""
            count = f"ceil_div({extent}, {per})" if per else extent
            whole.append(f'"round_up({count}, {group})"')
        what = "work-items along each axis: as many as the kernel wants"
        self._gap(f"global = [{', '.join(whole)}]", f"{what}, in whole work-groups")
        extents = ", ".join(f'"{one}"' for one in local)
        self._add(f"local = [{extents}]")
        if several:
            self._add('# when = "..."  # where this launch does not always take place')
        names = ", ".join(f'"{one.name}"' for one in self._sketch.signatures[entry])
        self._add(f"arguments = [{names}]")

    def _axes(self, dimensions: int) -> list[str]:
        if not self._sizes:
            return [GAP] * dimensions
        wide = [name for name in self._sizes if _WIDE_NAME.match(name)]
        rest = [name for name in self._sizes if name not in wide]
        ordered = [*wide, *rest] if wide and dimensions > 1 else list(self._sizes)
        return [*ordered, *[ordered[-1]] * dimensions][:dimensions]

    # -- arguments --------------------------------------------------------------------------------

    def _argument_table(self, arguments: Sequence[KernelArgument]) -> list[str]:
        structs = self._structs(arguments)
        if structs:
            self._add("", "# Members in the kernel's order, as C writes them.", "[structs]", *structs)
        self._add("", "[arguments]")
        outputs: list[str] = []
        for one in arguments:
            if one.name in self._sizes:
                continue
            self._argument(one, outputs)
        return outputs

    def _argument(self, one: KernelArgument, outputs: list[str]) -> None:
        kind = self._kind(one.type_name.removesuffix("*"))
        if one.type_name == "sampler_t":
            sampler = '{ sampler = { addressing = "clamp_to_edge", filter = "nearest", normalized = false } }'
            self._add(f"{one.name} = {sampler}")
        elif image := re.fullmatch(r"image([123])d\w*_t", one.type_name):
            extents = self._axes(int(image[1]))[::-1]
            access = "out" if one.access == "write_only" else "in" if one.access == "read_only" else "inout"
            if access != "in":
                outputs.append(one.name)
            shape = ", ".join(f'"{extent}"' for extent in extents)
            table = f'type = "float", image = [{shape}], channels = "RGBA", access = "{access}"'
            self._gap(f"{one.name} = {{ {table} }}", "rows first, and the type of a channel")
        elif one.address == "local":
            count = next((name for name in self._parameters if _LOCAL_NAME.search(name)), "64")
            self._gap(f'{one.name} = {{ type = "{kind}", local = "{count}" }}', "how many elements")
        elif one.address == "private":
            value = self._value(kind)
            self._gap(f'{one.name} = {{ type = "{kind}", value = {value} }}', "its value")
        else:
            self._buffer(one, kind, outputs)

    def _buffer(self, one: KernelArgument, kind: str, outputs: list[str]) -> None:
        if kind != one.type_name.removesuffix("*") and _is_plain(kind):  # of a typedef: count its components
            kind = scalar_type(kind)[1]
        access = "in" if one.const or one.address == "constant" else self._written(one.name)
        if access != "in":
            outputs.append(one.name)
        shape, sure = self._shape(one.name)
        extents = ", ".join(f'"{extent}"' for extent in shape)
        whole = kind in SCALAR_TYPES and kind not in ("half", "float", "double")
        data = ", data = { low = 0, high = 100 }" if access != "out" and whole else ""
        line = f'{one.name} = {{ type = "{kind}", shape = [{extents}], access = "{access}"{data} }}'
        if whole and access == "in":
            self._gap(line, "its shape, and its data, above all where it holds places or counts")
        elif not sure:
            self._gap(line, "its shape, row by row")
        else:
            self._add(line)

    def _kind(self, type_name: str) -> str:
        name = type_name.strip().removeprefix("struct ")
        if name not in SCALAR_TYPES and name not in self._struct_bodies():
            meant = re.findall(rf"\btypedef\s+(\w+)\s+{re.escape(name)}\s*;", self._text)
            name = next((one for one in meant if _is_plain(one)), name)
        return next((choice for choice, kind in self._choices.items() if kind == name), name)

    def _written(self, name: str) -> str:
        """`out` where every mention in a body stores to an element, else `inout`."""
        bodies = self._text[self._text.find("{") :]
        mentions = re.findall(rf"\b{name}\b(?!\s*[,)])", bodies)
        stores = re.findall(rf"\b{name}\s*\[[^;=]*\]\s*=(?!=)", bodies)
        return "out" if stores and len(stores) == len(mentions) else "inout"

    def _shape(self, name: str) -> tuple[list[str], bool]:
        """Return extents that its subscripts suggest, and whether that is more than a guess."""
        if not self._sizes:
            return [GAP], False
        if len(self._sizes) == 1:
            return [self._sizes[0]], True
        wide = [name for name in self._sizes if _WIDE_NAME.match(name)]
        for inside in re.findall(rf"\b{name}\s*\[([^\];]*)\]", self._text):
            rows = [size for size in self._sizes if re.search(rf"\*\s*\(?\s*{size}\b", inside)]
            if rows:
                outer = next((size for size in self._sizes if size != rows[0]), rows[0])
                return [outer, rows[0]], len(self._sizes) == 2
        if len(self._sizes) == 2 and wide:
            return [next(size for size in self._sizes if size not in wide[:1]), wide[0]], False
        return self._sizes[:2], False

    def _value(self, kind: str) -> str:
        bodies = self._struct_bodies()
        if kind not in bodies:
            return '"1"'
        parts = (member.split() for member in bodies[kind])
        values = []
        for words in parts:
            name = re.sub(r"\[.*", "", words[-1])
            values.append(f"{name} = {self._value(words[0]) if words[0] in bodies else chr(34) + '1' + chr(34)}")
        return "{ " + ", ".join(values) + " }"

    def _struct_bodies(self) -> dict[str, list[str]]:
        found = {}
        for tag, body, alias in _STRUCT.findall(self._text):
            members: list[str] = []
            for statement in filter(str.strip, body.split(";")):
                kind, *names = re.split(r"\s*,\s*", statement.strip())
                first = re.fullmatch(r"(?:struct\s+)?((?:unsigned\s+)?\w+)\s+(.+)", kind, re.DOTALL)
                if first is None:
                    continue
                of = {"unsigned int": "uint", "unsigned char": "uchar"}.get(first[1], first[1])
                members += [f"{of} {' '.join(name.split())}" for name in (first[2], *names)]
            for name in filter(None, (alias, tag)):
                found[name] = members
        return found

    def _structs(self, arguments: Iterable[KernelArgument]) -> list[str]:
        bodies, lines = self._struct_bodies(), dict[str, str]()

        def add(name: str) -> None:
            if name in lines or name not in bodies:
                return
            for member in bodies[name]:
                add(member.split()[0])
            listed = ", ".join(f'"{member}"' for member in bodies[name])
            lines[name] = f"{name} = [{listed}]"

        for one in arguments:
            add(one.type_name.removesuffix("*").removeprefix("struct ").strip())
        return list(lines.values())

    # -- reference --------------------------------------------------------------------------------

    def _reference(self, outputs: Sequence[str], arguments: Sequence[KernelArgument]) -> None:
        self._add("", "# What a right answer is, over the inputs, scalars and sizes above.", "[reference.numpy]")
        for name in outputs:
            self._gap(f'{name} = "{GAP}"', f"what {name} should hold, in NumPy")
        if not outputs:
            self._gap(f'{GAP} = "{GAP}"', "no argument seems to be written: give one access")
        if any(self._is_real(one) for one in arguments if one.name in outputs):
            self._add("", "[tolerance]", "relative = 1e-5", "absolute = 1e-5  # for a sum over K terms about 1e-6 * K")

    def _is_real(self, one: KernelArgument) -> bool:
        try:
            return scalar_type(one.type_name.removesuffix("*"))[1] in ("half", "float", "double")
        except StudyError:
            return True


def _is_plain(name: str) -> bool:
    try:
        scalar_type(name)
    except StudyError:
        return False
    return True


def _axis(name: str) -> int:
    """Order of work-group extents by the last letter of their names: x, y, z; m and n as rows and columns."""
    return {"X": 0, "0": 0, "N": 0, "Y": 1, "1": 1, "M": 1, "Z": 2, "2": 2}.get(name[-1].upper(), 3)
