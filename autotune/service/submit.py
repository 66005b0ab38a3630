"""Takes a requested search: checks it, bounds it, and puts it in its queue."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, TypeVar

from autotune.identity import Configuration, ProblemKey
from autotune.model import DeviceInfo
from autotune.samplers import entry_of
from autotune.service import uploads, views
from autotune.service.answers import Refused
from autotune.service.asked import outline_of
from autotune.service.callers import Caller
from autotune.service.process import work
from autotune.service.runner import Runner
from autotune.service.shapes import Check, Submit, Upload
from autotune.store import OPEN, Submission
from autotune.tuner import DEFAULT_SECONDS

if TYPE_CHECKING:
    from autotune.service.state import Service

_Asked = TypeVar("_Asked", bound=Check)


async def submit(service: Service, caller: Caller, asked: Submit, once: str | None) -> views.Json:
    """Queue a search; return what `views.search` says of it. Raises AutotuneError.

    The process of the search builds the space, so an error of the space appears there.
    `once` is an idempotency key: a repeated request of this caller returns the first one's search.
    """
    runner = _runner(service)
    device = await service.device(asked.device)
    asked, study_from = await asyncio.to_thread(_completed, service, caller, asked, once)
    study, stated = await _outline(service, asked)
    request = asked.model_dump(exclude={"study", "upload", "device"}) | {
        "size": stated | asked.size,
        "budget": _bounded(service, asked),
        "fingerprint": device.fingerprint,
        "platform": device.platform,
        "device_name": device.name,
        "study_from": study_from,
    }
    queue = service.machine.queue_of(device)
    upload = None if asked.upload is None else asked.upload.model_dump()
    sent, is_new = await asyncio.to_thread(
        service.store.submit, service.config.name, queue, study, request, caller.name,
        upload=upload, once=once, most=service.config.limits.waiting,
    )  # fmt: skip
    if sent is None:
        what = f"{service.config.limits.waiting} of your searches wait or run already"
        raise Refused(429, what, hint="wait for one to end, or stop it: DELETE /v1/searches/ID")
    before = (sent.study, dict(sent.request), sent.upload)
    if not is_new and before != (study, json.loads(json.dumps(request)), upload):
        raise Refused(409, "something else was asked with this key before", where="Idempotency-Key")
    runner.wake(queue)
    return await asyncio.to_thread(views.search, service, sent.uuid)


async def check(service: Service, caller: Caller, asked: Check) -> views.Json:
    """Return what a study is at a size on a device: its valid configurations, its default, what is odd about it.

    Nothing is built or run. Raises AutotuneError for an error, with its place in the file.
    """
    _runner(service)
    device = await service.device(asked.device)
    asked, _ = await asyncio.to_thread(_completed, service, caller, asked)
    await asyncio.to_thread(_require_one, service, asked)
    return await _examined(service, "check", asked.model_dump(exclude={"device"}), device)


async def default_of(service: Service, key: ProblemKey, device: DeviceInfo) -> Configuration:
    """Return the default configuration of an uploaded study for a stored problem. Raises AutotuneError."""
    _, sent = await asyncio.to_thread(service.studies.found, key.study, key.kernel_hash, key.study_hash)
    upload = None if sent is None else sent.upload
    asked = {"study": key.study, "upload": upload, "size": dict(key.size), "choices": dict(key.choices)}
    found: Configuration = (await _examined(service, "default", asked, device))["default"]
    return found


async def _examined(service: Service, what: str, asked: views.Json, device: DeviceInfo | None = None) -> views.Json:
    """Return what a piece of work says of a study; its own process limits the time and memory that it takes."""
    limits = service.config.limits
    told = asked | {
        "facts": None if device is None else asdict(device),
        "on": service.config.on,
        "allow_python": service.config.allow_python,
        "space": limits.space,
        "seconds": limits.check_s,
        "bytes": limits.check_bytes,
    }
    async with service.checking:
        return dict(await work(what, told, limits.check_s))


async def stop(service: Service, caller: Caller, name: str) -> views.Json:
    """Have a search stopped, in order; return its state then. Raises Refused (403, 404, 409)."""
    runner = _runner(service)
    found = await asyncio.to_thread(_asked_to_stop, service, caller, name)
    if found is None:
        told = await asyncio.to_thread(views.search, service, name)  # raises 404
        if views.has_ended(told):
            raise Refused(409, "it has ended already")
        raise Refused(409, "this server does not run it", hint="Ctrl-C where it was started")
    await runner.stop(found)
    return await asyncio.to_thread(views.search, service, name)


def _asked_to_stop(service: Service, caller: Caller, name: str) -> Submission | None:
    found = service.store.submission(name)
    if found is not None and found.state in OPEN and not caller.may_stop(found.asked_by):
        hint = f"have {found.asked_by} stop it, or use a token of the role admin"
        raise Refused(403, f"{found.asked_by} asked for this search", hint=hint)
    return service.store.ask_to_stop(name, is_at_work=found is None or service.is_at_work(found.server))


def _runner(service: Service) -> Runner:
    if service.runner is None:
        raise Refused(403, "this server only shows what is stored", hint="autotune serve runs searches")
    return service.runner


async def _outline(service: Service, asked: Submit) -> tuple[str, dict[str, int]]:
    """Return the name of the study and the sizes that it states. Raises AutotuneError if the request does not fit.

    A study of the server's own is read in this process, which keeps it.
    """
    await asyncio.to_thread(_require_one, service, asked)
    told = asked.model_dump(exclude={"device"})
    if asked.upload is not None:
        found = await _examined(service, "outline", told)
    else:
        found = await asyncio.to_thread(lambda: outline_of(service.studies.load(str(asked.study)), told))
    return found["study"], found["stated"]


def _require_one(service: Service, asked: Check) -> None:
    """Raise Refused unless the request has either the name of a study or files that may be a study."""
    if (asked.study is None) == (asked.upload is None):
        raise Refused(422, "give either the name of a study, or one with its files", where="study, upload")
    if asked.upload is not None:
        uploads.require_small(asked.upload.model_dump(), service.config.limits)
    elif service.studies.own(name := str(asked.study)) is None:
        hint = f"known: {', '.join(service.studies.names())}; or send yours as upload"
        raise Refused(404, f"no study named {name!r}", where="study", hint=hint)


def _completed(
    service: Service, caller: Caller, asked: _Asked, once: str | None = None
) -> tuple[_Asked, views.Json | None]:
    """Return the request with the study that was uploaded under its name, and where that comes from.

    The server's own study needs none. A request with the same key as before keeps its text, whatever was uploaded
    since.
    """
    if asked.study is None or asked.upload is not None:
        return asked, None
    before = service.store.sent_once(caller.name, once) if once is not None else None
    if before is not None and before.study == asked.study:
        upload, study_from = before.upload, before.request.get("study_from")
    elif (found := service.studies.upload(asked.study, caller.name)) is not None:
        upload, study_from = found.upload, views.study_from(found)
    else:
        return asked, None
    if upload is None:
        return asked, None
    return asked.model_copy(update={"study": None, "upload": Upload(**upload)}), study_from


def _bounded(service: Service, asked: Submit) -> views.Json:
    """Return the budget with the server's limits. Raises Refused if it exceeds them, SetupError as `entry_of`."""
    budget, limits, sampler = asked.budget.model_dump(), service.config.limits, entry_of(asked.sampler, "sampler")
    if budget["least_gain"] is not None and not sampler.has_model:
        hint = "leave the sampler or the gain out"
        raise Refused(422, f"{asked.sampler} cannot estimate the gain", where="budget.least_gain", hint=hint)
    for name, most in (("trials", limits.trials), ("seconds", limits.seconds)):
        if budget[name] is not None and budget[name] > most:
            raise Refused(422, f"{budget[name]:,} {name}: this server allows {most:,}", where=f"budget.{name}")
    if budget["seconds"] is None:
        bounded = any(budget[name] is not None for name in ("trials", "until_stale", "least_gain"))
        budget["seconds"] = limits.seconds if bounded else DEFAULT_SECONDS
    return dict(budget)


def revoke(service: Service, name: str) -> dict[str, str]:
    """Revoke a token. Raises Refused (404)."""
    if not service.store.revoke_token(name):
        raise Refused(404, f"no token named {name!r:.80}", hint="GET /v1/tokens lists them")
    service.callers.forget()
    return {"name": name}
