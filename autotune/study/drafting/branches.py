"""What the branches of a C text ask about macros.

These are names that nothing defines, and the numbers that a macro is compared with, which are proposed as its values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from autotune.identity import name_fault
from autotune.study.drafting.preprocessing import preprocessed
from autotune.study.drafting.scanning import candidates
from autotune.study.drafting.syntax import NotRead
from autotune.study.includes import DIRECTIVE, without_comments

_BODY = re.compile(r"(\w+)(?:\(([^()]*)\))?(.*)")
_DEFINED = re.compile(r"\bdefined\b[ \t]*(?:\([ \t]*)?\w+(?:[ \t]*\))?")
_NAME = re.compile(r"\b[A-Za-z_]\w*")
_CALL = re.compile(r"\b([A-Za-z_]\w*)[ \t]*\([^()]*\)")
_COMPARED = re.compile(r"\b([A-Za-z_]\w*+)\s*+[=!]=\s*+(\d{1,9})\b(?!\.)|\b(\d{1,9})\s*+[=!]=\s*+([A-Za-z_]\w*+)")
OF_OPENCL = {
    "__OPENCL_VERSION__": "120", "__OPENCL_C_VERSION__": "120", "CL_VERSION_1_0": "100", "CL_VERSION_1_1": "110",
    "CL_VERSION_1_2": "120", "__ENDIAN_LITTLE__": "1", "__IMAGE_SUPPORT__": "1",
}  # fmt: skip
"""What every compiler of OpenCL C defines, with the values for OpenCL C 1.2, a driver's default version."""
OF_COMPILER = re.compile(r"__|_?cl_|CL_|GL_|true$|false$")
"""The beginnings of names that compilers or extensions of OpenCL define."""
VECTOR = re.compile(r"v(load|store)|convert_|as_|u?(char|short|int|long)|half|float|double")
"""The part of a name before the number of a vector's components."""


def undefined(source: str) -> list[str]:
    """Return the names whose values an #if uses, directly or through macros, and that nothing in the text defines."""
    bodies, conditions = dict[str, set[str]](), list[str]()
    for word, rest in DIRECTIVE.findall(_joined(source)):
        if word == "define" and (body := _BODY.match(rest)):
            bodies.setdefault(body[1], set()).update({*_NAME.findall(body[3])} - {*_NAME.findall(body[2] or "")})
        elif word in ("if", "elif"):
            conditions.append(_DEFINED.sub(" ", rest))
    plain = (_CALL.sub(lambda call: call[0] if call[1] in bodies else " ", each) for each in conditions)
    seen, due = dict[str, None](), [name for each in plain for name in _NAME.findall(each)][::-1]
    while due:
        if (name := due.pop()) not in seen:
            seen[name] = None
            due += sorted(bodies.get(name, ()), reverse=True)
    return [name for name in seen if name not in bodies and not (OF_COMPILER.match(name) or name_fault(name))]


def flags(source: str) -> list[str]:
    """Return the names that conditions only test for being defined, and that nothing in the text defines."""
    lines, valued = DIRECTIVE.findall(_joined(source)), {*undefined(source)}
    own = {match[1] for word, rest in lines if word == "define" and (match := _BODY.match(rest))}
    names = dict[str, None]()
    for word, rest in lines:
        if word in ("ifdef", "ifndef"):
            names |= dict.fromkeys(_NAME.findall(rest)[:1])
        elif word in ("if", "elif"):
            names |= dict.fromkeys(name for each in _DEFINED.findall(rest) for name in _NAME.findall(each)[1:])
    return [name for name in names if name not in own | valued and not (OF_COMPILER.match(name) or name_fault(name))]


def asked_by_directives(text: str) -> set[str]:
    """Return the names whose values a text's conditions use, and the names in macros that use `##`."""
    return set(_NAME.findall(asking(text)))


def asking(text: str) -> str:
    """Return a text's conditions without `defined(...)`, and the texts of macros that use `##`."""
    lines = DIRECTIVE.findall(text)
    return "\n".join(_DEFINED.sub(" ", rest) for word, rest in lines if word in ("if", "elif") or "##" in rest)


def asked_by_pragmas(text: str) -> set[str]:
    """Return the names in a text's pragmas, as in `#pragma unroll UNROLL`: compilers expand macros there."""
    return {name for word, rest in DIRECTIVE.findall(text) if word == "pragma" for name in _NAME.findall(rest)}


class Proposed(NamedTuple):
    """The values proposed for a number, and their origin."""

    numbers: list[int]
    origin: str


def values(source: str, name: str, default: int) -> Proposed:
    """Return the values proposed for a macro that is a number, and their origin.

    They are the numbers that the text compares it with, 0 and 1 for a switch, else powers of two times the default,
    from a quarter to four times.
    """
    numbers, alone, other = compared(source).get(name, Compared(set(), False, False))
    if default == 1 and _is_switch(source, name):
        return Proposed([0, 1], AROUND)
    if numbers and (alone or (len(numbers) > 1 and not other)):
        rest = {0} if alone and (other or name not in candidates(source)) else set()  # undefined is 0
        listed = numbers | {default} | rest
        return Proposed(sorted(listed if len(listed) > 1 else listed | {0, 1}), COMPARED)
    if default in (0, 1) or default < 0:
        return Proposed(sorted({default, 0, 1}) if default < 1 else [1, 2, 4, 8], AROUND)
    steps = {default // 4, default // 2, default, default * 2, default * 4}
    return Proposed(sorted(step for step in steps if step >= 1), AROUND)


AROUND = "around the default; keep what makes sense"
COMPARED = "what the kernel's branches compare it with"


class Branches:
    """Proposed values for a text's macros with which the preprocessor leaves these kernels.

    `stated`: the given macros; `joined`: the macros in words that `##` makes, by word.
    """

    def __init__(
        self, source: str, stated: Mapping[str, str], kernels: Collection[str], joined: Mapping[str, Collection[str]]
    ) -> None:
        self._source, self._stated, self._kernels, self._joined = source, stated, {*kernels}, joined
        self._found: dict[tuple[str, int], Proposed] = {}
        self._texts: dict[tuple[str | int, ...], Mapping[int, Sequence[str]]] = {}
        self._room = MOST_TRIED

    def values(self, name: str, default: int) -> Proposed:
        """Return `values` without the numbers that remove one of the kernels, if there is room to try them."""
        if (name, default) not in self._found:
            told = values(self._source, name, default)
            left = self._leaving(name, told.numbers) if told.origin == COMPARED else told.numbers
            self._found[name, default] = told._replace(numbers=left)
        told = self._found[name, default]
        if told.origin == AROUND and any(name in names and VECTOR.match(word) for word, names in self._joined.items()):
            return told._replace(numbers=[each for each in told.numbers if each in (2, 4, 8, 16)] or told.numbers)
        return told

    def _leaving(self, name: str, numbers: list[int]) -> list[int]:
        texts = self.texts(name, numbers)
        return [number for number in numbers if self._kernels <= {*texts[number]}] if texts else numbers

    def texts(self, name: str, numbers: Sequence[int]) -> Mapping[int, Sequence[str]]:
        """Return the text's tokens with each number as the macro's value; empty if they are not read or too many."""
        key: tuple[str | int, ...] = (name, *numbers)
        cost = len(self._source) * len(numbers)
        if key not in self._texts and cost <= self._room:
            self._room -= cost
            try:
                each = {n: preprocessed(self._source, {**self._stated, name: str(n)}, ()) for n in numbers}
            except NotRead:
                each = {}
            self._texts[key] = each
        return self._texts.get(key, {})


MOST_TRIED = 2_000_000
"""Characters to preprocess in all while trying the values of a text's macros: some seconds."""


def siblings(text: str, word: str) -> list[str]:
    """Return the words in the same block of consecutive #define lines with numbers as a word."""
    runs = re.findall(r"(?:^[ \t]*#[ \t]*define[ \t]+\w+[ \t]+\d+[ \t]*\n)+", text + "\n", re.MULTILINE)
    named = (re.findall(r"define[ \t]+(\w+)", run) for run in runs)
    return next((words for words in named if word in words), [])


def lines_with(text: str, macro: str) -> list[str]:
    """Return the lines of a C text without comments that name a macro, except those that give its default."""
    own = rf"[ \t]*#[ \t]*(?:ifndef|define|if[ \t]+!defined[ \t(]*)[ \t]*{macro}\b"
    return [line for line in _lines_by_name(text).get(macro, ()) if not re.match(own, line)]


@lru_cache(maxsize=2)
def _lines_by_name(text: str) -> Mapping[str, Sequence[str]]:
    found = dict[str, list[str]]()
    for line in text.split("\n"):
        for name in {*_NAME.findall(line)}:
            found.setdefault(name, []).append(line)
    return found


def _is_switch(source: str, name: str) -> bool:
    """Whether only branches of the preprocessor use a macro, and only to test whether it is 0."""
    asking = lines_with(without_comments(source), name)
    number = rf"\b{name}\b\s*(?:[<>%*/+-]|[=!]=(?!\s*[01]\b))|[<>=%*/+-]\s*{name}\b"
    branches = (re.match(r"[ \t]*#[ \t]*(?:el)?if\b", line) and not re.search(number, line) for line in asking)
    return bool(asking) and all(branches)


class Compared(NamedTuple):
    """The numbers that a macro is compared with by `==` or `!=`.

    `alone`: whether the text uses the macro only so; `other`: whether there is a branch for other numbers.
    """

    numbers: set[int]
    alone: bool
    other: bool


@lru_cache(maxsize=1)
def compared(source: str) -> Mapping[str, Compared]:
    """Return the names that a text compares with numbers, in directives and in code."""
    numbers, other = dict[str, set[int]](), set[str]()
    mentions, counted = Counter[str](), Counter[str]()
    naming = list[set[str]]()  # for each enclosing #if, the names in its conditions
    for line in _joined(source).split("\n"):
        directive = re.match(r"[ \t]*#[ \t]*(\w+)[ \t]*(.*)", line)
        word, rest = directive.groups() if directive else ("", line)
        if word in ("if", "ifdef", "ifndef"):
            naming.append({*_NAME.findall(rest)} if word == "if" else set())
        elif word == "elif" and naming:
            naming[-1].update(_NAME.findall(rest))
        elif word == "else" and naming:
            other |= naming[-1]
        elif word == "endif":
            del naming[-1:]
        if word in ("ifdef", "ifndef", "undef"):
            continue
        defined = rest.split()[:1] if word == "define" else []
        rest = _DEFINED.sub(" ", rest)
        mentions.update(name for name in _NAME.findall(rest) if name not in defined)
        for first, behind, before, second in _COMPARED.findall(rest):
            if (name := first or second) not in defined:
                numbers.setdefault(name, set()).add(int(behind or before))
                counted[name] += 1
                other.update(() if word else (name,))  # an `if (NAME == 1)` is not searched for its else
    return {name: Compared(found, mentions[name] == counted[name], name in other) for name, found in numbers.items()}


@lru_cache(maxsize=2)
def _joined(source: str) -> str:
    return without_comments(source).replace("\\\n", "  ")
