"""What pages and JSON show: functions from the open server to plain data, each used by both.

    home       devices, what runs, what is queued in which order, the problems searched last with their bests
    devices    of this machine, and every stored model
    studies    by name, with what each takes;  study: one of them, whole
    searches   newest first;  search: one, submitted or only stored;  points: its trials as a chart has them
    trials     newest first, by filters;  trial: one, with samples, options and build log
    compare    the best per value, size or device, of what is stored
    tokens     names, roles and times, for admins
All may take a while (they ask the database): call them in a thread. They raise AutotuneError, Refused(404) among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from autotune import __version__
from autotune.errors import AutotuneError
from autotune.lookup import Best, asking, best_in, open_records
from autotune.model import Outcome
from autotune.ranking import median_interval
from autotune.reports import sides
from autotune.service.answers import Refused
from autotune.store import OPEN, QUEUED, RUNNING, STOPPED, STOPPING, StoredSearch, StoredTrial, Submission, locate
from autotune.study import StudyText, default_size, offered_choices, parameter_values
from autotune.text import did_you_mean, line, parse_choices, parse_size

if TYPE_CHECKING:
    from autotune.service.state import Service

Json = dict[str, Any]

LATEST = 12
"""Problems on the first page."""


def home(service: Service, *, bests: bool = True) -> Json:
    """`devices`, `running`, `queued` (in order, by queue), `latest` bests, `version`."""
    waiting = service.store.waiting(service.config.name)
    open_ = {one.uuid: one for one in service.store.submitted(states=OPEN)}
    return {
        "version": __version__,
        "read_only": service.config.read_only,
        "devices": devices(service)["here"],
        "running": [_submitted(service, one) for one in open_.values() if one.state != QUEUED],
        "queued": {
            queue: [_submitted(service, open_[name]) for name in names if name in open_]
            for queue, names in waiting.items()
        },
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


def latest(service: Service, limit: int = LATEST) -> list[Json]:
    """The problems searched last, each with its best as `best_json` has it, or why there is none in `error`."""
    found, texts = [], dict[str, StudyText]()
    for number, key, ended in service.store.latest_problems(limit):
        entry: Json = {
            "problem": number,
            "study": key.study,
            "device": key.device,
            "size": dict(key.size),
            "choices": dict(key.choices),
            "searched": ended or None,
            "best": None,
            "error": "",
        }
        try:
            text = texts.get(key.study) or service.studies.text(key.study)
            texts[key.study] = text
            with open_records(locate(service.config.database)) as records:
                best = best_in(records, "", text, key.size, key.choices, key.device, None, False)
            entry["best"] = best_json(best)
        except AutotuneError as error:
            entry["error"] = line(error.what)
        found.append(entry)
    return found


def best_json(best: Best) -> Json:
    """A best as `GET /v1/best` tells it."""
    return {
        **best._asdict(),
        "match": best.match.value,
        "configuration": dict(best.configuration),
        "size": dict(best.size),
        "choices": dict(best.choices),
        "measured_size": None if best.measured_size is None else dict(best.measured_size),
        "notes": list(best.notes),
        "options": list(best.options),
    }


def studies(service: Service) -> list[Json]:
    """The server's own studies: `study`, `about`, `sizes`, `choices`, `parameters`, `trials` stored, `error`."""
    counts, found = service.store.counts(), []
    for name in service.studies.names():
        entry: Json = {"study": name, "about": "", "sizes": {}, "choices": {}, "parameters": [], "error": ""}
        try:
            one = service.studies.load(name)
            entry |= {
                "about": one.about,
                "sizes": dict(one.sizes),
                "choices": {name: list(values) for name, values in one.choices.items()},
                "parameters": list(one.parameters),
            }
        except AutotuneError as error:
            entry["error"] = line(str(error.what))
        found.append({**entry, "trials": counts.get(name, 0)})
    return found


def study(service: Service, name: str) -> Json:
    """One study, whole: parameters with values and defaults, constraints, sizes, choices, the kernel's text."""
    one = service.studies.load(name)
    return {
        "study": one.name,
        "about": one.about,
        "sizes": dict(one.sizes),
        "size_lists": one.size_lists,
        "choices": {name: list(values) for name, values in one.choices.items()},
        "parameters": {
            name: {"values": list(entry.values), "default": entry.default, "about": entry.about}
            for name, entry in one.parameters.items()
        },
        "constraints": [{"require": str(rule.require), "reason": rule.reason} for rule in one.constraints],
        "kernel": one.text.source,
        "kernel_hash": one.text.kernel_hash,
        "study_hash": one.text.study_hash,
    }


def searches(
    service: Service, *, study: str | None = None, device: str | None = None, before: int | None = None, limit: int = 50
) -> Json:
    """`open`: what is queued or runs, newest first (first page only); `searches`: what is stored, newest first.

    `before` is the `number` of the last one of the page before.
    """
    open_ = service.store.submitted(states=OPEN) if before is None else []
    stored = service.store.stored_searches(study=study, device=device, before=before, limit=limit)
    return {
        "open": [_submitted(service, one) for one in open_ if study in (None, one.study)],
        "searches": [_stored(one) for one in stored],
        "next": stored[-1].number if len(stored) == limit else None,
    }


def search(service: Service, name: str) -> Json:
    """One search by its id, that of a submission or of a stored search.

    `id`, `state`, `study`, `device`, `size`, `choices`, `request`, `asked_by`, `created`, `started`, `ended`,
    `reason`, `place` (0: the next of its queue), `progress` (the last that was told), `result` (of `autotune search
    --json`), `outcomes`, `searches` (numbers of the stored searches that are its work).
    """
    submission = service.store.submission(name)
    stored = service.store.stored_searches(names=[name])
    if submission is not None:
        return _submitted(service, submission, stored)
    if not stored:
        raise Refused(404, f"no search {name[:64]!r}", hint="GET /v1/searches lists them")
    return _stored(stored[0])


def has_ended(told: Json) -> bool:
    """Whether what `search` gave is final."""
    return told["state"] not in OPEN


def _submitted(service: Service, one: Submission, stored: Sequence[StoredSearch] = ()) -> Json:
    outcomes: dict[str, int] = {}
    for part in stored:
        for outcome, count in part.outcomes.items():
            outcomes[outcome] = outcomes.get(outcome, 0) + count
    place = None
    if one.state == QUEUED:
        order = service.store.waiting(one.server).get(one.queue, [])
        place = order.index(one.uuid) if one.uuid in order else None
    running = one.state in (RUNNING, STOPPING)
    return {
        "id": one.uuid,
        "number": one.number,
        "state": one.state,
        "study": one.study,
        "uploaded": one.upload is not None,
        "device": one.request["fingerprint"],
        "device_name": one.request["device_name"],
        "size": one.request.get("size") or {},
        "choices": one.request.get("choices") or {},
        "budget": one.request["budget"],
        "asked_by": one.asked_by,
        "server": one.server,
        "queue": one.queue,
        "place": place,
        "attempts": one.attempts,
        "created": one.created,
        "started": one.started,
        "ended": one.ended,
        "reason": one.reason,
        "progress": service.feeds.of(one.uuid).latest if running else None,
        "result": one.result,
        "outcomes": outcomes,
        "searches": [part.number for part in stored],
    }


def _stored(one: StoredSearch) -> Json:
    state = RUNNING if one.ended is None else STOPPED if one.reason in ("lost", "interrupted") else "done"
    return {
        "id": one.submission or one.uuid,
        "number": one.number,
        "state": state,
        "study": one.key.study,
        "uploaded": False,
        "device": one.key.device,
        "device_name": one.device_name,
        "size": dict(one.key.size),
        "choices": dict(one.key.choices),
        "budget": None,
        "asked_by": one.asked_by,
        "server": None,
        "queue": None,
        "place": None,
        "attempts": 1,
        "created": one.started,
        "started": one.started,
        "ended": one.ended,
        "reason": one.reason,
        "progress": None,
        "result": None,
        "outcomes": dict(one.outcomes),
        "searches": [one.number],
    }


def numbers_of(service: Service, name: str) -> list[int]:
    """The numbers of the stored searches that are the work of a search. Raises Refused (404)."""
    found: list[int] = search(service, name)["searches"]
    return found


def points(service: Service, name: str, *, after: int = 0, limit: int = 5000) -> Json:
    """The trials of a search in the order they began: `trials` of [number, outcome, time_ns, finished, configuration].

    `next` is what `after` should be for the rest; None: there is none.
    """
    numbers = numbers_of(service, name)
    found = service.store.points(numbers, after=after, limit=limit) if numbers else []
    return {
        "trials": [[one.number, one.outcome, one.time_ns, one.finished, dict(one.configuration)] for one in found],
        "next": found[-1].number if len(found) == limit else None,
    }


def trials(
    service: Service,
    *,
    study: str | None = None,
    device: str | None = None,
    outcomes: Sequence[str] = (),
    search: str | None = None,
    before: int | None = None,
    limit: int = 50,
) -> Json:
    """`trials`, newest first, by filters, without samples and logs; `next` is `before` of the page after."""
    for outcome in outcomes:
        if outcome not in set(Outcome):
            raise Refused(422, f"no outcome {outcome!r:.40}", where="outcome", hint=f"known: {', '.join(Outcome)}")
    numbers = numbers_of(service, search) if search is not None else []
    if search is not None and not numbers:
        return {"trials": [], "next": None}
    found = service.store.page(
        study=study, device=device, outcomes=outcomes, searches_=numbers, before=before, limit=limit
    )
    return {"trials": [_trial(one) for one in found], "next": found[-1].number if len(found) == limit else None}


def trial(service: Service, number: int) -> Json:
    """One trial with its samples, its build log, its options and environment."""
    one = service.store.trial(number)
    if one is None:
        raise Refused(404, f"no trial {number}", hint="GET /v1/trials lists them")
    told, measured = one.trial, one.trial.measurement
    return {
        **_trial(one),
        "samples_ns": list(measured.samples_ns) if measured else [],
        "warmup_ns": list(measured.warmup_ns) if measured else [],
        "cache": measured.cache if measured else None,
        "retimed_ns": list(told.retimed.samples_ns) if told.retimed else [],
        "build_log": told.build_log,
        "made": dict(told.made) if told.made else None,
        "environment": dict(told.environment),
        "kernel_hash": one.key.kernel_hash,
        "study_hash": one.key.study_hash,
    }


def _trial(one: StoredTrial) -> Json:
    told = one.trial
    measured = told.retimed or told.measurement
    time_ns = told.time_ns
    return {
        "number": one.number,
        "search": one.search,
        "study": one.key.study,
        "size": dict(one.key.size),
        "choices": dict(one.key.choices),
        "device": one.key.device,
        "device_name": one.device_name,
        "driver": told.driver,
        "sampler": one.sampler,
        "configuration": dict(told.configuration),
        "outcome": told.outcome.value,
        "reason": told.reason,
        "time_ns": time_ns if time_ns == time_ns else None,
        "interval_ns": list(median_interval(measured.samples_ns)) if measured and measured.samples_ns else None,
        "runs": len(measured.samples_ns) if measured else 0,
        "started": told.started.isoformat() if told.started else None,
        "finished": told.finished.isoformat() if told.finished else None,
    }


def compare(
    service: Service,
    study: str,
    by: str,
    *,
    size: Sequence[str] = (),
    choice: Sequence[str] = (),
    device: str | None = None,
) -> Json:
    """The best per value of a parameter, per `size` (each entry one) or per `device`, of what is stored: `cells`."""
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
    if device:
        device = asking.device_meant(device, service.config.database, service.machine.find).fingerprint
    cells = sides.sides(service.store, text.name, by, sizes=sizes, choices=choices, device=device or "")
    return {"study": text.name, "by": by, "cells": cells}


def tokens(service: Service) -> list[Json]:
    """Every token: `name`, `role`, `created`, `expires`, `revoked`, `valid`; never the token itself."""
    return [
        {name: getattr(one, name) for name in ("name", "role", "created", "expires", "revoked", "valid")}
        for one in service.store.tokens()
    ]
