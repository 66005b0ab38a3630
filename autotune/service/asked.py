"""The work of child processes on a study: the study at a size, its outline, its check, its default configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from autotune.errors import UsageError
from autotune.model import DeviceInfo
from autotune.pool import require_device_room, require_room
from autotune.service import uploads
from autotune.store import device_of
from autotune.study import Problem, Study, check_entries, check_inputs, check_reference, effects


def check(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a study is at the size and on the device asked for. Raises AutotuneError if something is wrong."""
    with study_of(asked) as study:
        outline_of(study, asked)
        facts = asked.get("facts")
        problem = problem_of(study, asked, None if facts is None else device_of(facts))
        valid = bounded(problem, asked)
        plan = problem.plan(problem.default)
        if asked.get("on") is not None:  # a cluster's machines say how much memory they have when it is searched
            require_device_room(plan, problem.device, hint=problem.smaller)
        elif facts is not None:
            require_room(plan, problem.device, on_host=problem.reference_plan() is None, hint=problem.smaller)
        check_entries(study)
        check_inputs(problem)
        check_reference(problem)
        return {
            "study": study.name,
            "about": study.about,
            "sizes": problem.size,
            "choices": problem.choices,
            "parameters": {name: list(one.values) for name, one in study.parameters.items()},
            "valid_configurations": valid,
            "default": problem.default,
            "notes": [
                *(f"nothing uses the parameter {name}" for name in study.unused),
                *effects(problem),
                *(f"the default {name}={a} is not valid here: {b} stands in" for name, (a, b) in problem.moved.items()),
            ],
        }


def outline(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outline of a study. Raises AutotuneError if the study, or what is asked of it, is wrong."""
    with study_of(asked) as study:
        return outline_of(study, asked)


def outline_of(study: Study, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name of a study and the sizes that it states itself.

    Raises UsageError if it does not have the sizes, choices, parameters or values that are asked for.
    """
    for what, known in (("size", study.sizes), ("choices", study.choices)):
        for name in asked.get(what) or ():
            if name not in known:
                raise UsageError(f"{study.name} has no {name!r}", where=what, hint=f"known: {', '.join(known)}")
    for name, value in (asked.get("choices") or {}).items():
        if value not in study.choices[name]:
            raise UsageError(f"{name} cannot be {value!r:.60}", where="choices", hint=f"{study.choices[name]}")
    starts = [{name: [value] for name, value in one.items()} for one in asked.get("start") or ()]
    for where, given in [("fix", _fixed(asked)), *(("start", one) for one in starts)]:
        for name, values in given.items():
            _require_values(study, name, values, where)
    return {
        "study": study.name,
        "stated": {name: size for name, size in study.sizes.items() if name not in study.fixed},
    }


def _fixed(asked: Mapping[str, Any]) -> dict[str, list[Any]]:
    given = asked.get("fix") or {}
    return {name: values if isinstance(values, list) else [values] for name, values in given.items()}


def _require_values(study: Study, name: str, values: Sequence[Any], where: str) -> None:
    if name not in study.parameters:
        raise UsageError(f"no parameter {name!r}", where=where, hint=f"known: {', '.join(study.parameters)}")
    if not values:
        raise UsageError(f"{name} is given no value to keep", where=where, hint="leave it out, or name one")
    known = study.parameters[name].values
    for value in values:
        if value not in known:
            raise UsageError(f"{name} cannot be {value!r:.60}", where=where, hint=f"it can be {known!s:.200}")


def default(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the default configuration of a study at the size and on the device asked for. Raises AutotuneError.

    Nothing runs here, so memory and other needs of the study are not checked.
    """
    with study_of(asked) as study:
        problem = problem_of(study, asked, device_of(asked["facts"]))
        bounded(problem, asked)
        return {"default": problem.default}


def bounded(problem: Problem, asked: Mapping[str, Any]) -> int:
    """Return the number of valid configurations. Raises UsageError if an uploaded study has more than it may have."""
    valid = len(problem.space)
    if asked.get("upload") is not None and valid > asked["space"]:
        raise UsageError(f"{valid:,} configurations are valid, {asked['space']:,} may be", where="parameters")
    return valid


@contextmanager
def study_of(asked: Mapping[str, Any]) -> Iterator[Study]:
    """Yield the study that was asked for; within the context, an uploaded study sees only its own files."""
    if asked.get("upload") is None:
        yield Study.load(asked["study"])
        return
    with uploads.unpacked(asked["upload"]) as path, uploads.its_files(path):
        yield uploads.read(path, allow_python=asked["allow_python"]).study


def problem_of(study: Study, asked: Mapping[str, Any], device: DeviceInfo | None) -> Problem:
    """Return the study at the size, with the choices and on the device asked for. Raises AutotuneError."""
    return Problem(study, asked.get("size") or None, asked.get("choices") or None, device, fix=_fixed(asked))
