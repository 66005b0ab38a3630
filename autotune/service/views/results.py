"""What is here and what is known: devices, studies, bests, comparisons, tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict
from typing import TYPE_CHECKING

from autotune import __version__
from autotune.errors import AutotuneError, StoreError
from autotune.lookup import Best, Records, asking, best_alone, best_in, open_records
from autotune.reports import row_json, sides
from autotune.service.answers import Refused, for_others
from autotune.service.views.queues import Queues
from autotune.service.views.searches import Json, study_from, submitted
from autotune.store import OPEN, RUNNING, STOPPING, listing, locate
from autotune.study import StudyText, default_size, offered_choices, parameter_values
from autotune.text import did_you_mean, line, parse_choices, parse_size

if TYPE_CHECKING:
    from autotune.service.state import Service

TextOf = Callable[[str, str, str], StudyText]
"""Finds the study of a stored problem by its name and hashes."""

LATEST = 12
"""How many problems the first page shows."""


def home(service: Service, *, bests: bool = True) -> Json:
    """`devices`, `running`, `queued` (in order, by queue), `latest` bests, `version`."""
    waiting = service.store.waiting(service.config.name)
    queues = Queues(service)
    open_ = {one.uuid: submitted(service, one, queues) for one in service.store.submitted(states=OPEN)}
    return {
        "version": __version__,
        "read_only": service.config.read_only,
        "devices": devices(service)["here"],
        "running": [told for told in open_.values() if told["state"] in (RUNNING, STOPPING)],
        "queued": {queue: [open_[name] for name in names if name in open_] for queue, names in waiting.items()},
        "latest": latest(service) if bests else [],
    }


def devices(service: Service) -> Json:
    """`here`: this machine's, with number and queue; `stored`: each model with results; `amiss`: what is wrong."""
    machine = service.machine
    here = [
        {"fingerprint": one.fingerprint, "number": one.number, "queue": machine.queue_of(one), **asdict(one)}
        for one in machine.devices
    ]
    with open_records(locate(service.config.database)) as records:
        stored = {fingerprint: name for fingerprint, name, _ in records.devices()}
    return {
        "here": here,
        "stored": [{"fingerprint": fingerprint, "name": name} for fingerprint, name in stored.items()],
        "amiss": list(machine.amiss),
    }


def latest(service: Service) -> list[Json]:
    """The problems searched last, each as in `row_of_problem`, and in `searched` when its last search ended."""
    text_of = asked_once(service.studies.of)
    return [
        row_of_problem(service, one, open_records(locate(service.config.database)), text_of)
        | {"searched": ended or None}
        for one, ended in listing.latest_problems(service.store, LATEST)
    ]


def row_of_problem(
    service: Service, problem: listing.Problem, opened: AbstractContextManager[Records], text_of: TextOf
) -> Json:
    """A stored problem with its best as in `best_of_problem`, or in `error` why there is none."""
    key = problem.key
    row: Json = {
        "problem": problem.number,
        "study": key.study,
        "device": key.device,
        "size": service.studies.in_order(key.study, key.size),
        "choices": dict(key.choices),
        "best": None,
        "error": "",
    }
    try:
        with opened as records:
            row["best"], _ = best_of_problem(service, records, problem, text_of)
        row["size"] = row["best"]["size"]
    except AutotuneError as error:
        row["error"] = line(for_others(error).what)
    return row


def asked_once(text_of: TextOf) -> TextOf:
    """Return a `text_of` for many problems that looks for each study once, even if it is missing or cannot be read."""
    found: dict[tuple[str, ...], StudyText | AutotuneError] = {}

    def ask(*wanted: str) -> StudyText:
        if wanted not in found:
            try:
                found[wanted] = text_of(*wanted)
            except AutotuneError as error:
                found[wanted] = error
        known = found[wanted]
        if isinstance(known, AutotuneError):
            raise known
        return known

    return ask


def best_of_problem(
    service: Service, records: Records, problem: listing.Problem, text_of: TextOf, *, whole: bool = False
) -> tuple[Json, Best | None]:
    """A stored problem's best as in `best_json`, and the answer itself.

    If no study of that name is here, or it cannot be used for this problem, `match`, `options` and `launches` are None
    (not known), and so is the answer. Raises AutotuneError.
    """
    key = problem.key
    info = service.machine.of_model(key.device)
    try:
        text = text_of(key.study, key.kernel_hash, key.study_hash)
        size = {name: key.size[name] for name in default_size(text) if name in key.size}  # in the study's order
        best = best_in(records, "", text, size, key.choices, key.device, info, whole)
    except StoreError:
        raise
    except AutotuneError as without:
        try:
            alone = best_alone(records, problem.number, key, "" if info is None else info.driver)
        except AutotuneError as error:
            raise AutotuneError(f"{without.what}; {error.what}") from None
        size = service.studies.in_order(key.study, key.size)
        notes = [*alone.notes, f"shown without its study: {line(without.what)}"]
        return {
            **best_json(alone),
            "size": size,
            "notes": notes,
            "match": None,
            "options": None,
            "launches": None,
        }, None
    return best_json(best), best


def best_json(best: Best) -> Json:
    """A best as `GET /v1/best` returns it."""
    return {
        **best._asdict(),
        "match": best.match.value,
        "configuration": dict(best.configuration),
        "size": dict(best.size),
        "choices": dict(best.choices),
        "measured_size": None if best.measured_size is None else dict(best.measured_size),
        "notes": list(best.notes),
        "options": list(best.options),
        "launches": [one.plain() for one in best.launches],
    }


def studies(service: Service) -> list[Json]:
    """The server's own studies: `study`, `about`, `sizes`, `choices`, `parameters`, `trials` stored, `error`."""
    counts, found = service.store.counts(), []
    for name in service.studies.names():
        entry: Json = {"study": name, "about": "", "sizes": {}, "choices": {}, "parameters": [], "error": ""}
        entry["trials"] = counts.get(name, 0)
        try:
            one = service.studies.load(name)
            entry |= {
                "trials": counts.get(one.name, 0),
                "about": one.about,
                "sizes": dict(one.sizes),
                "choices": {name: list(values) for name, values in one.choices.items()},
                "parameters": list(one.parameters),
            }
        except AutotuneError as error:
            entry["error"] = line(str(error.what))
        found.append(entry)
    return found


def study(service: Service, name: str) -> Json:
    """One study, whole: parameters with values and defaults, constraints, sizes, choices, the kernel's text."""
    text, uploaded = service.studies.found(name)
    one = text.study
    return {
        "study": one.name,
        "study_from": None if uploaded is None else study_from(uploaded),
        "about": one.about,
        "sizes": dict(one.sizes),
        "size_lists": one.size_lists,
        "choices": {name: list(values) for name, values in one.choices.items()},
        "parameters": {
            name: {"values": list(entry.values), "default": entry.default, "about": entry.about}
            for name, entry in one.parameters.items()
        },
        "constraints": [{"require": rule.require.text, "reason": rule.reason} for rule in one.constraints],
        "kernel": one.text.source,
        "kernel_hash": one.text.kernel_hash,
        "study_hash": one.text.study_hash,
    }


def history(service: Service, study: str | None, limit: int, failed: bool, device: str | None) -> list[Json]:
    """The newest trials, or the newest failures, of a study, of a device. Raises DeviceError."""
    if study is not None and study not in service.store.counts() and (own := service.studies.own(study)) is not None:
        study = own.name
    rows = service.store.history(study, limit, failed=failed, device=_fingerprint(service, device))
    return list(map(row_json, rows))


def _fingerprint(service: Service, device: str | None) -> str | None:
    """Return the model that a selector means, or None without a selector. Raises DeviceError."""
    if device is None:
        return None
    return asking.device_meant(device, service.config.database, service.machine.find).fingerprint


def compare(
    service: Service,
    study: str,
    by: str,
    *,
    size: Sequence[str] = (),
    choice: Sequence[str] = (),
    device: str | None = None,
) -> Json:
    """The best per value of a parameter, per `size` (each entry is one size) or per `device`, of what is stored.

    `cells` and `left_out` are those of `reports.sides`.
    """
    text = service.studies.text(study)
    known = [*parameter_values(text), "size", "device"]
    if by not in known:
        raise Refused(
            422,
            f"cannot compare by {by!r:.80}{did_you_mean(by[:80], known)}",
            where="by",
            hint=f"known: {', '.join(known)}",
        )
    sizes = [parse_size(one, default_size(text)) for one in size]
    choices = parse_choices(list(choice), offered_choices(text)) if choice else None
    device = _fingerprint(service, device or None)
    cells, left_out = sides.sides(
        service.store, text.name, by, sizes=sizes, choices=choices, device=device or "", order=list(default_size(text))
    )
    return {"study": text.name, "by": by, "cells": cells, "left_out": left_out}


def tokens(service: Service) -> list[Json]:
    """Every token: `name`, `role`, `created`, `expires`, `revoked`, `valid`; never the token itself."""
    return [
        {name: getattr(one, name) for name in ("name", "role", "created", "expires", "revoked", "valid")}
        for one in service.store.tokens()
    ]
