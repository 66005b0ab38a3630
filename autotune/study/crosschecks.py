"""Checks that the tables of a study fit together: its names, the steps of its loops, its outputs."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from autotune.errors import StudyError
from autotune.expression import FUNCTIONS
from autotune.identity import Value, word_fault
from autotune.study.arrays import check_names as require_names
from autotune.study.arrays import names_of
from autotune.study.buffers import Buffer
from autotune.study.builtins import is_word
from autotune.study.includes import defined_anyway
from autotune.study.scope import DEVICE_FACTS, MACROS
from autotune.study.types import SCALAR_TYPES
from autotune.text import did_you_mean

if TYPE_CHECKING:
    from autotune.study.study import Study


def check_names(study: Study) -> None:
    """Raise StudyError if a name has two meanings, or if `[size_lists]` or `[device]` uses an unknown name."""
    seen: dict[str, str] = dict.fromkeys(DEVICE_FACTS, "a device fact")
    seen |= dict.fromkeys([*FUNCTIONS, "has_extension"], "a function of expressions")
    seen |= dict.fromkeys(SCALAR_TYPES, "an OpenCL type")
    for table in ("sizes", *MACROS):
        for name, entry in study.text.table.get(table, {}).items():
            if table == "defines" and name in study.sizes and entry == name:  # it repeats the size
                continue
            if name in seen:
                raise StudyError(f"{name!r} is already {seen[name]}", where=table, hint="choose another name")
            if words := _word_of(name):
                raise StudyError(f"{name!r} is a word of {words}", where=table, hint="choose another name")
            seen[name] = f"in [{table}]"
    for name in study.text.table["arguments"]:
        if seen.get(name) in ("in [choices]", "in [parameters]", "in [defines]"):  # a macro would replace it
            raise StudyError(f"{name!r} is already {seen[name]}", where="arguments", hint="choose another name")
    for list_name, sizes in study.size_lists.items():
        for name in {name for size in sizes for name in size} - set(study.sizes):
            raise StudyError(f"no size named {name!r}", where=f"size_lists.{list_name}", hint="add it to [sizes]")
    for name in study.text.table.get("device", {}):
        if name not in DEVICE_FACTS:
            what = f"no device fact {name!r}{did_you_mean(name, DEVICE_FACTS)}"
            raise StudyError(what, where="device", hint=f"known: {', '.join(DEVICE_FACTS)}")


def _word_of(name: str) -> str:
    """Return the language in which a name is a reserved word, or an empty string if there is none."""
    if keyword.iskeyword(name):
        return "expressions"
    return "OpenCL C" if is_word(name) else ""


def check_macros(study: Study) -> None:
    """Raise StudyError if a macro of the study has the name of a kernel function, or the kernel defines it itself.

    In the latter case, the study's value would never reach the kernel.
    """
    own = defined_anyway(study.text.source)
    for table in MACROS:
        for name in study.text.table.get(table, {}):
            if name in study.entries:
                raise StudyError(f"{name!r} is a kernel's own name", where=table, hint="choose another name")
            if name in own:
                what = "the kernel defines it itself, and ignores the study's value"
                hint = f"write #ifndef {name} before that #define, and #endif after it"
                raise StudyError(what, where=f"{table}.{name}", hint=hint)


_SETS = re.compile(r"-[DU]\s*(\w+)")


def check_flags(study: Study) -> None:
    """Raise StudyError if a build option sets a macro that a parameter, a choice or a define of the study sets."""
    for number, entry in enumerate(study.text.table.get("options", ()), 1):
        for name in _SETS.findall(entry["flag"]):
            for table in ("parameters", "choices", "defines"):
                if name in study.text.table.get(table, {}):
                    what, hint = f"sets {name}, which [{table}] sets already", "leave one of them out"
                    raise StudyError(what, where=f"options.{number}.flag", hint=hint)


def check_values(study: Study) -> None:
    """Raise StudyError for a value that the driver would read as several build options."""
    lists: dict[str, Sequence[Value]] = {f"choices.{name}": values for name, values in study.choices.items()}
    lists |= {f"parameters.{name}": parameter.values for name, parameter in study.parameters.items()}
    for where, values in lists.items():
        for value in values:
            if fault := word_fault(value):
                raise StudyError(fault, where=where)


def check_checks(study: Study) -> None:
    """Raise StudyError if a check uses a name that the study does not have. `check_outputs` comes later."""
    tables = ("choices", "sizes", "parameters", "defines", "arguments")
    known = {name: None for table in tables for name in study.text.table.get(table, {})}
    for key, text in study.checks.items():
        require_names(text, known, f"check.{key}")


def check_steps(study: Study, defined: Mapping[str, Any]) -> None:
    """Raise StudyError if the step of a loop has the name of something else; `defined` are names of `[defines]`."""
    for name in sorted(study.steps):
        if name in defined or name in (*study.sizes, *study.choices, *study.parameters, *DEVICE_FACTS, *FUNCTIONS):
            what, hint = f"the step {name!r} already has another meaning", "choose another name"
            raise StudyError(what, where="launch", hint=hint)


def check_outputs(study: Study) -> None:
    """Raise StudyError if there is no output, no launch takes one, or checks or reference do not match them."""
    outputs = sorted(buffer.name for buffer in study.outputs)
    if not outputs:
        raise StudyError(
            'no argument has access = "out" or "inout"',
            where="arguments",
            hint='an output that starts at zero is "inout" with data = { distribution = "constant", value = 0 }',
        )
    launched = study.launched | study.swapped
    for name in outputs:
        if name not in launched:
            what, hint = "is an output that no launch takes", "name it in a launch's arguments"
            raise StudyError(what, where=f"arguments.{name}", hint=hint)
    for key, text in study.checks.items():
        if key in study.arguments or key in study.sizes:
            raise StudyError("is an argument or a size: a check needs a name of its own", where=f"check.{key}")
        if not names_of(text) & set(outputs):
            raise StudyError(f"names no output: {', '.join(outputs)}", where=f"check.{key}")
    wanted = {*outputs, *study.checks} - study.checked
    for kind, given in (("numpy", study.reference.numpy), ("file", study.reference.files)):
        if given is not None and set(given) != wanted:
            what = "must give every output and nothing else" if not study.checks else "must give exactly"
            hint = _amends(study, wanted - set(given), set(given) - wanted)
            raise StudyError(f"{what}: {', '.join(sorted(wanted))}", where=f"reference.{kind}", hint=hint)


def _amends(study: Study, lacking: set[str], more: set[str]) -> str:
    """Return a hint what to add to a reference, and what to leave out and why."""
    parts = [f"it lacks {', '.join(sorted(lacking))}"] if lacking else []
    for name in sorted(more):
        given = study.arguments.get(name)
        reason = ""
        if name in study.checked:
            reason = ", which [check] replaces"
        elif isinstance(given, Buffer):
            reason = f', which has access = "{given.access}" and is not compared'
        parts.append(f"leave out {name}{reason}{did_you_mean(name, sorted(lacking)) if not reason else ''}")
    return "; ".join(parts)
