"""What a kernel's text says if no compiler is asked: kernels and their arguments, macros with defaults, structs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping
from functools import lru_cache

from autotune.devices import KernelArgument
from autotune.identity import name_fault
from autotune.study.drafting.syntax import is_type
from autotune.study.includes import defined_anyway, without_comments
from autotune.study.types import is_plain, numpy_type

_GUARDED = re.compile(
    r"^[ \t]*#[ \t]*(?:ifndef[ \t]+(\w+)|if[ \t]+!defined[ \t(]*(\w+)\)?)[^\n]*\n(?:[ \t]*\n)*"
    r"[ \t]*#[ \t]*define[ \t]+(\w+)(?:[ \t]+([^\n]*))?",
    re.MULTILINE,
)
_DEFINED = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", re.MULTILINE)
DEFINE = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n]+)", re.MULTILINE)
"""The name and the text of a macro without arguments."""
KERNEL = re.compile(r"\b(?:__)?kernel\b([^;{}]{0,300}?)\bvoid\s+(\w+)\s*\(([^()]*(?:\([^()]*\)[^()]*)*)\)")
"""The text before `void`, the name, and the arguments."""

_ATTRIBUTES = r"((?:__attribute__\s*\(\([^;{}]*?\)\)\s*)*)"
_STRUCT = re.compile(
    rf"\bstruct\s*{_ATTRIBUTES}(\w*)\s*\{{([^{{}}]*)\}}\s*{_ATTRIBUTES}(\w*)\s*{_ATTRIBUTES};", re.DOTALL
)


_OF_C = {"unsigned", "char", "short", "int", "long"}
"""Words that make up C's types of whole numbers."""
_MEMBER = re.compile(rf"(?:struct\s+)?((?:(?:signed|{'|'.join(sorted(_OF_C))})\s+)++|\w+\s+)(\S.*)", re.DOTALL)
"""The type of a struct's member, and the rest of its declaration."""
_UNION = re.compile(r"\bunion\s*\{([^{}]*)\}\s*(\w*)\s*;")


@lru_cache(maxsize=1)
def candidates(source: str) -> Mapping[str, str]:
    """Return the macros that can be defined from outside, with their defaults as text.

    A macro is left out if others that the text uses are defined only together with its default.
    """
    plain, own = without_comments(source), defined_anyway(source)
    found, times = {}, Counter(_DEFINED.findall(plain))
    for match in _GUARDED.finditer(plain):
        either, other, defined, value = match.groups(default="")
        if defined == (either or other) and defined not in own and value.strip() and not name_fault(defined):
            with_it = _DEFINED.findall(plain, match.end(), _branch_end(plain, match.end()))
            if all(len(re.findall(rf"\b{name}\b", plain)) == 1 or times[name] > 1 for name in with_it):
                found[defined] = value.strip()
    return found


def _branch_end(text: str, at: int) -> int:
    """Return the place where the branch of the #if that is open at a place ends."""
    depth = 0
    for match in re.compile(r"^[ \t]*#[ \t]*(if|else|elif|endif)", re.MULTILINE).finditer(text, at):
        if depth == 0 and match[1] != "if":
            return match.start()
        depth += {"if": 1, "endif": -1}.get(match[1], 0)
    return len(text)


def stated_as(text: str, told: str, given: Collection[str]) -> str:
    """Return a macro's value as the compiler has `told` it, or its text if that uses `given` macros: `TILE * 4`."""
    computed = number_of(told) is None and not is_plain(told)
    return text if computed and not {*given}.isdisjoint(re.findall(r"\w+", text)) else told


def number_of(text: str) -> int | None:
    """Return the whole number that is a macro's text; None if it is not one, or has more than nine digits."""
    text = text.strip().strip("()").strip()
    return int(text) if re.fullmatch(r"-?\d{1,9}", text) else None


def scanned(source: str) -> dict[str, tuple[KernelArgument, ...]]:
    """Return the arguments that a text's kernels seem to take, without a compiler; a name may be an empty string."""
    found = {}
    for _, entry, arguments in KERNEL.findall(re.sub(r"(?m)^[ \t]*#.*$", "", without_comments(source))):
        parts = [part for part in re.split(r",(?![^()]*\))", arguments) if part.strip() not in ("", "void")]
        found[entry] = tuple(map(_scanned_argument, parts))
    return found


def _scanned_argument(text: str) -> KernelArgument:
    text, array = re.subn(r"\(\s*(\*[^()]*)\)|\[[^\[\]]*\]", r" \1 ", text)  # `(*rows)[N]`, `rows[][N]`
    words = re.findall(r"\w+|\*", text.replace("__", " ") + " *" * bool(array))
    address = next((word for word in words if word in ("global", "constant", "local")), "private")
    access = next((word for word in words if word in ("read_only", "write_only", "read_write")), "")
    skipped = {"global", "constant", "local", "private", "const", "restrict", "volatile", "struct", access, "*"}
    left = [word for word in words if word not in skipped]
    named = len(left) > 1 and not is_type(left[-1])
    name, kind = (left[-1], " ".join(left[:-1])) if named else ("", " ".join(left))
    const = "const" in (words[: words.index("*")] if "*" in words else words)  # whether the pointed-to type is const
    return KernelArgument(name, opencl_name(kind) + "*" * ("*" in words), address, access, const)


def opencl_name(kind: str) -> str:
    """Return OpenCL's name of a type: `uint` for C's `unsigned int`, `short` for `short int`; others unchanged."""
    words = [{"bool": "uchar"}.get(word, word) for word in kind.split() if word != "signed"]
    if not {*words} <= _OF_C:
        return " ".join(words) or "int"
    length = next((word for word in words if word not in ("unsigned", "int")), "int")
    return f"u{length}" if "unsigned" in words else length


def struct_bodies(text: str) -> dict[str, list[str]]:
    """Return the members of each struct of a text, as C writes them, by tag and by typedef.

    Structs with anything but members are left out.
    """
    found, text = dict[str, list[str]](), without_unions(without_comments(text))
    for _, tag, body, _, alias, _ in _STRUCT.findall(text):
        statements = (re.split(r"\s*,\s*", each.strip()) for each in body.split(";") if each.strip())
        declared = [(_MEMBER.fullmatch(first), others) for first, *others in statements]
        if all(first for first, _ in declared):
            named = [(first[1], name) for first, others in declared if first for name in (first[2], *others)]
            members = [f"{opencl_name(of)} " + re.sub(r"\s+(?=\[)", "", " ".join(name.split())) for of, name in named]
            found.update(dict.fromkeys(filter(None, (alias, tag)), members))
    for tag, alias in re.findall(r"\btypedef\s+struct\s+(\w+)\s+(\w+)\s*;", text):
        if tag in found:
            found.setdefault(alias, found[tag])
    return found


def without_unions(text: str) -> str:
    """Return a text with each union replaced by its largest member, which keeps the layout."""
    return _UNION.sub(lambda union: widest(union[1], union[2]) or union[0], text)


def of_unions(text: str) -> set[str]:
    """Return the members that replace unions."""
    return {" ".join(widest(*union).rstrip(";").split()) for union in _UNION.findall(without_comments(text))}


def widest(body: str, name: str) -> str:
    """Return the declaration of a union's largest member, under the `name` of the union if it has one.

    Return an empty string if its members are not all plain numbers.
    """
    rooms = list[tuple[int, int, str]]()
    for kind, member, extents in re.findall(r"(\w[\w\s]*?)\s+(\w+)\s*((?:\[\s*\d+\s*\])*)\s*;", body):
        if not is_plain(of := opencl_name(kind)):
            return ""
        dtype, width = numpy_type(of)
        count = math.prod(int(each) for each in re.findall(r"\d+", extents))
        rooms.append((dtype.itemsize * width * count, dtype.itemsize * width, f"{of} {name or member}{extents};"))
    return max(rooms)[2] if len(rooms) == body.count(";") > 0 else ""


def struct_attributes(text: str) -> dict[str, list[str]]:
    """Return the layout attributes of a text's structs, `packed`, `aligned(32)`, by tag and by typedef."""
    found = {}
    for before, tag, _, behind, alias, last in _STRUCT.findall(without_unions(without_comments(text))):
        told = re.findall(r"\b(?:__)?(packed|aligned)(?:__)?\s*(\(\s*\w+\s*\))?", f"{before} {behind} {last}")
        for name in filter(None, (alias, tag)):
            found[name] = ["".join(words) for words in told]
    return found
