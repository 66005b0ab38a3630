"""The best of what is stored, if it is stored exactly as asked; nearest.py answers all other questions."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from autotune.errors import StoreError, UsageError
from autotune.identity import Choices, ProblemKey, Size, Value, digest, misfit, own_value
from autotune.lookup.records import Ranking, Records, Told, open_records
from autotune.ranking import RETIMED, Event, may_be_as_fast, median_interval
from autotune.store import locate
from autotune.study import StudyText, default_size, offered_choices, parameter_values, problem_key, space_hash
from autotune.text import clean, require_known

if TYPE_CHECKING:
    from autotune.lookup.alone import Alone
    from autotune.model import DeviceInfo

_CLOSEST = 20
"""How many of the next in rank are looked at for ties."""


LEFT_ASIDE = "from before a search, here or imported, started over: nothing has passed with this driver since"
"""The note on an answer of an older generation than the newest."""


class Match(StrEnum):
    """How a looked-up best relates to the question, nearest first."""

    EXACT = "exact"
    OTHER_DRIVER = "other driver"
    CHANGED = "changed"  # the text of the kernel or of the study is not the one that was measured
    NEAREST_SIZE = "nearest size"
    SAME_ARCHITECTURE = "same architecture"
    SAME_VENDOR = "same vendor"
    DEFAULT = "default"  # nothing stored: the study's default configuration


class Launched(NamedTuple):
    """One kernel launch: entry, global and local size in work-items (None: the driver's choice), offset of the ids."""

    entry: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...] | None
    offset: tuple[int, ...] | None = None

    def plain(self) -> dict[str, Any]:
        """Return the launch as JSON and TOML show it, with the keys of `export --format table`."""
        return {"kernel": self.entry, "global": self.global_size, "local": self.local_size, "offset": self.offset}


class Best(NamedTuple):
    """The answer: a configuration, how it matches, and where it comes from.

    `device`, `size` and `choices` are those asked for; `measured_on`, `measured_size`, `driver` and `measured` (an ISO
    instant) describe the measurement. Times are nanoseconds per run: the median of `runs` samples and its interval,
    which holds in `ranking.confidence(runs)` per cent of cases.
    `ties` counts the other configurations that cannot be told from it. `trials` counts the finished trials that it is
    the best of: those of its problem from its generation on. That generation began with the last `--fresh` after which
    a configuration has passed.
    `options` are the build options: a `-D` for each choice, parameter and computed define, then the study's flags.
    `flops` (operations per run) and `launches` (each kernel launch of a run, in order) are filled if they are stored or
    were asked for.
    """

    study: str
    configuration: Mapping[str, Value]
    match: Match
    notes: tuple[str, ...]
    device: str
    size: Size
    choices: Choices
    time_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    runs: int = 0
    measured_on: str = ""
    device_name: str = ""
    measured_size: Size | None = None
    driver: str = ""
    measured: str = ""
    ties: int = 0
    trials: int = 0
    database: str = ""
    options: tuple[str, ...] = ()
    flops: float | None = None
    launches: tuple[Launched, ...] = ()

    @property
    def defines(self) -> dict[str, str]:
        """The value of each `-D` among the options by its name, as the compiler gets it."""
        found = (option[2:].partition("=") for option in self.options if option.startswith("-D"))
        return {name: value if equals else "1" for name, equals, value in found}


class Question(NamedTuple):
    """What is asked, and of which records. `device` is the device itself, or None if it was not looked at."""

    text: StudyText
    key: ProblemKey
    values: Mapping[str, Any]  # each parameter's
    records: Records
    device: DeviceInfo | None
    database: str
    driver: str  # the device's; "" if it was not looked at
    left_out: list[str]  # why each stored configuration that does not belong to the study is not served


def best(
    text: StudyText,
    size: Size,
    choices: Choices,
    fingerprint: str,
    *,
    database: str | None = None,
    device: DeviceInfo | None = None,
    whole: bool = False,
) -> Best:
    """Return the best stored configuration of a study at a size, with choices, on a device model.

    Give `device` if the device itself was looked at: only then is its driver compared. If nothing stored can answer,
    the study's default configuration is returned and the match says `default`. `whole` also fills in the launches and
    the operations per run if they are not stored. Raises StoreError, StudyError, SpaceError, DeviceError, and
    UsageError if a size or a choice is not exactly the study's.
    """
    offered = offered_choices(text)
    for what, given, known in (("size", size, default_size(text)), ("choice", choices, offered)):
        require_known(what, given, known)
        if missing := [name for name in known if name not in given]:
            raise UsageError(f"no value for the {what} {missing[0]!r}", hint=f"give all of {', '.join(known)}")
    choices = {name: own_value(value, offered[name]) for name, value in choices.items()}
    location = locate(database)
    with open_records(location) as records:
        return best_in(records, str(location), text, size, choices, fingerprint, device, whole)


def best_in(
    records: Records,
    database: str,
    text: StudyText,
    size: Size,
    choices: Choices,
    fingerprint: str,
    device: DeviceInfo | None,
    whole: bool,
) -> Best:
    """Return the best from open records; size and choices must be the study's."""
    key = problem_key(text, size, choices, fingerprint)
    driver = "" if device is None else clean(device.driver)
    asked = Question(text, key, parameter_values(text), records, device, database, driver, [])
    found = _exact(asked, whole)
    if found is None:
        from autotune.lookup.nearest import answer

        found = answer(asked, whole)
    return found


def stored_devices(database: str | None) -> list[tuple[str, str]]:
    """Return fingerprint and name of every device in the database, oldest first, each pair once."""
    with open_records(locate(database)) as records:
        return list(dict.fromkeys((fingerprint, name) for fingerprint, name, _ in records.devices()))


def stored_device(fingerprint: str, database: str | None) -> DeviceInfo | None:
    """Return a device as the database last described it, or None if it is not stored. Raises StoreError."""
    location = locate(database)
    with open_records(location) as records:
        return device_in(records, fingerprint, str(location))


def device_in(records: Records, fingerprint: str, where: str) -> DeviceInfo | None:
    """Return what `stored_device` does, from open records; errors name the database as `where`."""
    from autotune.store import device_of

    facts = facts_in(records, fingerprint)
    try:
        return device_of(facts) if facts else None
    except StoreError as error:
        error.hint = "-d INDEX asks the device itself"
        raise error.at(f"{where}: {fingerprint}") from None


def facts_in(records: Records, fingerprint: str) -> dict[str, Any]:
    """Return what was last stored of a device; nothing if it is not stored."""
    facts = [facts for stored, _, facts in records.devices() if stored == fingerprint]
    return table(facts[-1]) if facts else {}


def _exact(asked: Question, whole: bool) -> Best | None:
    """Answer if the fastest of exactly this problem was searched under these rules, with its options; else None."""
    problem = asked.records.problem(asked.key)
    if problem is None:
        return None
    ranking = asked.records.ranking(problem, asked.driver)
    if not ranking.entries:
        return None
    told = asked.records.told(problem, ranking.entries[0])
    stored = table(told.configuration)
    if misfit(asked.values, stored) or table(told.environment).get("space") != space_hash(asked.text):
        return None
    configuration = {name: stored[name] for name in asked.values}
    options, flops = built(asked, configuration, told)
    launches = _launches(asked.text.table, table(told.made))
    counts = "flops" in (asked.text.table.get("work") or {})
    if options is None or (whole and (not launches or (counts and flops is None))):
        return None
    best = found(asked, problem, asked.key, Match.EXACT, configuration, told, ranking)
    return best._replace(options=options, flops=flops, launches=launches)


def built(
    asked: Question, configuration: Mapping[str, Value], told: Told
) -> tuple[tuple[str, ...] | None, float | None]:
    """Return the build options and the operations per run that are stored with a trial of exactly this problem.

    Each is None if it is not stored, or if this study cannot have made it: anyone who can write to the database decides
    what is stored. The flags must be the study's own, and the `-D`s must have names of the study.
    """
    study, made = asked.text.table, table(told.made)
    known = [f"-D{name}={value}" for name, value in {**asked.key.choices, **configuration}.items()]
    formulas = {name: str(formula) for name, formula in (study.get("work") or {}).items()}
    flops = made.get("flops") if made.get("work") == formulas else None
    if not isinstance(flops, int | float) or not 0 <= flops < 1e300:
        flops = None
    if not study.get("defines") and not study.get("options"):
        return tuple(known), flops
    options = made.get("options")
    if not isinstance(options, list) or options[: len(known)] != known:
        return None, flops
    rest = list(options[len(known) :])
    for name in study.get("defines") or ():
        option = str(rest.pop(0)) if rest else ""
        label, _, value = option.partition("=")
        if label != f"-D{name}" or not _is_word(value):
            return None, flops
    # The order is the study's: each `in` continues where the last one ended.
    flags = iter(entry.get("flag") for entry in study.get("options") or ())
    if not all(option in flags and option.isprintable() for option in rest):
        return None, flops
    return tuple(options), flops


def _launches(study: Mapping[str, Any], made: Mapping[str, Any]) -> tuple[Launched, ...]:
    """Return the launches that are stored with a trial; none if loops repeat some, or if they are not the study's."""
    named = {launch.get("entry") for launch in study.get("launch") or ()}
    try:
        stored, offsets = made["launches"], made.get("offsets") or [None] * len(made["launches"])
        found = [
            launched(entry, extents, local, offset or None)
            for (entry, extents, local), offset in zip(stored, offsets, strict=True)
        ]
    except (KeyError, TypeError, ValueError):
        return ()
    return tuple(found) if "times" not in made and all(one.entry in named for one in found) else ()


def launched(entry: str, extents: Sequence[int], local: Sequence[int] | None, offset: Sequence[int] | None) -> Launched:
    """Return a launch from values that others wrote. Raises TypeError, ValueError if they are not a launch."""
    for values, least in ((extents, 1), (local, 1), (offset, 0)):
        if values is not None and (
            not 1 <= len(values) <= 3 or any(type(value) is not int or value < least for value in values)
        ):
            raise ValueError(f"{values!r:.60} are no extents")
    return Launched(entry, tuple(extents), tuple(local) if local else None, tuple(offset) if offset else None)


def _is_word(value: str) -> bool:
    """Whether a stored value of a computed define is a number or a name; any other value is computed anew."""
    return value.isascii() and value.translate(_NUMERIC).isalnum() and len(value) <= 64


_NUMERIC = dict.fromkeys(map(ord, "_.+-"))


def _ties(asked: Question | Alone, problem: int, ranked: Sequence[Event], best: Told) -> int:
    """Return how many of the next in rank may be as fast as the first."""
    if ranked[0].kind != RETIMED:
        return 0
    rivals = [asked.records.told(problem, rival) for rival in ranked[1:_CLOSEST] if rival.kind == RETIMED]
    return sum(
        may_be_as_fast(rival.samples_ns, best.samples_ns, in_turns=rival.taken == best.taken != "") for rival in rivals
    )


def found(
    asked: Question | Alone,
    problem: int,
    key: ProblemKey,
    match: Match,
    configuration: Mapping[str, Value],
    told: Told,
    ranking: Ranking,
    place: int = 0,
) -> Best:
    """Return the ranked time at `place` as an answer; it is stored for the problem `key`, of number `problem`."""
    ranked = ranking.entries[place:]
    entry, notes = ranked[0], []
    if digest(configuration) != entry.configuration:
        raise ValueError("a configuration is not the one that it is ranked as")
    if key.device == asked.key.device and not asked.driver:
        notes.append(f"measured with driver {entry.driver}; the device was named by its model, and no driver compared")
    elif key.device == asked.key.device and entry.driver != asked.driver:
        notes.append(f"measured with driver {entry.driver}; this device now has {asked.driver}")
        match = Match.OTHER_DRIVER if match is Match.EXACT else match
    if entry.generation < ranking.newest:
        notes.append(LEFT_ASIDE)
    interval = median_interval(told.samples_ns)
    ties = _ties(asked, problem, ranked, told)
    if ties:
        others = "one other configuration is" if ties == 1 else f"{ties} other configurations are"
        notes.append(f"a tie: {others} as fast within the interval")
    names = {fingerprint: name for fingerprint, name, _ in asked.records.devices()}
    return Best(
        asked.key.study,
        configuration,
        match,
        (*notes, *left_out(asked)),
        asked.key.device,
        asked.key.size,
        asked.key.choices,
        time_ns=entry.time_ns,
        interval_ns=interval,
        runs=len(told.samples_ns),
        measured_on=key.device,
        device_name=names.get(key.device, ""),
        measured_size={name: key.size[name] for name in asked.key.size},
        driver=entry.driver,
        measured=told.taken,
        ties=ties,
        trials=asked.records.trials(problem, ranking.generation),
        database=asked.database,
    )


def table(text: str) -> dict[str, Any]:
    """Return a stored JSON object, or an empty one if the text is not a JSON object."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def left_out(asked: Question | Alone) -> tuple[str, ...]:
    """Return the note on the stored configurations that were not served."""
    if not asked.left_out:
        return ()
    count = len(asked.left_out)
    which = "a stored configuration is" if count == 1 else f"{count} stored configurations are"
    return (f"{which} left out, not being of this study: {asked.left_out[0]}",)
