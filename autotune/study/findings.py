"""What a study and its kernel show before anything runs: mistakes to refuse, and effects to be told of."""

from __future__ import annotations

import re
from collections.abc import Iterator

from autotune.errors import StudyError
from autotune.study.includes import without_comments
from autotune.study.library import did_you_mean
from autotune.study.plan import numpy_type
from autotune.study.study import Study

_DEFINE = re.compile(r"^[^\S\n]*#[^\S\n]*define[^\S\n]+(\w+)", re.MULTILINE)
_KERNEL = re.compile(r"kernel\b[^;{}]*?\bvoid\s+(\w+)\s*\(")


def check_entries(study: Study) -> None:
    """Raise StudyError where a launch names a kernel function whose name the source does not hold."""
    text = without_comments(study.text.source)
    if "##" in text:  # a macro may put the name together
        return
    tables = ("options", "defines", "choices", "parameters")
    words = set(re.findall(r"\w+", text + repr([study.text.table.get(name) for name in tables])))
    kernels = _KERNEL.findall(text)
    for number, rule in enumerate(study.launches, 1):
        if rule.entry not in words:
            raise StudyError(
                f"the kernel has no function {rule.entry!r}{did_you_mean(rule.entry, kernels)}",
                where=f"{study.text.path}: launch.{number}.entry",
                hint=f"it has {', '.join(kernels)}" if kernels else "",
            )


def effects(study: Study) -> Iterator[str]:
    """Yield a line for each thing that the author may not have meant."""
    defined = set(_DEFINE.findall(without_comments(study.text.source)))
    for name in study.sizes:
        if name in defined and name not in study.defines:
            yield f"the kernel defines {name} itself: what --size gives reaches it as an argument at most"
    for name, argument in study.arguments.items():
        plain = argument.value is not None and "{" not in argument.type
        if argument.value is not None and plain and numpy_type(argument.type)[1] > 1:
            yield f"arguments.{name}: every component of {argument.type} is {argument.value.text}"
