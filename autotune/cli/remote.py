"""`--server URL`: the same commands against a server of autotune."""

from __future__ import annotations

import math
import queue
import signal
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import typer

from autotune import text
from autotune.cli import interrupt, progress
from autotune.cli.options import assigned, assignments
from autotune.cli.output import announce, facts, say, stderr, warn, write, write_json
from autotune.cli.result import printing, told_rows, warn_of_throttling, what_next
from autotune.errors import UsageError
from autotune.identity import ProblemKey
from autotune.lookup import FORMATS, Match, flags, render
from autotune.model import PACE, Measurement, Outcome, Trial
from autotune.service import MOST_TRIALS as MOST_TRIALS
from autotune.service import Server, ServerAway, ServerRefuses, believed, failure_of, search_id, sent_text
from autotune.store import StoredTrial
from autotune.text import line
from autotune.tuner import Progress

_POLL_S = 0.2
"""How often, in seconds, a watched search checks whether Ctrl-C was typed."""


def server_at(url: str, database: str | None) -> Server:
    """Return the server that --server names. Raises UsageError if --db also names a database."""
    if database is not None:
        raise UsageError("--server and --db exclude each other", hint="leave one of them out")
    return Server(url, tell=say)


def print_best(
    server: Server, study: str, device: str | None, sizes: Sequence[str], choices: Sequence[str], shown: str
) -> None:
    """Print the best that a server knows, as `autotune best` does: rendered here, from checked values."""
    text.require_known("format", [shown], FORMATS, where="--format")
    best, notes = server.best_and_notes(study, device=device, size=sizes, choices=choices)
    write(render(best, shown))
    for note in notes:
        say(note)
    if shown == "defines" and (besides := flags(best)):
        say(f"note: measured with these further build options: {' '.join(besides)}")
    if best.match is not Match.EXACT:
        size, values = best.size if sizes else None, best.choices if choices else None
        command = text.command("search", study, device=device, size=size, choices=values, server=server.url)
        say(f"to measure it: {command}")


_AT_THE_SERVER = "leave it out; set it when the server is started: autotune serve"
_INSTEAD = {
    "--sizes": "send a search for each size: --size",
    "--on": f"{_AT_THE_SERVER} --on",
    "--at-most": "leave it out",
    "--allow-python": f"{_AT_THE_SERVER} --allow-python",
}


def search(
    url: str,
    database: str | None,
    study: str,
    typed: Mapping[str, Any],
    kept_here: Mapping[str, object],
    as_json: bool,
    again: str,
) -> None:
    """Have a server search, show its progress and print what it found. Ctrl-C stops the search there, in order.

    `typed` is the request as a server takes it, but with size, choices and values as texts; `again` are the options
    that are needed to continue the search. Raises UsageError if an option of `kept_here` is given: these are for
    searches on this machine.
    """
    for option in (name for name, given in kept_here.items() if given):
        raise UsageError(f"--server and {option} exclude each other", hint=_INSTEAD[option])
    server = server_at(url, database)
    asked = {
        **typed,
        "size": _size_of(server, study, typed["size"] or ()),
        "choices": _values_of(typed["choices"], "--choice"),
        "fix": _lists_of(typed["fix"]),
        "start": [_values_of([one], "--start") for one in typed["start"] or ()],
    }
    ended, stopped = _watched(server, _announced(server, server.submit(study, **asked)))
    with believed(server.url):
        best = (ended.get("result") or {}).get("best") or {}
        throttled, unverified = (str(best.get(what) or "") for what in ("throttled", "unverified"))
        state, failure = ended["state"], failure_of(ended, server.url)
        rows = _facts(ended, *_commands(server, study, typed, asked, again))
    warn_of_throttling(throttled)
    if unverified:
        warn(unverified)
    if as_json:
        write_json(ended)
    else:
        facts(rows)
    if stopped:
        raise typer.Exit(130)
    if state != "done":
        raise failure


def _announced(server: Server, queued: Mapping[str, Any]) -> str:
    """Say what was queued, and whose text of a study it uses; return the search's id."""
    name = search_id(queued, server.url)
    place = f"; {line(str(queued['place']))} before it" if queued.get("place") else ""
    of, on = (line(str(queued.get(what))) for what in ("study", "device"))
    announce(f"search {name} of {of} on {on} at {server.url}{place}")
    with believed(server.url):
        if (text_from := queued.get("study_from")) is not None:
            whose = sent_text(*(text_from[what] for what in ("asked_by", "created", "search")))
            say(f"note: {of} is not a study of the server; this is {whose}")
    return name


def _watched(server: Server, name: str) -> tuple[Mapping[str, Any], bool]:
    """Return the search when it has ended, and whether it was stopped from here.

    Ctrl-C stops it. If this command ends in another way, for example with its terminal, the search continues on the
    server, and a line says so.
    """
    news: queue.Queue[tuple[str, Mapping[str, Any]] | BaseException] = queue.Queue()
    threading.Thread(target=_listen, args=(server, name, news), daemon=True).start()
    stopped = False
    try:
        with progress.show(stderr(), lambda _: None) as report, interrupt.stopping([signal.SIGINT]) as stop:
            while True:
                if stop.is_set() and not stopped:
                    _stop(server, name)
                    stopped = True
                try:
                    told = news.get(timeout=_POLL_S)
                except queue.Empty:
                    continue
                if isinstance(told, ServerAway | ServerRefuses):  # for example if the token was revoked
                    say(f"this does not stop search {name}: {server.url}/searches/{name} shows its state")
                if isinstance(told, BaseException):
                    raise told
                if told[0] == "end":
                    return told[1], stopped
                if told[0] == "progress" and not stopped:
                    with believed(server.url):
                        done = _progress(told[1])
                    report(done)
    except KeyboardInterrupt:
        if not stopped:
            say(f"search {name} goes on at the server: {server.url}/searches/{name} stops it")
        raise


def _stop(server: Server, name: str) -> None:
    """Have a search stopped; if the server is away, say that it was not stopped."""
    try:
        server.stop(name)
    except ServerAway:
        say(f"search {name} was not stopped: it goes on once the server is back, and its page stops it there")
        raise


def _listen(server: Server, name: str, news: queue.Queue[tuple[str, Mapping[str, Any]] | BaseException]) -> None:
    """Pass on the events of a search, in a thread, because Ctrl-C does not interrupt a wait for the network."""
    try:
        for event in server.events(name):
            news.put(event)
    except BaseException as error:
        news.put(error)


def _progress(told: Mapping[str, Any]) -> Progress:
    best, failures = told.get("best"), told.get("failures") or {}
    trial = None
    if best is not None and isinstance(best.get("time_ns"), int | float):
        time_ns = _finite(best["time_ns"])
        pace = time_ns / (_finite(best.get("standing_ns", 0)) or time_ns)  # missing from older servers
        measured = Measurement((round(time_ns),))
        trial = Trial(best["configuration"], Outcome.OK, measurement=measured, environment={PACE: pace})
    return Progress(
        done=int(told["done"]),
        total=None if told["total"] is None else int(told["total"]),
        failures={outcome: int(failures[outcome]) for outcome in Outcome if outcome.value in failures},
        best=trial,
        elapsed_s=_finite(told["elapsed_s"]),
        rate=_finite(told["rate"]),
        left_s=None if told["left_s"] is None else _finite(told["left_s"]),
        phase=line(str(told["phase"])),
    )


def _finite(told: Any) -> float:
    """Return a number that a display can use. Raises ValueError for any other."""
    found = float(told)
    if not math.isfinite(found):
        raise ValueError(f"{told!r:.60} is not a number")
    return found


def _commands(
    server: Server, study: str, typed: Mapping[str, Any], asked: Mapping[str, Any], again: str
) -> tuple[str, str]:
    """Return the commands that continue a search, and that print its best."""

    def command(name: str) -> str:
        size, choices = asked["size"], asked["choices"]
        return text.command(name, study, device=typed["device"], size=size, choices=choices, server=server.url)

    return command("search") + again, printing(command("best"), bool(asked["fix"]))


def _facts(ended: Mapping[str, Any], again: str, best: str) -> list[tuple[str, str]]:
    result = ended.get("result")
    if not result:
        return [("search", line(f"{ended['state']}: {ended['reason']}"))]
    return [*told_rows(result), *what_next(result, again, best)]


def history(server: Server, told: Sequence[Mapping[str, Any]]) -> list[StoredTrial]:
    """Return rows of a server's history in the form of local ones."""
    with believed(server.url):
        return [_row(entry) for entry in told]


def _row(told: Mapping[str, Any]) -> StoredTrial:
    samples = tuple(map(int, told["samples_ns"]))
    if not all(0 <= ns < 2**63 for ns in samples):
        raise ValueError("samples_ns holds a value that is not a time")
    study, kernel, whole, device = (str(told[name]) for name in ("study", "kernel_hash", "study_hash", "device"))
    key = ProblemKey(study, kernel, whole, device, dict(told["size"]), dict(told["choices"]))
    begun, ended = (datetime.fromisoformat(told[name]) if told[name] else None for name in ("started", "finished"))
    trial = Trial(
        dict(told["configuration"]),
        Outcome(told["outcome"]),
        str(told["reason"]),
        measurement=Measurement(samples) if samples else None,
        driver=str(told["driver"]),
        started=begun,
        finished=ended,
        origin=None if told.get("origin") is None else {"format": str(told["origin"])},  # missing from older servers
    )
    return StoredTrial(key, trial, str(told["device_name"]), str(told["sampler"]))


def _size_of(server: Server, study: str, texts: Sequence[str]) -> dict[str, int]:
    """Return the sizes that --size sets. What a plain number sets depends on the study, which may be on the server."""
    if any(word.strip().isdecimal() for one in texts for word in one.split(",")):
        return text.parse_size(texts, server.sizes(study))
    found = {}
    for name, values in assignments(texts, "--size").items():
        if len(values) != 1 or not values[0].isdecimal() or len(values[0]) > 10:
            raise UsageError(f"{name} cannot be {','.join(values)!r}", where="--size", hint="write --size M=1024,N=512")
        found[name] = int(values[0])
    return found


def _values_of(texts: Sequence[str] | None, option: str) -> dict[str, Any]:
    """Return one value for each name that an option sets."""
    return {name: _value(value) for name, value in assigned(texts, option).items()}


def _lists_of(texts: Sequence[str] | None) -> dict[str, list[Any]]:
    """Return the values for each name that --fix sets."""
    return {name: [*map(_value, values)] for name, values in assignments(texts, "--fix").items()}


def _value(word: str) -> int | float | str:
    """A number if it reads as one. The study, which knows the types, may be only on the server."""
    for kind in (int, float):
        try:
            value = kind(word)
        except ValueError:
            continue
        return value if math.isfinite(value) and str(value) == word else word
    return word
