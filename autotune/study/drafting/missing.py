"""What is missing in a kernel that does not compile by itself: names that its host program would have defined."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from autotune.study.drafting.asking import brought
from autotune.study.drafting.branches import VECTOR
from autotune.study.drafting.nouns import is_extent_name
from autotune.study.drafting.syntax import NAME, QUALIFIERS, tokens_of
from autotune.study.includes import defined_anyway, without_comments

_UNKNOWN = re.compile(
    r"unknown type name '(?P<type>\w+)'|use of undeclared identifier '(?P<value>\w+)'"
    r"|identifier \"(?P<other>\w+)\" is undefined"
)
_UNDECLARED = re.compile(
    r"(?:implicit declaration of function|[Cc]annot find symbol|[Uu]nresolved extern(?:al reference to| function))"
    r" ['\"]?(\w+)"
)
_UNLINKED = re.compile(r"Symbols not found: \[ ([\w, ]+) \]")
_FOREIGN = {
    "CUDA": {"__global__", "__device__", "__shared__", "__syncthreads", "threadIdx", "blockIdx", "blockDim", "gridDim"},
    "C++": {"template", "typename", "class", "namespace", "operator", "virtual", "constexpr", "nullptr"},
    "one vendor's assembly": {"asm", "__asm", "__asm__"},
}
"""Words of other languages that an OpenCL C compiler takes for names."""
_OF_OPENCL = re.compile(
    r"((read|write)_image(f|i|ui|h)|(convert_|as_)?(half|double)\d*(_\w+)?"
    r"|(sub_group_|get_.*sub_group|atom_|atomic_|memory_(order|scope)_|work_group_|intel_|cl_|CLK_|dot_\w*4x8packed)\w*"
    r"|queue_t|clk_event_t|ndrange_t)"
)
"""Names of OpenCL or its extensions that a device may lack."""
_EXTENSIONS = {
    "cl_khr_fp16": re.compile(r"half\d*\b|_imageh\b|cl_khr_fp16"),
    "cl_khr_fp64": re.compile(r"double\d*\b|cl_khr_fp64"),
    "cl_khr_subgroups": re.compile(r"sub_group|subgroup"),
    "cl_khr_integer_dot_product": re.compile(r"4x8packed"),
}
"""What a text that needs an extension contains, and the compiler's message about it."""
_OF_VECTOR = re.compile(r"[xyzw]+|[sS][0-9a-fA-F]+|lo|hi|even|odd")
"""Components of a vector, after a dot."""
_TAKES = re.compile(r"^[ \t]*#[ \t]*define[ \t]+\w+\(([\w, \t]*)\)", re.MULTILINE)
"""The parameters of a macro."""


class Unknown(NamedTuple):
    """The names that a build log says are unknown.

    `names`: each with what it might stand for, a type or a number; `structs`: types whose members the text uses, and
    `functions`: no macro can stand for these two; `foreign`: words of other languages, by language: nothing can stand
    for them; `samplers`: names with which images are read, not macros.
    """

    names: dict[str, str]
    structs: list[str]
    functions: list[str]
    foreign: dict[str, list[str]]
    samplers: list[str]


def unknown(log: str, source: str) -> Unknown:
    """Return the unknown names in a text by its build log, without those of OpenCL and its extensions.

    To the compiler, a variable of an unknown type is unknown too: names that the source declares are left out.
    """
    found = _Found(source)
    unlinked = [name for match in _UNLINKED.finditer(log) for name in match[1].split(", ")]
    for name in [*(match[1] for match in _UNDECLARED.finditer(log)), *unlinked]:
        found.add_function(name)
    for match in _UNKNOWN.finditer(log):
        found.add(next(filter(None, match.groups())), is_type=bool(match["type"]))
    return found.unknown()


class _Found:
    """The unknown names of a text, sorted by their roles in it."""

    def __init__(self, source: str) -> None:
        self._source, self._roles = source, _Roles(source)
        self._names, self._structs = dict[str, str](), dict[str, None]()
        self._functions, self._samplers = dict[str, None](), dict[str, None]()

    def add_function(self, name: str) -> None:
        """Add a name that a compiler reports as that of a function."""
        if part := self._roles.pasted(name):
            self._names[part] = _ending(name, part) or _number(part)
        elif does := self._does(name):
            self._names[name] = does
        elif self._roles.is_said(name):
            self._functions[name] = None

    def _does(self, name: str) -> str:
        """Return OpenCL's function that an unknown one seems to be; or an empty string."""
        return _converts(name) or self._roles.on_images.get(name, "")

    def add(self, name: str, *, is_type: bool) -> None:
        """Add a name that a compiler reports as that of a type or a variable."""
        if part := self._roles.pasted(name):  # it may be a macro too: `real4` for `real ## 4`
            if ending := _ending(name, part):
                self._names[part] = ending
                return
            if name.removeprefix(part) in ("2", "3", "4", "8", "16"):  # the type before a vector's width is missing
                self._names[part] = _type(part)
                return
            name = part
        elif name in self._roles.own:  # a macro of an unknown name
            return
        self._add_by_role(name, is_type=is_type)

    def _add_by_role(self, name: str, *, is_type: bool) -> None:
        roles = self._roles
        if name in roles.types and name in roles.declared and not brought(self._source, name)[0]:
            return  # a typedef in the text, of an unknown name
        if name in roles.attributes:
            self._names[name] = ""
        elif name in roles.samplers:
            self._samplers[name] = None
        elif name in roles.structs:
            self._structs[name] = None
        elif is_type or name in roles.types:
            self._names[name] = _type(name)
        elif name in roles.called:  # newer compilers report functions as they report variables
            if does := self._does(name):
                self._names[name] = does
            else:
                self._functions[name] = None
        elif name not in roles.declared:
            self._names.setdefault(name, _number(name))

    def unknown(self) -> Unknown:
        """Return all names, those of other languages apart."""
        met = [*self._names, *self._structs, *self._functions]
        foreign = {of: found for of, their in _FOREIGN.items() if (found := [name for name in met if name in their])}
        names = {name: self._names[name] for name in _own(self._names)}
        called = sorted(_own(self._functions), key=self._source.find)  # compilers report them in different orders
        return Unknown(names, _own(self._structs), called, foreign, [*self._samplers])


def _own(names: Iterable[str]) -> list[str]:
    others = set[str]().union(*_FOREIGN.values())
    return [name for name in names if name not in others and not _OF_OPENCL.fullmatch(name)]


def of_opencl(log: str) -> str:
    """Return the first unknown name in a build log that belongs to OpenCL or an extension; or an empty string."""
    found = (next(filter(None, match.groups())) for each in (_UNDECLARED, _UNKNOWN) for match in each.finditer(log))
    return next(filter(_OF_OPENCL.fullmatch, found), "")


def lacking_extension(log: str, source: str, extensions: Collection[str]) -> str:
    """Return the extension that a device lacks to compile a text, by its build log, or an empty string."""
    for name, spoken_of in _EXTENSIONS.items():
        told = spoken_of.search(log) or "ambiguous" in log  # a call with a type that the device lacks
        if name not in extensions and told and spoken_of.search(without_comments(source)):
            return name
    return ""


_OF_BITS = {"8": "char", "16": "short", "32": "int", "64": "long"}
_NO_TYPES = QUALIFIERS | {
    "return", "else", "case", "goto", "do", "sizeof", "typedef", "struct", "union", "enum", "if", "while",
}  # fmt: skip

_ENDS = frozenset(";{}()[],=")
"""Tokens that end the qualifiers of a declaration."""


_EXTENT = re.compile(
    r"(?:.*[_\d])?(?:(?:WORK_?)?GROUP|BLOCK|LOCAL(?!_MEM)|THREADS?|TILE)_?(?:SIZE|DIM|WORK_SIZE)?(?:_?[XYZ])?(?:_LIMIT)?"
    r"|THREADS_(?:PER|IN)_(?:WORK_?)?GROUP|(?:BLOCK|GROUP|LOCAL|TILE|THREADS?)(?:SIZE|DIM)\w*|DIM[XYZ]",
    re.IGNORECASE,
)
"""Names that contain the name of an extent of a work-group or of a tile."""
_OF_TYPES = re.compile(r"(?:.*_)?(?:D?TYPE|FLOAT|HALF)(?:_?I?(?:2|3|4|8|16))?")
_CONVERTS = re.compile(r"CONVERT_(?:\w+_)?(U?(?:CHAR|SHORT|INT|LONG)|HALF|FLOAT|DOUBLE)(2|3|4|8|16)?")


def _number(name: str) -> str:
    """Return a value for an unknown macro by its name alone: a type, 16 for an extent of a work-group, else 1."""
    if _OF_TYPES.fullmatch(name):
        return _type(name)
    return "16" if is_extent_name(name) or _EXTENT.fullmatch(name) else "1"


def _converts(name: str) -> str:
    """Return OpenCL's function for a name: `convert_float4` for `CONVERT_FLOAT4`; empty for other names."""
    return f"convert_{match[1].lower()}{match[2] or ''}" if (match := _CONVERTS.fullmatch(name)) else ""


def _ending(name: str, part: str) -> str:
    """Return a value for a `part` that ends a name: a width after `float`, a type after `read_image`; else empty."""
    before = name.removesuffix(part)
    return "4" if VECTOR.fullmatch(before) else "f" if before in ("read_image", "write_image") else ""


def _type(name: str) -> str:
    """Return a type for an unknown type's name: `uchar` for `uint8_t`, `float4` for `real4`."""
    if bits := re.fullmatch(r"(u?)int(8|16|32|64)_t", name):
        return bits[1] + _OF_BITS[bits[2]]
    width = re.search(r"[A-Za-z_](2|3|4|8|16)$", name)
    return f"float{width[1] if width else ''}"


class _Roles:
    """The roles of names in a text, as far as declarations and calls tell.

    `types`: used as types in declarations; `declared`: names with their types; `structs`: types whose members are used;
    `called`: names that are only called; `own`: macros that the text defines; `samplers`: names with which images are
    read; `attributes`: words before a kernel's type; `on_images`: what is called on an image, with OpenCL's function
    that reads or writes one.
    """

    def __init__(self, source: str) -> None:
        self.types, self.declared = set[str](), dict[str, str]()
        self.own = defined_anyway(source)
        words = {*NAME.findall(without_comments(source))} if "##" in source else set[str]()
        self._words = sorted(words - self.own, key=len, reverse=True)
        tokens = tokens_of(re.sub(r"(?m)^[ \t]*#.*$", "", without_comments(source)))
        self._read(tokens)
        three = [*zip(tokens, tokens[1:], tokens[2:], strict=False)]
        self.attributes, self.samplers = _attributes(tokens), _samplers(tokens)
        members = {member for _, dot, member in three if dot in (".", "->") and not _OF_VECTOR.fullmatch(member)}
        members -= {name for takes in _TAKES.findall(source) for name in NAME.findall(takes)}  # c in a macro's `v.c`
        holders = {name for name, dot, member in three if dot in (".", "->") and member in members}
        self.structs = {self.declared[name] for name in holders & self.declared.keys()}
        self.called = {name for name, after in pairwise(tokens) if after == "(" and NAME.fullmatch(name)}
        self.called -= {name for name, after in pairwise(tokens) if after != "("}
        images = {name: word for word, kind, name in three if re.match(r"image\dd_", kind)}
        on = {name: images[first] for name, bracket, first in three if bracket == "(" and first in images}
        self.on_images = {
            name: "write_imagef" if word.endswith("write_only") else "read_imagef" for name, word in on.items()
        }

    def is_said(self, name: str) -> bool:
        """Whether a name is written in the text, not made by `##`, perhaps from a macro's value."""
        return not self._words or name in self._words

    def pasted(self, name: str) -> str:
        """Return the unknown part of a name that `##` makes: `KIND` in `read_imageKIND`; or an empty string."""
        if self.is_said(name) or _OF_OPENCL.fullmatch(name):
            return ""
        ends = (word for word in self._words if len(word) > 1 and word != word.lower())
        return next((word for word in ends if name.startswith(word) or name.endswith(word)), "")

    def _read(self, tokens: Sequence[str]) -> None:
        statement, depth = "", 0  # the type of the current declaration, and the number of brackets open within it
        before = last = ""
        qualified = False  # whether `*` declares a pointer, instead of multiplying
        for token in tokens:
            if token in (";", "{", "}"):
                statement, depth = "", 0
            depth += (token in ("(", "[")) - (token in (")", "]"))
            qualified = (qualified or token in QUALIFIERS) and token not in _ENDS
            kind = before if last == "*" else last
            if NAME.fullmatch(token) and token not in QUALIFIERS:
                usable = NAME.fullmatch(kind) and kind not in _NO_TYPES
                if usable and (last != "*" or qualified):
                    self.types.add(kind)
                    self.declared[token] = kind
                    statement = kind if depth == 0 else ""
                elif statement and depth == 0 and (last == "," or (last == "*" and before == ",")):
                    self.declared[token] = statement
            if last != "*" or token not in QUALIFIERS:  # `*restrict name`
                before, last = last, token


def _attributes(tokens: Sequence[str]) -> set[str]:
    """Return the words before `kernel`, and one between it and `void`."""
    found = set[str]()
    for at in [place for place, token in enumerate(tokens) if token == "kernel"]:
        before = next((place for place in range(at - 1, -1, -1) if not NAME.fullmatch(tokens[place])), -1)
        behind = tokens[at + 1 : at + 2] if tokens[at + 2 : at + 3] == ["void"] else []
        found |= {*tokens[before + 1 : at], *behind}
    return found


def _samplers(tokens: Sequence[str]) -> set[str]:
    """Return the second arguments of functions that read images, if there are three."""
    reads = [place for place, token in enumerate(tokens) if token.startswith("read_image")]
    return {tokens[at + 4] for at in reads if tokens[at + 3 : at + 6 : 2] == [",", ","]}
