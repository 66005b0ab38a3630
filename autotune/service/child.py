"""One piece of work in a process of its own, as `python -m autotune.service WORK PARENT`.

    search    runs the search of a submission and reports its progress
    outline   gives the name and the stated sizes of an uploaded study, or what is wrong with it
    check     says what a study is at a size, or what is wrong with it
    default   gives the default configuration of a study
    devices   lists the devices of this machine, or of a cluster

The request comes as JSON on stdin. The answers are lines of JSON on stdout: `{"progress": ...}` any number of times,
then `{"result": ...}` or `{"error": ...}`. SIGTERM ends a search in order. The end of the server ends this process at
once; what it had not stored is tried again.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from typing import Any

from autotune.errors import AutotuneError
from autotune.store import ordered
from autotune.text import plain

Tell = Callable[[Mapping[str, Any]], None]


def main(work: str) -> None:
    """Do a piece of work."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # so that output of drivers and kernels is no answer
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    asked = json.loads(sys.stdin.read())

    def tell(told: Mapping[str, Any]) -> None:
        with suppress(BrokenPipeError):  # the server has gone, and this process ends with it
            out.write(ordered(plain(told, nulls=True)) + "\n")
            out.flush()

    try:
        tell({"result": WORKS[work](asked, tell, stop)})
    except AutotuneError as error:
        tell({"error": [error.what, error.where, error.hint, error.detail, type(error).__name__, error.exit_code]})


def _search(asked: Mapping[str, Any], tell: Tell, stop: threading.Event) -> Mapping[str, Any]:
    _list_apart(asked)
    from autotune.service import search

    return search.run(asked, tell, stop)


def _list_apart(asked: Mapping[str, Any]) -> None:
    """Have a fork of this process ask for devices, while nothing is loaded yet: a driver that fails is then named."""
    from autotune import pool

    if asked["on"] is None:
        pool.list_apart()


def _examine(work: str) -> Callable[..., Mapping[str, Any]]:
    """Return the piece of work of that name in asked.py, with limits."""

    def examine(given: Mapping[str, Any], _tell: Tell, _stop: threading.Event) -> Mapping[str, Any]:
        from autotune.service import asked

        _bound(given)
        found: Mapping[str, Any] = getattr(asked, work)(given)
        return found

    return examine


def _bound(asked: Mapping[str, Any]) -> None:
    """Limit the time and memory of this process; beyond them it ends."""
    seconds, most = int(asked["seconds"]), int(asked["bytes"])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (most, most))


def _devices(asked: Mapping[str, Any], _tell: Tell, _stop: threading.Event) -> Mapping[str, Any]:
    _list_apart(asked)
    from autotune import cluster, devices
    from autotune.pool import lock_key

    if asked["on"] is None:
        queues = [(lock_key(info), info) for info in devices.list_devices()]
        amiss = devices.diagnose()
    else:
        models, amiss = cluster.list_models(cluster.Address.parse(asked["on"]))
        queues = [(f"cluster {info.fingerprint}", replace(info, index=at)) for at, info in enumerate(models)]
    return {"devices": [{"queue": queue, "facts": asdict(info)} for queue, info in queues], "amiss": amiss}


WORKS = {"search": _search, "devices": _devices, **{work: _examine(work) for work in ("outline", "check", "default")}}
