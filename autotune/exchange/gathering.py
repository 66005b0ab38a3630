"""The stored problems that an export is about, with their trials."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from autotune import text
from autotune.errors import UsageError
from autotune.exchange.recording import Recording
from autotune.identity import in_order, misfit
from autotune.model import Choices, DeviceInfo, ProblemKey, Trial
from autotune.store import Store
from autotune.study import Study

HEADER = "header"
"""The entry in the environment of an imported search that holds what its file said beside the trials, as JSON text."""


def gather(
    store: Store,
    study: Study,
    *,
    device: str | None = None,
    size: Mapping[str, int] | None = None,
    choices: Mapping[str, Any] | None = None,
    named: str = "",
    database: str | None = None,
) -> tuple[list[Recording], int]:
    """Return the recordings of a study as it is now, of all devices, sizes and choices or those given.

    `device` is a fingerprint. Also return the number of trials left out: those of another text of the study or its
    kernel, and configurations that do not belong to the study. Raises UsageError if nothing is stored, with the command
    that makes some trials: in it `named` is what the user calls the study, `database` the database.
    """
    found, left_out = [], 0
    values = {name: parameter.values for name, parameter in study.parameters.items()}
    wanted = {"device": device, "size": size, "choices": choices}
    for key, info in store.problems(study.name):
        if any(asked is not None and getattr(key, name) != asked for name, asked in wanted.items()):
            continue
        driver = store.answering_driver(key, "" if info is None else info.driver)
        own, imports = store.answering(key, driver), store.imports(key)
        imported = [trial for _, trials in imports for trial in trials]
        if not own and not imported:
            continue
        if (key.kernel_hash, key.study_hash) != (study.text.kernel_hash, study.text.study_hash):
            left_out += len(own) + len(imported)
            continue
        ours, theirs = ([one for one in many if not misfit(values, one.configuration)] for many in (own, imported))
        left_out += len(own) + len(imported) - len(ours) - len(theirs)
        found.append(_recording(study, key, info, driver, ours, theirs, [told for told, _ in imports]))
    if not found:
        what = text.nothing_stored(study.name, text.size(size or {}), device or "")
        if left_out:
            what += f" as it is now: {text.count(left_out, 'trial')} of another text of it or its kernel"
        typed = named or study.name
        search = text.command("search", typed, device=device, size=size, choices=choices, database=database)
        raise UsageError(what, hint=f"{search} makes some")
    return found, left_out


def _recording(
    study: Study,
    key: ProblemKey,
    info: DeviceInfo | None,
    driver: str,
    own: Sequence[Trial],
    imported: Sequence[Trial],
    environments: Sequence[Mapping[str, Any]],
) -> Recording:
    entries = set(study.entries)
    headers = []
    for trial_format, told in ((str(told.get("format", "")), told.get(HEADER)) for told in environments):
        try:
            header = json.loads(str(told))
        except (ValueError, RecursionError):
            continue
        if isinstance(header, dict):
            headers.append((trial_format, header))
    return Recording(
        key._replace(size=in_order(key.size, study.sizes)),
        info,
        driver,
        {name: parameter.values for name, parameter in study.parameters.items()},
        entries.pop() if len(entries) == 1 else study.name,
        element_of(study, key.choices),
        own,
        imported,
        headers,
    )


def element_of(study: Study, choices: Choices) -> str:
    """Return the OpenCL type of a study's first output with some choices."""
    return re.sub(r"\{(\w+)\}", lambda match: str(choices.get(match[1], "")), next(iter(study.outputs)).type)


def one(recordings: Sequence[Recording], format: str) -> Recording:
    """Return the only recording. Raises UsageError, naming the others, if there are several."""
    if len(recordings) > 1:
        differ = any(each.key.choices != recordings[0].key.choices for each in recordings)
        stored = "; ".join(_asked(each.key, differ) for each in recordings[:6])
        what = f"{format} holds one device, size and choice, and {len(recordings)} are stored"
        raise UsageError(what, where="--format", hint=f"choose: {stored}")
    return recordings[0]


def _asked(key: ProblemKey, with_choices: bool) -> str:
    """Return the options that ask for a problem: all of its choices or none, as a missing one means its first value."""
    words = ["-d", key.device, "--size", text.pairs(key.size, ",")]
    for choice in key.choices.items() if with_choices else ():
        words += ["--choice", text.pairs(dict([choice]))]
    return text.typed(words)
