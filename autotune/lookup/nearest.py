"""The nearest stored result, if nothing is stored exactly as asked, and how it differs.

The study's expressions say what is valid and how it is built, so this loads the study's room.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from autotune.errors import SpaceError, StudyError
from autotune.identity import ProblemKey, Size, Value, in_order, misfit
from autotune.lookup.answer import (
    Best,
    Launched,
    Match,
    Question,
    built,
    device_in,
    facts_in,
    found,
    left_out,
    table,
)
from autotune.lookup.architecture import architecture, compute_units, kind, vendor
from autotune.lookup.losses import MOST_SIZES, by_loss, known_sizes, nearness
from autotune.lookup.records import Ranking, Told
from autotune.ranking import median
from autotune.study import default_configuration, space_hash

if TYPE_CHECKING:
    from autotune.study import Problem

_LEAST_LOSSES = 2
"""With fewer losses at stored sizes than this, nothing is said about other sizes."""


class _Candidate(NamedTuple):
    """A stored problem that may answer, and how it matches the question."""

    number: int
    key: ProblemKey
    match: Match


def answer(asked: Question, whole: bool) -> Best:
    """Return the nearest stored answer, or the study's default if nothing stored can answer."""
    return _Nearest(asked, whole).answer()


class _Nearest:
    """One question, answered by the problems that may answer it, nearest first."""

    def __init__(self, asked: Question, whole: bool) -> None:
        self.asked = asked
        self.key = asked.key
        self.whole = whole

    def answer(self) -> Best:
        """Answer from exactly the problem asked for, with any driver; else from the nearest; else with the default."""
        number = self.asked.records.problem(self.key)
        exact = None if number is None else self._answer(_Candidate(number, self.key, Match.EXACT))
        if exact is not None:
            return exact
        candidates, expected = self._by_loss(self._candidates())
        nearest = (best for candidate in candidates if (best := self._answer(candidate)) is not None)
        best = next(nearest, None) or self._default()
        if best.match is Match.NEAREST_SIZE:
            best = best._replace(notes=(*best.notes, *expected))
        return best

    def _by_loss(self, candidates: list[_Candidate]) -> tuple[list[_Candidate], tuple[str, ...]]:
        """Return the candidates, those of this device and text by what their bests are expected to lose here.

        Also return the note on what that order lost at the stored sizes, each left out in turn.
        """
        alike = [one for one in candidates if one.key._replace(size=self.key.size) == self.key]
        stored = ((one.number, one.key.size) for one in alike)
        known = known_sizes(self.asked.records, stored, self.asked.driver, MOST_SIZES)
        if len(known) < 2:
            return candidates, ()
        near = {one.number: one for one in alike}
        first = [near[one.number] for one in by_loss(known, self.key.size)]
        rest = iter(first)
        places = [next(rest) if one in first else one for one in candidates]
        losses = []
        for one in known:
            chosen = by_loss([other for other in known if other is not one], one.size)[0]
            losses += [one.times[chosen.best] / one.times[one.best] - 1] if chosen.best in one.times else []
        if len(losses) < _LEAST_LOSSES:
            return places, ()
        middle, worst = (f"{100 * max(0.0, loss):.0f} %" for loss in (median(losses), max(losses)))
        at = f"the median loss at {len(losses)} stored sizes, each left out in turn; {worst} at worst"
        return places, (f"expect a loss of about {middle}: {at}",)

    def _default(self) -> Best:
        """Answer with the study's default configuration or, if it is not valid here, with the nearest valid one."""
        configuration, where = default_configuration(self.asked.text), self.asked.database
        notes = [f"nothing in {where} can answer: this is the study's default configuration, not a measured one"]
        if not self._is_valid(configuration):
            configuration = dict(self.problem.default)
            notes.append(
                "the default itself is not valid at this size on this device: this is the valid one nearest to it"
            )
        return Best(
            self.key.study,
            configuration,
            Match.DEFAULT,
            (*notes, *left_out(self.asked)),
            self.key.device,
            self.key.size,
            self.key.choices,
            database=where,
            options=self._options(configuration),
            launches=self._launches(configuration),
        )

    def _answer(self, candidate: _Candidate) -> Best | None:
        """Answer with the fastest configuration of a stored problem that is valid for the one asked about."""
        for ranking, place in self._ranked(candidate.number):
            told = self.asked.records.told(candidate.number, ranking.entries[place])
            stored = self._of_study(told)
            if stored is not None and (self._is_known(candidate, told) or self._is_valid(stored)):
                best = found(self.asked, candidate.number, candidate.key, candidate.match, stored, told, ranking, place)
                best = best._replace(notes=(*self._differences(candidate.key), *best.notes))
                return self._built(best, candidate, told)
        return None

    def _ranked(self, number: int) -> Iterator[tuple[Ranking, int]]:
        """Yield each place in a problem's ranking, best first. All of it is read only after its first few."""
        few = self.asked.records.ranking(number, self.asked.driver)
        yield from ((few, place) for place in range(len(few.entries)))
        if not few.whole:
            whole = self.asked.records.ranking(number, self.asked.driver, whole=True)
            yield from ((whole, place) for place in range(len(few.entries), len(whole.entries)))

    def _built(self, best: Best, candidate: _Candidate, told: Told) -> Best:
        """Fill in the build options, the launches and, if this size was measured, the operations per run."""
        options, flops = None, None
        if candidate.match is Match.EXACT:
            options, flops = built(self.asked, best.configuration, told)
        if flops is None and self.whole and best.measured_size == best.size:  # another size's time is of other work
            flops = self.problem.flops(best.configuration)
        options = self._options(best.configuration) if options is None else options
        return best._replace(options=options, flops=flops, launches=self._launches(best.configuration))

    def _launches(self, configuration: Mapping[str, Value]) -> tuple[Launched, ...]:
        if not self.whole:
            return ()
        try:
            plan = self.problem.plan(configuration)
        except SpaceError:  # valid when it was searched, but not with the device or the driver of today
            return ()
        made = [Launched(one.entry, one.global_size, one.local_size, one.offset) for one in plan.launches]
        return tuple(made[place] for place in plan.sequence)

    def _options(self, configuration: Mapping[str, Value]) -> tuple[str, ...]:
        study = self.asked.text
        if not any(study.table.get(name) for name in ("defines", "options")):
            return tuple(f"-D{name}={value}" for name, value in {**self.key.choices, **configuration}.items())
        options: tuple[str, ...] = self.problem.plan(configuration).options
        for option in options:
            if not option.isprintable():
                raise StudyError(f"{option!r:.60} holds a control character", where=f"{study.path}: options")
        return options

    def _of_study(self, told: Told) -> dict[str, Value] | None:
        """Return a stored configuration in the study's order, or None if it does not belong to this study.

        Anyone who can write to the database, or whose results were imported, decides what is stored there.
        """
        try:
            stored = json.loads(told.configuration)
            reason = misfit(self.asked.values, stored)
        except (ValueError, RecursionError):
            reason = "it is not JSON"
        if reason:
            self.asked.left_out.append(reason)
            return None
        return {name: stored[name] for name in self.asked.values}

    def _is_known(self, candidate: _Candidate, told: Told) -> bool:
        """Return whether the same rules held when it was searched."""
        return candidate.match is Match.EXACT and table(told.environment).get("space") == space_hash(self.asked.text)

    def _differences(self, key: ProblemKey) -> list[str]:
        notes = []
        if key.device != self.key.device:
            notes.append(f"measured on {key.device}, asked for {self.key.device}")
        if dict(key.size) != dict(self.key.size):
            sizes = [" ".join(f"{name}={size[name]}" for name in self.key.size) for size in (key.size, self.key.size)]
            notes.append(f"measured at {sizes[0]}, asked for {sizes[1]}")
        if key.kernel_hash != self.key.kernel_hash:
            notes.append("the kernel has changed since it was measured")
        if key.study_hash != self.key.study_hash:
            notes.append(
                "the study (launches, arguments, options, reference or timing) has changed since it was measured"
            )
        return notes

    def _candidates(self) -> list[_Candidate]:
        """Return the other problems of this study with these choices that may answer, nearest first."""
        found = []
        for number, kernel, study, device, size in self.asked.records.alike(self.key):
            sizes = in_order(table(size), self.asked.text.table.get("sizes", {}))
            key = ProblemKey(self.key.study, kernel, study, device, sizes, self.key.choices)
            match = self._match(key)
            if key != self.key and match is not None and _is_size(key.size, self.key.size):
                found.append(_Candidate(number, key, match))
        return sorted(found, key=self._nearness)

    def _nearness(self, candidate: _Candidate) -> tuple[int, float, bool, float, tuple[int, ...]]:
        key = candidate.key
        changed = (key.kernel_hash, key.study_hash) != (self.key.kernel_hash, self.key.study_hash)
        units = [max(1, compute_units(device)) for device in (key.device, self.key.device)]
        distance, smaller = nearness(key.size, self.key.size)
        return list(Match).index(candidate.match), distance, changed, abs(math.log2(units[0] / units[1])), smaller

    def _match(self, key: ProblemKey) -> Match | None:
        asked, here = self.key.device, key.device
        if here == asked:
            return Match.CHANGED if dict(key.size) == dict(self.key.size) else Match.NEAREST_SIZE
        if (vendor(here), kind(here)) != (vendor(asked), kind(asked)):
            return None
        alike = architecture(here, self._capability(here))
        same = alike and alike == architecture(asked, self._capability(asked))
        return Match.SAME_ARCHITECTURE if same else Match.SAME_VENDOR

    def _capability(self, fingerprint: str) -> str:
        device = self.asked.device
        if device is not None and fingerprint == device.fingerprint:
            return device.compute_capability
        return str(facts_in(self.asked.records, fingerprint).get("compute_capability", ""))

    def _is_valid(self, configuration: Mapping[str, Value]) -> bool:
        try:
            self.problem.plan(configuration)
        except SpaceError:
            return False
        return True

    @cached_property
    def problem(self) -> Problem:
        """The study at this size on this device: as looked at here, else as last stored, else a typical device."""
        from autotune.study import Problem

        device = self.asked.device or device_in(self.asked.records, self.key.device, self.asked.database)
        return Problem(self.asked.text.study, self.key.size, self.key.choices, device)


def _is_size(size: Mapping[str, Any], asked: Size) -> bool:
    """Return whether a size has whole numbers of at least 1 under exactly the names asked for."""
    return set(size) == set(asked) and all(type(value) is int and value >= 1 for value in size.values())
