"""A kernel that `autotune new` has compiled, or, in one line, everything that it lacks for that."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from autotune import text
from autotune.bench import Inspected
from autotune.errors import StudyError, WorkerError
from autotune.reports import Inspector
from autotune.study import asked_by_error, brought, hiding, lacking_extension, line_mark, of_opencl, undefined, unknown

_ROUNDS = 8
"""How often a kernel is compiled with replacements for what it lacks: each round may show that more is lacking."""
_MOST = 64
"""Up to this many names without a meaning are all listed; if there are more, a file is probably missing."""
_FIRST = 5
"""If there are more, this many names are listed."""
_NOT_THERE = re.compile(r"([<\"][^<>\"\n]+[>\"]) is included here and was not found")
"""The text that replaces an #include, behind an #if, of a file that is not there."""
_STANDARDS = ("-cl-std=CL3.0", "-cl-std=CL2.0")
"""What asks a compiler for more than OpenCL C 1.2: program-scope variables, generic pointers, work-group functions."""
_FIX = "fix the kernel there"
_PLACEHOLDER = re.compile(r"\{\{[^{}]*\}\}|\{%.*?%\}|<%.*?%>|\$\{\w+\}|\$\w+|@\w+@")
"""Placeholders that another program replaces by text, as template languages write them."""


class Compiler(NamedTuple):
    """A device's compiler, its options, and the words of the command that asks."""

    inspector: Inspector
    options: tuple[str, ...]
    words: Sequence[str]

    def inspect(self, source: str, names: Sequence[str], defined: Mapping[str, str] | None = None) -> Inspected:
        """Return what the compiler finds. Raises WorkerError if the source does not compile."""
        more = [f"-D{name}={value}" for name, value in (defined or {}).items()]
        return self.inspector.inspect(source, [*self.options, *more], names)

    def given(self) -> dict[str, str]:
        """Return the macros that the options define, with their text."""
        told = [re.fullmatch(r"-D(\w+)(?:\([^()]*\))?=?(.*)", option) for option in self.options]
        return {match[1]: match[2] for match in told if match}

    def not_given(self, source: str) -> list[str]:
        """Return the macros that an #if uses and nothing defines: in the #if they are 0."""
        return [name for name in undefined(source) if name not in self.given()]

    def again(self, names: Mapping[str, str]) -> str:
        """Return the command with these names defined as well."""
        given = [option[2:] for option in self.options] + [f"{name}={value}" for name, value in names.items()]
        return text.typed([*self.words, *(word for one in given for word in ("-D", one))])


def compiled(kernel: Path, source: str, names: Sequence[str], compiler: Compiler) -> tuple[Inspected, list[str]]:
    """Return what a compiler finds in a kernel's text, and the option for a newer OpenCL C if the kernel needs one.

    Raises StudyError with everything that the text lacks.
    """
    source = f"{line_mark(1, kernel)}\n{source}"
    try:
        told = compiler.inspect(source, names)
    except WorkerError as error:
        if (newer := _by_standard(source, names, compiler)) is not None:
            return newer
        what = f"does not compile by itself: {_unmangled(error.what)}"
        what += " #error" if what.endswith(":") else ""  # one without a text
        raise StudyError(what, where=str(kernel), hint=_cure(error, source, compiler)) from None
    left_out, macros = hiding(source) if not told.signatures else ([], [])
    if left_out:
        what = f"its #if leaves out every kernel: {_listed(left_out)}"
        hint = f"it depends on {_listed(macros)}: -D {macros[0]}=1" if macros else "fix the #if"
        raise StudyError(what, where=str(kernel), hint=hint)
    return told, []


def _by_standard(source: str, names: Sequence[str], compiler: Compiler) -> tuple[Inspected, list[str]] | None:
    """The same with a standard that most compilers follow only if asked; None if no standard helps."""
    for standard in _STANDARDS:
        try:
            return compiler._replace(options=(*compiler.options, standard)).inspect(source, names), [standard]
        except WorkerError:
            continue
    return None


_PORTING = {
    "CUDA": "write kernel void, global and local pointers, get_global_id(0) and barrier(CLK_LOCAL_MEM_FENCE)",
    "C++": "write a kernel for each type",
    "one vendor's assembly": "draft it with -d on a device of that vendor, or write the same in OpenCL C",
}


def _cure(error: WorkerError, source: str, compiler: Compiler) -> str:
    """What to do about a compiler's message. The host program may define names without a meaning as parameters."""
    log = f"{error.what}\n{error.detail}"
    if files := [*dict.fromkeys(_NOT_THERE.findall(log))]:
        their = "its" if len(files) == 1 else "their"
        of_study = '[[options]] flag = "-IFOLDER" in a study'
        return f"copy {_listed(files)} beside the kernel, or name {their} folder: -I FOLDER of autotune new, {of_study}"
    if place := _placeholder(error.what, source):
        return f"{place} is filled in by a program before it compiles this: fill it in, in a copy"
    for name in re.findall(r"(?:function|identifier) '(\w+)'", log):
        if macro := next((macro for macro, meant in compiler.given().items() if meant == name != macro), ""):
            return f"-D {macro}={name} is nothing that the kernel or OpenCL C defines: give what {macro} stands for"
    if foreign := unknown(log, source).foreign:
        language, words = next(iter(foreign.items()))
        return f"{_listed(words)}: this is {language}, not OpenCL C; {_PORTING[language]}, in a copy"
    names, structs, functions, samplers, brings, left = _lacking(error, source, compiler)
    said = [f"its #if defines {_listed(those)} if {macro} is defined" for macro, those in brings.items()]
    if structs:
        what = "a struct that is not declared" if len(structs) == 1 else "structs that are not declared"
        put = f"typedef struct {{ ... }} {next(iter(structs))};"
        said.append(f"{_listed(structs)}: {what}, put {put} or its #include before it")
    if samplers:
        what = f"{_listed(samplers)}: no sampler of that name is declared"
        put = f"constant sampler_t {next(iter(samplers))} = CLK_FILTER_NEAREST;"
        said.append(f"{what}, put {put} or its #include before it")
    if len(names) > _MOST:
        some = ", ".join([*names][:_FIRST])
        said.append(f"{len(names)} names are not defined there ({some}, ...): include the files that define them")
    elif names:
        default = _default({name: value for name, value in names.items() if name not in brings})
        one = "".join(f"it with -D {name}={value}" for name, value in names.items())
        said.append(f"{default}give {one if len(names) == 1 else f'what they stand for: {compiler.again(names)}'}")
    if functions:
        what = f"it calls {_listed(functions)}, not defined there: include it; -I FOLDER names its folder"
        macro = next((f", or define it by -D {name}=FUNCTION" for name in functions if name.isupper()), "")
        said.append(what + macro)
    if left or not said:
        cure = _other_cure(left or error.what, source, compiler, names)
        left = _unmangled(left)
        said.append(f"then the compiler says: {left}{f'; {cure}' if cure != _FIX else ''}" if names else cure)
    return "; ".join(said)


def _placeholder(told: str, source: str) -> str:
    """The placeholder of a template in the line of a message, or an empty string if the line has none."""
    line = re.search(r":(\d+):\d+", told)
    lines = source.splitlines()  # the first says where the kernel's text begins
    found = _PLACEHOLDER.search(lines[int(line[1])]) if line and int(line[1]) < len(lines) else None
    return found[0] if found else ""


def _default(names: Mapping[str, str]) -> str:
    """Say how the kernel itself may give names a meaning; an empty string without names."""
    if not names:
        return ""
    first, value = next(iter(names.items()))
    who = f"{len(names)} names are not defined there and need"
    if len(names) == 1:
        kind = "parameter" if value.isdigit() else "function" if value.startswith("convert_") else "type"
        who = f"a {kind} needs" if value else "an attribute needs"
    return f"{who} a default (#ifndef {first}, #define {f'{first} {value}'.strip()}, #endif), or "


class _Lacking(NamedTuple):
    """Names without a meaning, as `unknown` returns them, and the compiler's message once the names are defined.

    `brings`: the names that make the text define other names, and which ones.
    """

    names: dict[str, str]
    structs: dict[str, None]
    functions: dict[str, None]
    samplers: dict[str, None]
    brings: dict[str, list[str]]
    left: str = ""


def _lacking(error: WorkerError, source: str, compiler: Compiler) -> _Lacking:
    lacks = _Lacking({}, {}, {}, {}, {})
    names = lacks.names
    for _ in range(_ROUNDS):
        log = f"{error.what}\n{error.detail}"
        told = unknown(log, source)
        asked, alone = asked_by_error(source, log)
        asked = [name for name in asked if alone and not _is_of_extension(name)]
        zeros = compiler.not_given(source) if "by zero in preprocessor expression" in log else []
        found = told.names | dict.fromkeys([*asked, *zeros], "1")
        for name in [*told.names, *told.functions]:
            macro, value = brought(source, name, lacks.brings)
            if macro and names.get(macro) != value:
                found.pop(name, None)
                found[macro] = value
                lacks.brings.setdefault(macro, []).append(name)
        meant = {name for those in lacks.brings.values() for name in those}
        lacks.structs.update(dict.fromkeys(told.structs))
        lacks.functions.update(dict.fromkeys(name for name in told.functions if name not in meant))
        lacks.samplers.update(dict.fromkeys(told.samplers))
        more = {name: value for name, value in found.items() if name not in names or value not in (names[name], "1")}
        names.update(more)
        if not more or len(names) > _MOST:
            break
        try:
            compiler.inspect(source, (), names)
        except WorkerError as further:
            error = further
        else:
            return lacks
    told = unknown(error.what, source)
    known = told.structs or told.functions or told.samplers or len(names) > _MOST
    return lacks._replace(left="" if known else error.what)


def _other_cure(told: str, source: str, compiler: Compiler, names: Mapping[str, str]) -> str:
    """What to do about a message that is not about a name without a meaning. `names`: those tried, with values."""
    if "<Spelling=<command line>" in told:
        return "a name that -D defines is also used in OpenCL's own headers: rename it in the kernel"
    asked, _ = asked_by_error(source, told)
    elsewhere = "fix it, or choose a device that has it with --device (autotune devices lists them)"
    device = compiler.inspector.device
    if asked and all(_is_of_extension(name) and name not in device.extensions for name in asked):
        return f"it needs {' or '.join(asked)}, which {device.name} lacks: {elsewhere}"
    tried = {name: value for name, value in {**compiler.given(), **names}.items() if name in asked}
    if asked and len(tried) == len(asked):
        given = " ".join(f"-D {name}={value}" for name, value in tried.items())
        return f"it depends on {_listed(asked)}: give another value than {given}"
    if asked or re.search(rf"#[ \t]*error[ \t]+{re.escape(told.rsplit(': ', 1)[-1])}", source):
        depends = f": it depends on {_listed(asked)}" if asked else ""
        return f"give what the kernel asks for there with -D NAME=1{depends}"
    if extension := lacking_extension(told, source, device.extensions):
        return f"it needs {extension}, which {device.name} lacks: {elsewhere}"
    if call := re.search(r"call to '((as|convert)_([a-z]+)(\d+)\w*)' is ambiguous", _unmangled(told)):
        one = f"({call[3]}{call[4]})(x) makes one of a number"
        return f"{call[1]} takes a vector of {call[4]}, and {one}: give it that, in a copy"
    if call := re.search(r"call to '(\w+)' is ambiguous", _unmangled(told)):
        what = f"{call[1]} takes numbers of one type, and get_global_id and the like are of size_t"
        return f"{what}: cast what it is given, as in (int)get_global_id(0), in a copy"
    if of_opencl(told) or re.search(
        r"\bhalf\d*\b|\bdouble\d*\b|sub_group|_imageh|\batom_|extension|implicit declaration", told
    ):
        return elsewhere
    return _FIX


def _is_of_extension(name: str) -> bool:
    """Whether a macro says that a device has an extension: no user may define it."""
    return name.startswith(("cl_", "__opencl_c_"))


def _unmangled(told: str) -> str:
    """A compiler's message with OpenCL's names of functions, without the prefix of PoCL's headers."""
    return told.replace("'_cl_", "'")


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
