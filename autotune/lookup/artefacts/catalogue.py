"""What is stored of a study: the best of each device and size, made concrete, and the default for all else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice, product
from operator import attrgetter
from typing import NamedTuple

from autotune.errors import AutotuneError, SpaceError, StudyError, UsageError
from autotune.identity import Choices, Configuration, ProblemKey, Size, in_order, size_order
from autotune.lookup.answer import Best, Match, best_in, table
from autotune.lookup.architecture import architecture
from autotune.lookup.losses import known_sizes
from autotune.lookup.records import Records, open_records
from autotune.store import device_of, locate, shown
from autotune.study import Buffer, Plan, Problem, Study, StudyText, as_begun, ends_of, problem_key
from autotune.text import LARGEST_SIZE, command, nothing_stored
from autotune.text import size as size_text

_MOST_PROBES = 64
"""How many sizes near a study's own are tried for defaults: three size names with four values each."""

_SMALL = 64
"""One of those four values is divisible by no number from 2 up to below this. Vectors and the elements that a work-item
takes are that long.
"""


@dataclass(frozen=True, slots=True)
class Entry:
    """A best with what it takes to launch it; `device` and `architecture` are empty for the study's default.

    `plan` calls each buffer by its name at the beginning of a run; `ends` says which buffer holds each output at the
    end.
    """

    best: Best
    problem: Problem
    plan: Plan
    ends: dict[str, str]
    architecture: str
    lost: tuple[int, ...] = (0,)
    """The loss of its best at the size of each entry of its device, in the order of these entries (lookup/losses.py).
    """

    @property
    def device(self) -> str:
        """The fingerprint of the device that it was measured on."""
        return self.best.measured_on


class Artefact(NamedTuple):
    """A file for programs: its text, how many bests it holds, and notes for whoever exports it."""

    text: str
    bests: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """A study with some choices: its entries by device and size, and its defaults, the study's own first.

    Each other default is the nearest valid configuration at a size with other divisors, where no default before it is
    valid. `without` counts the devices and sizes at which nothing stored can serve: no configuration passed, or none is
    the study's.
    """

    study: Study
    choices: Choices
    entries: tuple[Entry, ...]
    defaults: tuple[Entry, ...]
    without: int = 0
    changed: int = 0
    """How many devices and sizes were searched only with another text of the study or of its kernel."""
    refused: tuple[StudyError, ...] = ()
    """Why some stored bests are not entries, an error for each."""

    @property
    def all(self) -> tuple[Entry, ...]:
        """The entries, then the defaults."""
        return (*self.entries, *self.defaults)

    def keeping(self, places: Container[int]) -> Catalogue:
        """Return the catalogue with only the items of `all` at these places, and only the losses at the kept sizes."""
        entries = list[Entry]()
        for place, entry in enumerate(self.entries):
            own = (at for at, other in enumerate(self.entries) if other.device == entry.device)
            lost = tuple(loss for at, loss in zip(own, entry.lost, strict=True) if at in places)
            entries += [replace(entry, lost=lost)] * (place in places)
        defaults = (one for at, one in enumerate(self.defaults, len(self.entries)) if at in places)
        return replace(self, entries=tuple(entries), defaults=tuple(defaults))


def left_out(refused: Iterable[StudyError]) -> Iterator[str]:
    """Yield a line for each reason why bests are not entries."""
    for reason, count in Counter(map(str, refused)).items():
        yield f"left out: {count} of a device and size: {reason}"


def alike(catalogue: Catalogue) -> Iterator[str]:
    """Yield a line for each name that several models share: a program cannot tell these apart."""
    models: dict[str, dict[str, None]] = {}
    for entry in catalogue.entries:
        models.setdefault(entry.best.device_name, {})[entry.device] = None
    for name, called in models.items():
        if name and len(called) > 1:
            yield f"{', '.join(called)}: all named {name!r}: a program may get the best of any of them; -d chooses"


def zeroed(study: Study) -> list[str]:
    """Return the buffers that hold zeros when a run begins."""
    used = (study.arguments[name] for name in sorted(study.launched & study.arguments.keys()))
    return [one.name for one in used if isinstance(one, Buffer) and one.access == "zeroed"]


def collect(
    text: StudyText,
    choices: Choices,
    *,
    devices: Sequence[str] = (),
    sizes: Sequence[Size] = (),
    database: str | None = None,
    named: str = "",
) -> Catalogue:
    """Return the bests that are stored of a study exactly as it is now, of some `devices` (fingerprints) and `sizes`.

    `named` is what the user calls the study, for the command that searches what is missing. Raises UsageError if
    nothing is stored of what was asked for; StoreError; StudyError.
    """
    study, location = Study.from_text(text), locate(database)
    with open_records(location) as records:
        known = {fingerprint: (name, table(facts)) for fingerprint, name, facts in records.devices()}
        stored, others = _stored(text, choices, records)
        keys = sorted(stored, key=lambda key: (key.device, size_order(key.size)))
        wanted = [key for key in keys if (not devices or key.device in devices) and (not sizes or key.size in sizes)]
        missing = [key for key in _named(text, choices, devices, sizes, keys) if key not in keys]
        if missing or not wanted:
            size, device = (missing[0].size, missing[0].device) if missing else ({}, "")
            place = None if database is None else shown(database)
            typed = study.chosen(choices)
            search = command(
                "search", named or study.name, device=device or None, size=size, choices=typed, database=place
            )
            what = nothing_stored(study.name, size_text(size), device)
            if others and not keys:
                what += " as it is now, but of another version of it or its kernel"
            raise UsageError(what, where=str(location), hint=f"{search} measures it")
        entries, refused = list[Entry](), list[StudyError]()
        for key in wanted:
            best = best_in(records, str(location), text, key.size, key.choices, key.device, None, False)
            if best.match is Match.EXACT:
                name, facts = known.get(key.device, ("", {}))
                problem = Problem(study, key.size, key.choices, device_of(facts) if facts else None)
                try:
                    entries.append(_entry(problem, best, name, str(facts.get("compute_capability", ""))))
                except StudyError as error:  # at this size; other sizes may still be launched
                    refused.append(error)
        entries = [one for _, own in groupby(entries, attrgetter("device")) for one in _with_losses(list(own), records)]
    if refused and not entries:
        raise refused[0]
    if not entries:
        raise UsageError(f"no verified configuration is stored of {study.name}", where=str(location))
    changed = 0 if devices or sizes else others
    without = len(wanted) - len(entries) - len(refused)
    return Catalogue(study, choices, tuple(entries), tuple(_defaults(study, choices)), without, changed, tuple(refused))


def _entry(problem: Problem, best: Best, device_name: str, capability: str) -> Entry:
    """Return the entry of a best of a problem. Raises StudyError if no program could read its result."""
    plan, ends = _begun(problem, best.configuration)
    named = best._replace(device_name=device_name.strip())
    return Entry(named, problem, plan, ends, architecture(best.device, capability))


def _with_losses(entries: Sequence[Entry], records: Records) -> Iterator[Entry]:
    """Yield the entries of one device with what their bests lose at each other's sizes, as far as it is stored.

    Entries that have no best any more are left out: a search may have found them wrong meanwhile.
    """
    numbers = ((records.problem(one.problem.key._replace(device=one.device)), one) for one in entries)
    stored = {number: entry for number, entry in numbers if number is not None}
    known = known_sizes(records, [(number, entry.best.size) for number, entry in stored.items()], "")
    for own in known:
        yield replace(stored[own.number], lost=tuple(at.lost(own.best) for at in known))


def _stored(text: StudyText, choices: Choices, records: Records) -> tuple[list[ProblemKey], int]:
    """Return the stored problems of exactly this study, and how many more are stored only of another text of it."""
    asked = problem_key(text, {}, choices, "")
    found, others, sizes = list[ProblemKey](), list[ProblemKey](), text.table.get("sizes", {})
    for problem in records.alike(asked):
        size = in_order(table(problem.size), sizes)
        same = (problem.kernel_hash, problem.study_hash) == (asked.kernel_hash, asked.study_hash)
        if set(size) == set(sizes) and _are_sizes(size):
            (found if same else others).append(problem_key(text, size, choices, problem.device))
    return found, len({(key.device, size_order(key.size)) for key in others if key not in found})


def _are_sizes(size: Mapping[str, object]) -> bool:
    return all(type(value) is int and 1 <= value <= LARGEST_SIZE for value in size.values())


def _named(
    text: StudyText, choices: Choices, devices: Sequence[str], sizes: Sequence[Size], stored: Sequence[ProblemKey]
) -> list[ProblemKey]:
    """Return the problems that were asked for by name. A size without devices may be stored for any device."""
    if not sizes:
        there = {key.device for key in stored}
        return [problem_key(text, {}, choices, device) for device in devices if device not in there]
    if not devices:
        known = [key.size for key in stored]
        return [problem_key(text, size, choices, "") for size in sizes if size not in known]
    return [problem_key(text, size, choices, device) for size in sizes for device in devices]


def _defaults(study: Study, choices: Choices) -> Iterator[Entry]:
    """Yield the default configuration on an unknown device, and its replacements at other sizes.

    With a constraint such as `N % VECTOR == 0`, no configuration is valid everywhere. Yields nothing if the study's own
    default cannot be determined.
    """
    found = list[Entry]()
    ways = ((most,) if name in study.fixed else _near(most) for name, most in study.sizes.items())
    for values in islice(product(*ways), _MOST_PROBES):
        try:
            problem = Problem(study, dict(zip(study.sizes, values, strict=True)), choices)
            if any(_may_run(problem, one.best.configuration) for one in found):
                continue
            configuration = problem.default
            plan, ends = _begun(problem, configuration)
        except AutotuneError:
            if not found:
                return
            continue
        best = Best(study.name, configuration, Match.DEFAULT, (), "", problem.size, choices, options=plan.options)
        found.append(Entry(best, problem, plan, ends, ""))
        yield found[-1]


def _near(most: int) -> list[int]:
    """Return a size, the two below it, and the largest one that no small number but 1 divides."""
    sizes = range(most, 0, -1)
    alone = next(one for one in sizes if all(one % small for small in range(2, min(_SMALL, one))))
    return list(dict.fromkeys((*sizes[:3], alone)))


def _may_run(problem: Problem, configuration: Configuration) -> bool:
    try:
        problem.valid(configuration, problem.values)
    except SpaceError:
        return False
    return True


def _begun(problem: Problem, configuration: Configuration) -> tuple[Plan, dict[str, str]]:
    """Return a plan as a program launches it, and its ends. Raises StudyError if no result could be read."""
    plan = problem.plan(configuration)
    given = {one.name for one in problem.arguments.values() if isinstance(one, Buffer) and (one.reads or one.writes)}
    moved = ends_of(plan.arguments, given)
    return as_begun(plan), {one.name: moved.get(one.name, one.name) for one in problem.study.outputs}
