"""Searches, submitted or only stored, and their trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from autotune.model import Outcome
from autotune.ranking import median_interval
from autotune.service.answers import Refused
from autotune.service.views.queues import Queues
from autotune.store import DONE, FAILED, OPEN, RUNNING, STOPPED, STOPPING, Submission, Uploaded, listing, survey

if TYPE_CHECKING:
    from autotune.service.state import Service
    from autotune.store import StoredTrial

Json = dict[str, Any]


def searches(service: Service, *, study: str | None, device: str | None, before: int | None, limit: int) -> Json:
    """`open`: what is queued or runs, newest first (first page only); `searches`: what has ended, newest first.

    `before` is the `next` of the previous page. Searches that ended before anything was stored are sorted in by time.
    """
    open_ = service.store.submitted(states=OPEN) if before is None else []
    found = listing.searches(service.store, study=study, device=device, latest=True, before=before, limit=limit)
    after = found[-1].number if len(found) == limit else None
    early = service.store.unstored(study=study, after=after, before=before)
    queues = Queues(service)
    opened = [submitted(service, one, queues) for one in _on(device, open_) if study in (None, one.study)]
    told = {one["id"] for one in opened}  # a search that ended between the two reads is also stored
    rows = [*listed(service, found), *(submitted(service, one, queues) for one in _on(device, early))]
    rows = [row for row in rows if row["id"] not in told]
    return {
        "open": opened,
        "searches": sorted(rows, key=lambda row: str(row["started"] or row["created"]), reverse=True),
        "next": after,
    }


def _on(device: str | None, sent: Sequence[Submission]) -> list[Submission]:
    return [one for one in sent if device in (None, one.request["fingerprint"])]


def listed(service: Service, found: Sequence[listing.Search]) -> list[Json]:
    """Stored searches, each shown as its submission if there is one; open submissions are left out."""
    names = [one.submission for one in found if one.submission]
    parts = listing.searches(service.store, names=names, limit=1000) if names else []
    submissions = service.store.named(names) if names else {}
    queues = Queues(service)
    rows = []
    for one in found:
        submission = submissions.get(one.submission or "")
        if submission is None:
            rows.append(stored(service, one))
        elif submission.state not in OPEN:
            mine = [part for part in parts if part.submission == one.submission]
            rows.append(submitted(service, submission, queues, mine))
    return rows


def search(service: Service, name: str) -> Json:
    """One search by its id, that of a submission or of a stored search.

    `id`, `state`, `study`, `study_from` (if an uploaded study was asked for by name), `device`, `size`, `choices`,
    `request`, `asked_by`, `created`, `started`, `ended`, `reason`, `exit_code` (of the command line, if it failed),
    `place` (0: the next of its queue), `progress` (the last reported), `result` (of `autotune search --json`),
    `outcomes`, `searches` (numbers of the stored searches that are its work).
    """
    submission = service.store.submission(name)
    found = listing.searches(service.store, names=[name])
    if submission is not None:
        return submitted(service, submission, Queues(service), found)
    if not found:
        raise Refused(404, f"no search {name[:64]!r}", hint="/searches lists them")
    return stored(service, found[0])


def study_from(one: Uploaded) -> Json:
    """Whose text is used for a name that the server's own studies do not have: the first `search` with it, and when."""
    return {"asked_by": one.asked_by, "search": one.search, "created": one.created}


def has_ended(told: Json) -> bool:
    """Whether a search, as `search` returns it, is in a final state."""
    return told["state"] not in OPEN


def submitted(service: Service, one: Submission, queues: Queues, parts: Sequence[listing.Search] = ()) -> Json:
    """A submission, with the stored searches that are its work, in the form of `search`."""
    state, reason = queues.state(one)
    return {
        "id": one.uuid,
        "number": one.number,
        "state": state,
        "study": one.study,
        "uploaded": one.uploaded,
        "study_from": one.request.get("study_from"),
        "device": one.request["fingerprint"],
        "device_name": one.request["device_name"],
        "size": service.studies.in_order(one.study, _size(one, parts)),
        "choices": one.request.get("choices") or {},
        "budget": one.request["budget"],
        "asked_by": one.asked_by,
        "server": one.server,
        "queue": one.queue,
        "place": queues.place(one),
        "attempts": one.attempts,
        "created": one.created,
        "started": one.started,
        "ended": one.ended,
        "reason": reason,
        "exit_code": one.exit_code,
        "progress": service.feeds.of(one.uuid).latest if state in (RUNNING, STOPPING) else None,
        "result": one.result,
        "outcomes": _outcomes(service, parts),
        "searches": [part.number for part in parts],
    }


def _outcomes(service: Service, parts: Sequence[listing.Search]) -> dict[str, int]:
    """How many trials of these searches had each outcome."""
    counted = survey.tally(service.store, [part.number for part in parts])
    return {outcome.value: count for outcome, count in survey.by_outcome(counted).items()}


def _size(one: Submission, parts: Sequence[listing.Search]) -> Json:
    """The size that was asked for. Once the search has begun, it is complete even if only a part was given."""
    found = dict(parts[-1].key.size) if parts else (one.result or {}).get("size")
    return found or one.request.get("size") or {}


def stored(service: Service, one: listing.Search) -> Json:
    """A stored search, with the same keys."""
    states = {"lost": STOPPED, "interrupted": STOPPED, "error": FAILED}
    reason = "lost" if one.is_lost else one.reason
    state = RUNNING if one.ended is None and not one.is_lost else states.get(reason, DONE)
    return {
        **_UNSENT,
        "id": one.submission or one.uuid,
        "number": one.number,
        "state": state,
        "study": one.key.study,
        "device": one.key.device,
        "device_name": one.device_name,
        "size": service.studies.in_order(one.key.study, one.key.size),
        "choices": dict(one.key.choices),
        "asked_by": one.asked_by,
        "created": one.started,
        "started": one.started,
        "ended": one.ended,
        "reason": reason,
        "outcomes": _outcomes(service, [one]),
        "searches": [one.number],
    }


_UNSENT: Json = dict.fromkeys(("study_from", "budget", "server", "queue", "place", "exit_code", "progress", "result"))
_UNSENT |= {"uploaded": False, "attempts": 1}
"""The values for a search that was not sent to a server."""


def _numbers_of(service: Service, name: str) -> list[int]:
    """The numbers of the stored searches that are the work of a search. Raises Refused (404)."""
    found: list[int] = search(service, name)["searches"]
    return found


def points(service: Service, name: str, *, after: int = 0, limit: int = 5000) -> Json:
    """The trials of a search in the order they began: `trials` of [number, outcome, time_ns, finished, configuration].

    `next` is the `after` for the rest, or None if there is no more.
    """
    numbers = _numbers_of(service, name)
    found = survey.following(service.store, numbers, after=after, limit=limit) if numbers else []
    return {
        "trials": [
            [one.number, one.outcome.value, one.time_ns, one.finished or None, one.configuration] for one in found
        ],
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
    """`trials`, newest first, by filters, without samples and logs; `next` is the `before` of the next page."""
    for outcome in outcomes:
        if outcome not in set(Outcome):
            raise Refused(422, f"no outcome {outcome!r:.40}", where="outcome", hint=f"known: {', '.join(Outcome)}")
    numbers = _numbers_of(service, search) if search is not None else []
    if search is not None and not numbers:
        return {"trials": [], "next": None}
    found = service.store.page(
        study=study, device=device, outcomes=outcomes, searches_=numbers, before=before, limit=limit
    )
    return {
        "trials": [_trial(service, one) for one in found],
        "next": found[-1].number if len(found) == limit else None,
    }


def trial(service: Service, number: int) -> Json:
    """One trial with its samples, its build log, its options and environment."""
    one = service.store.trial(number)
    if one is None:
        raise Refused(404, f"no trial {number}", hint="/trials lists them")
    told, measured = one.trial, one.trial.measurement
    return {
        **_trial(service, one),
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


def _trial(service: Service, one: StoredTrial) -> Json:
    told = one.trial
    measured = told.retimed or told.measurement
    time_ns = told.time_ns
    return {
        "number": one.number,
        "search": one.search,
        "study": one.key.study,
        "size": service.studies.in_order(one.key.study, one.key.size),
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
