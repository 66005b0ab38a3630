"""What a kernel that does not compile by itself lacks: names and kernels that its host program would have defined."""

from __future__ import annotations

import re
from dataclasses import dataclass

from autotune.study.drafting.preprocessing import preprocessed
from autotune.study.drafting.scanning import KERNEL
from autotune.study.drafting.syntax import QUALIFIERS, NotRead, tokens_of
from autotune.study.includes import without_comments

_UNKNOWN = re.compile(
    r"unknown type name '(?P<type>\w+)'|use of undeclared identifier '(?P<value>\w+)'"
    r"|identifier \"(?P<other>\w+)\" is undefined"
)
_UNDECLARED = re.compile(r"implicit declaration of function '(\w+)'")
_OF_OPENCL = re.compile(
    r"(half|double)\d*|(sub_group_|get_.*sub_group|atom_|atomic_|(read|write)_image|intel_|cl_|CLK_)\w*"
)
"""Names that OpenCL or an extension of it has, which a device may lack."""
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)\b(.*)$", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z_]\w*")
_MOST = 16
"""Names of one condition, and conditions around a kernel, that are told."""


def unknown_names(log: str, source: str) -> dict[str, str]:
    """Return the names of a build log that have no meaning, each with what it might stand for: a type, or 1.

    A variable of an unknown type has none either, for the compiler: what the source declares is left out.
    """
    types, declared = _roles(source)
    found = dict[str, str]()
    for match in _UNKNOWN.finditer(log):
        name = next(filter(None, match.groups()))
        if match["type"] or name in types:
            found[name] = _type(name)
        elif name not in declared:
            found.setdefault(name, "1")
    return {name: value for name, value in found.items() if not _OF_OPENCL.fullmatch(name)}


_OF_BITS = {"8": "char", "16": "short", "32": "int", "64": "long"}
_NO_TYPES = QUALIFIERS | {
    "return", "else", "case", "goto", "do", "sizeof", "typedef", "struct", "union", "enum", "if", "while",
}  # fmt: skip


def _type(name: str) -> str:
    """What a type of that name might be: `uint8_t` says it, `real4` has four components."""
    if bits := re.fullmatch(r"(u?)int(8|16|32|64)_t", name):
        return bits[1] + _OF_BITS[bits[2]]
    width = re.search(r"[A-Za-z_](2|3|4|8|16)$", name)
    return f"float{width[1] if width else ''}"


def _roles(source: str) -> tuple[set[str], set[str]]:
    """Return the names that stand as types in declarations of a text, and the names that are declared there."""
    types, declared = set[str](), set[str]()
    statement, depth = False, 0  # whether a declaration has begun, and the brackets open within it
    before = last = ""
    for token in tokens_of(re.sub(r"(?m)^[ \t]*#.*$", "", without_comments(source))):
        if token in (";", "{", "}"):
            statement, depth = False, 0
        depth += (token in ("(", "[")) - (token in (")", "]"))
        kind = before if last == "*" else last
        if _NAME.fullmatch(token) and token not in QUALIFIERS:
            if last != "*" and _NAME.fullmatch(kind) and kind not in _NO_TYPES:
                types.add(kind)
                declared.add(token)
                statement = depth == 0
            elif statement and depth == 0 and (last == "," or (last == "*" and before == ",")):
                declared.add(token)
        before, last = last, token
    return types, declared


def unknown_functions(log: str) -> list[str]:
    """Return the functions of a build log that are called and not there, those that OpenCL has apart."""
    found = dict.fromkeys(match[1] for match in _UNDECLARED.finditer(log))
    return [name for name in found if not _OF_OPENCL.fullmatch(name)]


def asked_by_error(source: str, told: str) -> tuple[list[str], bool]:
    """Return the macros that decide over the `#error` that a compiler met, and whether it asks for no more than that
    one of them is defined.
    """
    opened: list[_Branch] = []
    for match in _DIRECTIVE.finditer(without_comments(source)):
        rest = match[2].strip()
        if match[1] == "error" and opened and rest and rest.strip('"') in told:
            return opened[-1].names, opened[-1].asks_for_one
        _step(opened, match[1], rest)
    return [], False


def hiding(source: str) -> tuple[list[str], list[str]]:
    """Return the kernels of a text of which the preprocessor leaves none, and the macros that decide that; nothing
    where it leaves one.
    """
    text = without_comments(source)
    try:
        left = {*preprocessed(source, {}, ())}
    except NotRead:
        return [], []
    names, opened, read = dict[str, None](), list[_Branch](), 0
    kernels = list[str]()
    for match in _DIRECTIVE.finditer(text):
        if inside := [found[2] for found in KERNEL.finditer(text, read, match.start())]:
            kernels += inside
            names |= dict.fromkeys(name for branch in opened[-_MOST:] for name in branch.names)
        _step(opened, match[1], match[2].strip())
        read = match.end()
    kernels += [found[2] for found in KERNEL.finditer(text, read)]
    return ([], []) if left & {*kernels} else (kernels, list(names))


@dataclass
class _Branch:
    """Of an #if that is open: the macros of its questions up to here; whether its branch is taken without one macro."""

    names: list[str]
    asks_for_one: bool


def _step(opened: list[_Branch], word: str, rest: str) -> None:
    """Open, change or close what a directive opens, changes or closes."""
    names = [name for name in dict.fromkeys(_NAME.findall(rest)) if name != "defined"]
    if word in ("if", "ifdef", "ifndef"):
        asked = re.findall(r"\w+|[^\w\s()]", rest) if len(names) == 1 else []
        alone = asked == names if word == "ifndef" else word == "if" and asked == ["!", "defined", *names]
        opened.append(_Branch(names[:_MOST], alone))
    elif word in ("elif", "else") and opened:
        opened[-1].names += names[: _MOST - len(opened[-1].names)]
        opened[-1].asks_for_one = False
    elif word == "endif":
        del opened[-1:]
