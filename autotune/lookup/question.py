"""One question to one open database, answered as nearly as what is stored allows."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from autotune.errors import SpaceError, StoreError, StudyError
from autotune.identity import ProblemKey, Size, Value, digest, key_columns, misfit
from autotune.lookup import ranking
from autotune.lookup.answer import Best, Match
from autotune.lookup.reader import Reader
from autotune.ranking import Event, median, median_interval
from autotune.study.library import StudyText, default_configuration, parameter_values, space_hash

if TYPE_CHECKING:
    from autotune.model import DeviceInfo
    from autotune.study.problem import Problem


class _Candidate(NamedTuple):
    """A stored problem that may answer, and how far it is from the question."""

    number: int
    key: ProblemKey
    match: Match
    distance: float


_SAME = """
SELECT id FROM problems WHERE study = :study AND kernel_hash = :kernel_hash AND study_hash = :study_hash
AND device = :device AND size = :size AND choices = :choices
"""
_ALIKE = """
SELECT id, kernel_hash, study_hash, device, size FROM problems
WHERE study = :study AND choices = :choices ORDER BY id DESC
"""
_COUNT = """
SELECT COUNT(*) FROM searches s JOIN trials t ON t.search_id = s.id
WHERE s.problem_id = :problem AND t.outcome NOT IN ('pending', 'lost')
"""
DEVICES = "SELECT fingerprint, name, facts FROM devices ORDER BY id"


class Question:
    """One question to one open database."""

    def __init__(
        self, text: StudyText, key: ProblemKey, reader: Reader, device: DeviceInfo | None, database: str, rated: bool
    ) -> None:
        self.text = text
        self.key = key
        self.reader = reader
        self.device = device
        self.driver = device.driver if device is not None else ""
        self.database = database
        self.rated = rated
        self.values = parameter_values(text)
        self.computes = any(text.table.get(name) for name in ("defines", "options"))
        self.left_out: list[str] = []  # why each stored configuration that is none of the study's is not served

    def exact(self) -> Best | None:
        """Answer from the very problem asked for, whatever the driver."""
        for (number,) in self.reader.rows(_SAME, key_columns(self.key)):
            return self._answer(_Candidate(number, self.key, Match.EXACT, 0.0))
        return None

    def nearest(self) -> Best | None:
        """Answer from the nearest problem that has a configuration valid for this one."""
        return next((found for each in self._candidates() if (found := self._answer(each)) is not None), None)

    def default(self) -> Best:
        """Answer with the study's default configuration or, where it is not valid here, the valid one nearest to it."""
        configuration = default_configuration(self.text)
        notes = [
            f"nothing in {self.database} can answer: this is the study's default configuration, not a measured one"
        ]
        if not self._is_valid(configuration):
            configuration = dict(self.problem.default)
            notes.append(
                "the default itself is not valid at this size on this device: this is the valid one nearest to it"
            )
        return self._best(configuration, Match.DEFAULT, notes)

    def built(self, found: Best) -> Best:
        """Fill in the build options and, where asked for and this size was measured, the operations per run."""
        flops = None
        if self.rated and found.measured_size == found.size:  # another size's time says nothing of this one's work
            flops = self.problem.flops(found.configuration)
        return found._replace(options=self._options(found.configuration), flops=flops)

    def _options(self, configuration: Mapping[str, Value]) -> tuple[str, ...]:
        if not self.computes:
            return tuple(f"-D{name}={value}" for name, value in {**self.key.choices, **configuration}.items())
        options: tuple[str, ...] = self.problem.plan(configuration).options
        for option in options:
            if not option.isprintable():
                raise StudyError(f"{option!r:.60} holds a control character", where=f"{self.text.path}: options")
        return options

    def _answer(self, candidate: _Candidate) -> Best | None:
        """Answer with the fastest configuration of a stored problem that is valid for the one asked about."""
        ranked = ranking.rank(self.reader, candidate.number, self.driver)
        for position, entry in enumerate(ranked):
            stored = self._of_study(entry)
            if stored is not None and (self._is_known(candidate, entry) or self._is_valid(stored)):
                return self._found(candidate, ranked[position:], stored)
        return None

    def _of_study(self, entry: Event) -> dict[str, Value] | None:
        """Return a stored configuration in the study's order; None where it is none of this study.

        Whoever can write to the database, or had something imported, decides what is stored there.
        """
        try:
            stored = ranking.configuration(self.reader, entry)
        except (ValueError, RecursionError):
            stored, reason = {}, "it is no JSON"
        else:
            reason = misfit(self.values, stored)
        if reason:
            self.left_out.append(reason)
            return None
        if digest(stored) != entry.configuration:
            raise ValueError("a configuration is not the one that it is ranked as")
        return {name: stored[name] for name in self.values}

    def _is_known(self, candidate: _Candidate, entry: Event) -> bool:
        """True where the same rules held when it was searched. A second look costs nothing where they are loaded."""
        if candidate.match is not Match.EXACT or self.computes or self.rated:
            return False
        return ranking.space(self.reader, entry) == space_hash(self.text)

    def _found(self, candidate: _Candidate, ranked: list[Event], configuration: Mapping[str, Value]) -> Best:
        entry, key = ranked[0], candidate.key
        samples = ranking.samples(self.reader, entry)
        if median(samples) != entry.time_ns:
            raise ValueError("a time is not the median of its samples")
        match, notes = candidate.match, self._differences(key)
        on_device = key.device == self.key.device
        if on_device and self.driver and entry.driver != self.driver:
            notes.append(f"measured with driver {entry.driver}; this device now has {self.driver}")
            match = Match.OTHER_DRIVER if match is Match.EXACT else match
        elif on_device and not self.driver:
            notes.append(f"measured with driver {entry.driver}; the driver here was not asked for (-d INDEX does)")
        ties = ranking.ties(self.reader, ranked)
        if ties:
            others = "one other configuration is" if ties == 1 else f"{ties} other configurations are"
            notes.append(f"a tie: {others} as fast within the interval")
        ((trials,),) = self.reader.rows(_COUNT, {"problem": candidate.number})
        names = {fingerprint: name for fingerprint, name, _ in self.reader.rows(DEVICES, {})}
        return self._best(
            configuration,
            match,
            notes,
            time_ns=entry.time_ns,
            interval_ns=median_interval(samples),
            measured_on=key.device,
            device_name=names.get(key.device, ""),
            measured_size={name: key.size[name] for name in self.key.size},
            driver=entry.driver,
            measured=ranking.taken(self.reader, entry),
            ties=ties,
            trials=trials,
        )

    def _best(self, configuration: Mapping[str, Value], match: Match, notes: list[str], **found: Any) -> Best:
        key = self.key
        if self.left_out:
            count = len(self.left_out)
            which = "a stored configuration is" if count == 1 else f"{count} stored configurations are"
            notes.append(f"{which} left out, not being of this study: {self.left_out[0]}")
        return Best(
            key.study,
            configuration,
            match,
            tuple(notes),
            key.device,
            key.size,
            key.choices,
            database=self.database,
            **found,
        )

    def _differences(self, key: ProblemKey) -> list[str]:
        notes = []
        if key.device != self.key.device:
            notes.append(f"measured on {key.device}, asked for {self.key.device}")
        if dict(key.size) != dict(self.key.size):
            notes.append(
                f"measured at {_sizes(key.size, self.key.size)}, asked for {_sizes(self.key.size, self.key.size)}"
            )
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
        columns = key_columns(self.key)
        for number, kernel, study, device, size in self.reader.rows(
            _ALIKE, {"study": columns["study"], "choices": columns["choices"]}
        ):
            key = ProblemKey(self.key.study, kernel, study, device, _table(size), self.key.choices)
            match = self._match(key)
            if key != self.key and match is not None and _is_size(key.size, self.key.size):
                found.append(_Candidate(number, key, match, _distance(key.size, self.key.size)))
        return sorted(found, key=self._nearness)

    def _nearness(self, candidate: _Candidate) -> tuple[int, float, bool, float]:
        from autotune.lookup.architecture import compute_units

        key = candidate.key
        changed = (key.kernel_hash, key.study_hash) != (self.key.kernel_hash, self.key.study_hash)
        units = [max(1, compute_units(device)) for device in (key.device, self.key.device)]
        return list(Match).index(candidate.match), candidate.distance, changed, abs(math.log2(units[0] / units[1]))

    def _match(self, key: ProblemKey) -> Match | None:
        from autotune.lookup import architecture

        asked, here = self.key.device, key.device
        if here == asked:
            return Match.CHANGED if dict(key.size) == dict(self.key.size) else Match.NEAREST_SIZE
        if architecture.vendor(here) != architecture.vendor(asked) or architecture.kind(here) != architecture.kind(
            asked
        ):
            return None
        alike = architecture.architecture(here, self._capability(here))
        same = alike and alike == architecture.architecture(asked, self._capability(asked))
        return Match.SAME_ARCHITECTURE if same else Match.SAME_VENDOR

    def _capability(self, fingerprint: str) -> str:
        found = self._stored(fingerprint)
        return str(found.get("compute_capability", "")) if found else ""

    def _stored(self, fingerprint: str) -> dict[str, Any] | None:
        """Return what OpenCL last said of a stored device."""
        if self.device is not None and fingerprint == self.device.fingerprint:
            return {"compute_capability": self.device.compute_capability}
        facts = [facts for stored, _, facts in self.reader.rows(DEVICES, {}) if stored == fingerprint]
        return _table(facts[-1]) if facts else None

    def _is_valid(self, configuration: Mapping[str, Value]) -> bool:
        try:
            self.problem.plan(configuration)
        except SpaceError:
            return False
        return True

    @cached_property
    def problem(self) -> Problem:
        """The study at this size on this device: as it is here, else as last stored, else a typical one."""
        from autotune.store.records import device_of
        from autotune.study.problem import Problem
        from autotune.study.study import Study

        device = self.device
        if device is None and (facts := self._stored(self.key.device)):
            try:
                device = device_of(facts)
            except StoreError as error:
                error.hint = "-d INDEX asks the device itself"
                raise error.at(f"{self.database}: {self.key.device}") from None
        return Problem(Study.from_text(self.text), self.key.size, self.key.choices, device)


def _table(text: str) -> dict[str, Any]:
    """Return a stored JSON object; an empty one where somebody stored what is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _is_size(size: Mapping[str, Any], asked: Size) -> bool:
    """True for whole numbers of at least 1 under the names asked for."""
    return set(size) == set(asked) and all(type(value) is int and value >= 1 for value in size.values())


def _distance(here: Size, asked: Size) -> float:
    """Return how far two sizes are apart: the sum of the doublings in each dimension."""
    return sum(abs(math.log2(here[name] / asked[name])) for name in asked)


def _sizes(size: Size, order: Size) -> str:
    return " ".join(f"{name}={size[name]}" for name in order)
