"""Finds what the author of a study may not have meant: names missing in the kernel or taken, swapped extents."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from autotune.errors import StudyError, UsageError
from autotune.study.arguments import Image
from autotune.study.builtins import is_access, is_builtin
from autotune.study.functions import kernels_of, macros_of, names_compared, names_declared
from autotune.study.includes import without_comments
from autotune.study.loops import launches_of
from autotune.study.problem import Problem
from autotune.study.scope import MACROS
from autotune.study.study import Study, words_of
from autotune.text import did_you_mean


def check_entries(study: Study) -> None:
    """Raise StudyError if a launch names a kernel function that the source does not contain."""
    source = without_comments(study.text.source)
    if not source.strip():
        raise StudyError("the file is empty", where=str(study.text.kernel_path), hint="write kernel void name(...)")
    if "##" in source:  # a macro may put the name together
        return
    words = words_of(source, study.text, "options", *MACROS)
    kernels = [name for name, _ in kernels_of(source)]
    for number, launch, _ in launches_of(study.launches):
        if launch.entry not in words:
            raise StudyError(
                f"the kernel has no function {launch.entry!r}{did_you_mean(launch.entry, kernels)}",
                where=f"{study.path}: launch.{number}.entry",
                hint=f"it has {', '.join(kernels)}" if kernels else "",
            )


def effects(problem: Problem) -> Iterator[str]:
    """Yield a line for each thing that the author may not have meant."""
    study = problem.study
    defined = macros_of(study.text.source)
    for name in study.sizes:
        if name in defined and name not in study.defines:
            yield f"the kernel defines {name} itself: --size can reach it only as an argument"
    if study.reference.configuration is not None:
        yield "the reference is a configuration of the kernel itself: an error in all of them goes unnoticed"
    words = words_of("", study.text, "launch", "reference", "check")
    said = {name: {*re.findall(r"\w+", repr(entry))} for name, entry in study.text.table["arguments"].items()}
    sayers = Counter(word for of_one in said.values() for word in of_one)
    for name in sorted(study.arguments.keys() - study.launched - words):
        if sayers[name] == (name in said[name]):  # no other argument names it
            yield f"arguments.{name}: no launch takes it"
    for name in filter(is_builtin, study.entries):
        yield f"{name} is a function of OpenCL C too, and hides the kernel on some devices (PoCL's): rename it"
    for table in MACROS:
        for name in filter(is_access, study.text.table.get(table) or ()):
            what = f"a word of OpenCL C, and -D{name} breaks the headers of some drivers (PoCL's)"
            yield f"{table}.{name} is {what}: rename it"
    yield from _replaced(study)
    yield from _undefined(study)
    yield from _transposed(problem)
    yield from filter(None, (argument.effect for argument in study.arguments.values()))


def replaced_names(study: Study) -> list[str]:
    """Return the macros, as `parameters.i`, that replace what the kernel declares or a function of OpenCL C it calls.

    A macro that the kernel asks for (`#ifndef T`, then `typedef float T;`) is meant to.
    """
    plain = without_comments(study.text.source)
    taken = names_declared(plain) | {
        name for name in re.findall(r"\b(\w++)\s*\(", plain) if is_builtin(name) or name.startswith("get_")
    }
    taken -= {*re.findall(r"\w+", "".join(re.findall(r"^[^\S\n]*#[^\S\n]*(?:el)?if.*", plain, re.MULTILINE)))}
    return [f"{table}.{name}" for table in MACROS for name in study.text.table.get(table) or () if name in taken]


def _replaced(study: Study) -> Iterator[str]:
    """Yield a line for each kernel argument whose name a `-D` replaces by a value: no compiler says that plainly."""
    told = dict[str, set[str]]()
    for kernel, named in kernels_of(study.text.source):  # one may have a header in each branch of an #if
        told.setdefault(kernel, set()).update(named)
    for kernel, named in told.items():
        for table in MACROS:
            for name in sorted(named & (study.text.table.get(table) or {}).keys()):
                yield (
                    f"{table}.{name}: {kernel} has an argument of that name in the kernel's text, and "
                    f"-D{name} would replace it by its value: rename one of them"
                )


def _undefined(study: Study) -> Iterator[str]:
    """Yield a line for each parameter and choice that an `#if` compares with words that are no macros.

    The preprocessor takes such a word as 0, so that two of them are equal, and a misspelt one is another value.
    """
    compared = names_compared(study.text.source)
    macros = macros_of(study.text.source) | words_of("", study.text, "options")
    macros |= {name for table in MACROS for name in study.text.table.get(table) or ()}
    tuned = {name: parameter.values for name, parameter in study.parameters.items()}
    for table, listed in (("choices", study.choices), ("parameters", tuned)):
        for name, values in listed.items():
            words = {each for one, each in compared if one == name}
            words |= {str(each) for each in values if isinstance(each, str) and each.isidentifier()} if words else set()
            if lacking := sorted(word for word in words - macros if not word.startswith(("__", "CL_"))):
                what = f"{table}.{name}: an #if takes {' and '.join(lacking)} as 0, since no #define gives a number"
                close = did_you_mean(lacking[0], sorted(words & macros)) if len(lacking) == 1 else ""
                yield f"{what}{close}: write one with another number for each word that {name} is compared with"


def _transposed(problem: Problem) -> Iterator[str]:
    """Yield a line for each image whose rows and columns match the columns and rows of a launch, swapped."""
    try:
        plan = problem.plan(problem.default)
    except UsageError:  # reported elsewhere
        return
    for number, launch in enumerate(plan.launches, 1):
        for image in (plan.arguments[name] for name in launch.arguments):
            if not isinstance(image, Image) or len(image.shape) < 2 or len(launch.global_size) < 2:
                continue
            *_, rows, columns = image.shape
            (width, height), part = launch.global_size[:2], launch.local_size or (1, 1)
            if width > columns and height < rows and width - rows < part[0] and height - columns < part[1]:
                yield (
                    f"arguments.{image.name}.image has {rows} rows of {columns} pixels, and launch {number} counts "
                    f"{width} columns and {height} rows: rows come first"
                )
