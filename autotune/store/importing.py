"""Store exported lines: all of them or none.

Lines are checked first, with nothing locked, and wait in a temporary file; then all are stored in one short
transaction, so that a search that runs at the same time waits for seconds at most.
"""

from __future__ import annotations

import io
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import IO, Any, NamedTuple

from sqlalchemy import Connection, insert, select, update

from autotune.errors import StoreError
from autotune.identity import ProblemKey, digest, key_columns
from autotune.model import DeviceInfo, Measurement, Outcome, Trial, with_most_runs
from autotune.store import queries, standings
from autotune.store.fields import measurement_columns, trial_columns
from autotune.store.interchange import HINT, Line, Retiming, parsed
from autotune.store.location import CAME_IN, IMPORTED, TIMED_ELSEWHERE
from autotune.store.records import UNFINISHED, Columns, device_columns, device_of, mapping, now, ordered, pages
from autotune.store.schema import problem_key, problems, retimings, searches, trials

MOST_LINE = 2**24
"""The most characters of a line with one trial: thousands of samples and a build log need fewer."""


class Incoming(NamedTuple):
    """What the lines of one search share: its problem, its devices as told and as columns, and its own columns."""

    problem: dict[str, str]
    facts: list[dict[str, Any]]
    devices: list[dict[str, str]]
    columns: dict[str, Any]
    where: str  # its first line


class _Waiting(NamedTuple):
    """One line in the temporary file: its place in the input, its trial and the trial's re-timings as columns."""

    where: str
    search: str
    device_number: int | None
    trial: dict[str, Any]
    retimings: list[dict[str, Any]]


class _Place(NamedTuple):
    """The numbers of a search, its problem and its devices."""

    search: int
    problem: int
    devices: list[int]


@dataclass(slots=True)
class _Changed:
    """What is new in one problem: the configurations, and the number of finished trials of each search."""

    configurations: set[str] = field(default_factory=set)
    finished: Counter[int] = field(default_factory=Counter)


def check(
    lines: Iterable[str], waiting: IO[str], source: str = "", go_on: Callable[[], None] = lambda: None
) -> dict[str, Incoming]:
    """Write the lines to `waiting` as columns; return their searches by uuid. Raises StoreError at the first bad line.

    `source` is the name of the lines' file, for messages. `go_on` is called before each line, and may raise to give up.
    """
    found: dict[str, Incoming] = {}
    for number, text in enumerate(_bounded(lines), 1):
        go_on()
        where = f"{source}:{number}" if source else f"line {number}"
        if len(text) > MOST_LINE:
            what = f"is longer than {MOST_LINE:,} characters, so not a line of autotune export"
            raise StoreError(what, where=where, hint="nothing was imported")
        if text.strip():
            line, trial = parsed(text, where)
            found[line.search.uuid] = _search(line, where, found.get(line.search.uuid))
            rows = [_retiming(entry) for entry in line.retimings]
            entry = _Waiting(where, line.search.uuid, line.device_number, _columns(line, trial), rows)
            waiting.write(json.dumps(entry) + "\n")
    return found


def _bounded(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines; from a file, a too long line only in part, as much as shows that it is too long."""
    if isinstance(lines, io.TextIOBase):
        while line := lines.readline(MOST_LINE + 1):
            yield line
    else:
        yield from lines


def foreign(key: ProblemKey, device: DeviceInfo | None, told: Mapping[str, str]) -> tuple[str, Incoming]:
    """Return a search for a file of another tool, with its uuid: the same for a later file that continues this one."""
    uuid = digest([IMPORTED, key_columns(key), *(told.get(name, "") for name in ("format", "device", "kernel"))])
    columns = {
        "uuid": uuid,
        "generation": 0,
        "sampler": IMPORTED,
        "seed": None,
        "environment": ordered(told),
        "started": now(),
        "ended": now(),
        "reason": IMPORTED,
    }
    devices = [] if device is None else [device_columns(device)]
    return uuid, Incoming(key_columns(key), [], devices, columns, told.get("file", ""))


def wait(search: tuple[str, Incoming], trials: Iterable[Trial], waiting: IO[str]) -> dict[str, Incoming]:
    """Write another tool's trials to `waiting` as columns. Equal trials in a file remain separate trials."""
    uuid, found = search
    seen: Counter[str] = Counter()
    for trial in trials:
        name = digest([uuid, trial.configuration, trial.outcome, trial.time_ns, trial.origin and trial.origin["entry"]])
        seen[name] += 1
        columns = {"uuid": digest([name, seen[name]]), **trial_columns(trial)}
        entry = _Waiting(found.where, uuid, 0 if found.devices else None, columns, [])
        waiting.write(json.dumps(entry) + "\n")
    return {uuid: found}


def store(
    connection: Connection, waiting: IO[str], found: Mapping[str, Incoming], go_on: Callable[[], None] = lambda: None
) -> int:
    """Store the waiting trials that are new; return how many were. Raises StoreError if one contradicts a stored one.

    `go_on` is called now and then, and may raise to give up.
    """
    waiting.seek(0)
    places: dict[str, _Place] = {}
    changed: defaultdict[int, _Changed] = defaultdict(_Changed)
    lines = (_Waiting(*json.loads(line)) for line in waiting)
    new = 0
    for page in pages(lines):
        go_on()
        new += _store_page(connection, page, found, places, changed)
    for problem, change in sorted(changed.items()):  # always in the same order, because each is locked
        go_on()
        standings.follow(connection, problem, change.configurations, change.finished)
    return new


def _search(line: Line, where: str, known: Incoming | None) -> Incoming:
    """Return the search of a line. Raises StoreError if the line contradicts earlier lines of the same search."""
    problem = key_columns(
        ProblemKey(line.study, line.kernel_hash, line.study_hash, line.device, line.size, line.choices)
    )
    if known is None:
        columns = line.search.model_dump(exclude={"devices"}) | {"environment": ordered(line.search.environment)}
        known = Incoming(problem, line.search.devices, _devices(line, where), columns, where)
    _require_one_problem(problem, known.problem, where, f"the same search in {known.where}")
    if known.facts != line.search.devices:
        _devices(line, where)  # raises a better message if they are no devices at all
        raise StoreError(f"search.devices: not those of the same search in {known.where}", where=where, hint=HINT)
    if line.device_number is not None and line.device_number >= len(known.devices):
        what = f"device_number: {line.device_number} is not one of its {len(known.devices)} devices"
        raise StoreError(what, where=where, hint=HINT)
    if known.columns["ended"] is None:
        known.columns.update(ended=line.search.ended, reason=line.search.reason)
    return known


def _require_one_problem(here: Mapping[str, str], there: Columns, where: str, which: str) -> None:
    """Raise StoreError if a line belongs to another problem than its search."""
    for name, value in here.items():
        if there[name] != value:
            raise StoreError(f"{name}: not that of {which}", where=where, hint=HINT)


def _devices(line: Line, where: str) -> list[dict[str, str]]:
    try:
        return [device_columns(device_of(facts), told=facts) for facts in line.search.devices]
    except StoreError as error:
        error.hint = HINT
        raise error.at(f"{where}: search.devices") from None


def _columns(line: Line, trial: Trial) -> dict[str, Any]:
    marked = replace(trial, environment={**trial.environment, CAME_IN: 1})
    return {"uuid": line.uuid, **trial_columns(marked)}


def _retiming(entry: Retiming) -> dict[str, Any]:
    measured = Measurement(tuple(entry.samples_ns), tuple(entry.warmup_ns), entry.cache)
    return {"uuid": entry.uuid, "driver": entry.driver, "taken": entry.taken, **measurement_columns(measured)}


def _store_page(
    connection: Connection,
    page: Sequence[_Waiting],
    found: Mapping[str, Incoming],
    places: dict[str, _Place],
    changed: defaultdict[int, _Changed],
) -> int:
    """Store a page with few statements, not a few for each line; return the number of new trials. Updates `changed`."""
    uuids = dict.fromkeys(entry.trial["uuid"] for entry in page)
    here: dict[str, Any] = {row["uuid"]: row for row in queries.of_uuids(connection, trials, uuids)}
    new: dict[str, dict[str, Any]] = {}
    problem_of: dict[str, int] = {}
    later: list[dict[str, Any]] = []
    for entry in page:
        if entry.search not in places:
            places[entry.search] = _store_search(connection, entry.search, found[entry.search])
        place = places[entry.search]
        device_id = None if entry.device_number is None else place.devices[entry.device_number]
        columns = entry.trial | {"search_id": place.search, "device_id": device_id}
        uuid, before = columns["uuid"], here.get(columns["uuid"])
        if found[entry.search].columns["sampler"] != IMPORTED:
            problem_of[uuid] = place.problem
        if before is None or uuid in new:
            new[uuid] = columns if before is None else {**before, **_news(before, columns, entry.where)}
            here[uuid] = new[uuid]
        elif news := _news(before, columns, entry.where):
            connection.execute(update(trials).where(trials.c.uuid == uuid).values(news))
            here[uuid] = {**before, **news}
            if news is columns:
                later.append(columns)
    if new:
        connection.execute(insert(trials), list(new.values()))
    ids = {row["uuid"]: row["id"] for row in queries.of_uuids(connection, trials, uuids)}
    again = _store_retimings(connection, page, ids)
    for uuid, names in again.items():
        _mark(connection, here[uuid], names)
    ended = [*new.values(), *later]
    for columns in [*ended, *(here[uuid] for uuid in again)]:
        if problem := problem_of.get(columns["uuid"]):
            changed[problem].configurations.add(columns["configuration_hash"])
    for columns in ended:
        if problem := problem_of.get(columns["uuid"]):
            changed[problem].finished[columns["search_id"]] += columns["outcome"] not in UNFINISHED
    return len(new)


_TOLD = {Outcome.PENDING.value: 0, Outcome.LOST.value: 1}
"""How much an outcome tells about a trial's end; all other outcomes (2) tell it."""


def _news(before: Any, columns: dict[str, Any], where: str) -> dict[str, Any]:
    """Return what new columns of a trial add to the known ones.

    This is all of them if they tell more about its end, else the number of verified runs if it is larger. Raises
    StoreError if they are from two different trials.
    """
    known, told = (_TOLD.get(row["outcome"], 2) for row in (before, columns))
    fixed = ["search_id", "configuration_hash"]
    if known == told == 2:
        fixed += ["outcome", "samples_ns"]
    if any(before[name] != columns[name] for name in fixed):
        raise StoreError("uuid: another trial has the same", where=where, hint=HINT)
    if known < told:
        return columns
    environment, other = (mapping(row["environment"]) for row in (before, columns))
    told_more = with_most_runs(environment, other)
    return {} if told_more is environment else {"environment": ordered(told_more)}


def _store_retimings(connection: Connection, page: Sequence[_Waiting], ids: Mapping[str, int]) -> dict[str, list[str]]:
    """Store the new re-timings of a page; return their uuids by the uuids of their trials."""
    wanted: dict[str, dict[str, Any]] = {}
    places: dict[str, str] = {}
    for entry in page:
        for columns in entry.retimings:
            row = columns | {"trial_id": ids[entry.trial["uuid"]]}
            if wanted.setdefault(columns["uuid"], row)["trial_id"] != row["trial_id"]:
                raise StoreError("retimings: another trial has the same uuid", where=entry.where, hint=HINT)
            places[columns["uuid"]] = entry.where
    for known in queries.of_uuids(connection, retimings, [*wanted]):
        if wanted.pop(known["uuid"])["trial_id"] != known["trial_id"]:
            raise StoreError("retimings: another trial has the same uuid", where=places[known["uuid"]], hint=HINT)
    if wanted:
        connection.execute(insert(retimings), list(wanted.values()))
    names = {number: uuid for uuid, number in ids.items()}
    found: dict[str, list[str]] = {}
    for name, row in wanted.items():
        found.setdefault(names[row["trial_id"]], []).append(name)
    return found


def _mark(connection: Connection, trial: Any, retimings: Sequence[str]) -> None:
    """Mark in a trial that was measured here which of its re-timings were not."""
    environment = mapping(trial["environment"])
    if CAME_IN not in environment:
        known = json.loads(str(environment.get(TIMED_ELSEWHERE, "[]")))
        marked = ordered({**environment, TIMED_ELSEWHERE: ordered([*known, *retimings])})
        connection.execute(update(trials).where(trials.c.uuid == trial["uuid"]).values(environment=marked))


def _store_search(connection: Connection, uuid: str, search: Incoming) -> _Place:
    """Return the numbers of a search, its problem and its devices; store them if they are new."""
    joined = select(searches, *problem_key).join(problems)
    known = connection.execute(joined.where(searches.c.uuid == uuid)).mappings().first()
    if known is not None:
        _require_one_problem(search.problem, known, search.where, "the same search in the database")
        silent = known["ended"] is None or known["reason"] == Outcome.LOST.value
        if silent and search.columns["ended"] is not None:
            ended = {name: search.columns[name] for name in ("ended", "reason")}
            connection.execute(update(searches).where(searches.c.id == known["id"]).values(ended))
        return _Place(known["id"], known["problem_id"], queries.device_numbers(connection, search.devices))
    columns = search.columns | {"problem_id": queries.existing(connection, problems, search.problem)}
    search_id = queries.inserted(connection, searches, columns)
    return _Place(search_id, columns["problem_id"], queries.use_devices(connection, search_id, search.devices))
