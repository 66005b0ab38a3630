"""What every format of the registries keeps to that other tools' files are read in, or ours written."""

from __future__ import annotations

import copy
import io
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.exchange import READERS, WRITERS, Document, Recording, adopt, read
from autotune.exchange.writing import Writer
from autotune.model import Measurement, Outcome
from autotune.store import Store
from tests.stored import KEY
from tests.studies import study

DATA = Path(__file__).parent.parent / "data" / "exchange"
PARAMETERS = {name: parameter.values for name, parameter in study().parameters.items()}
WRONG = st.sampled_from([None, True, -1, 0, 1e400, 10**400, "", "x\x1b[2J", [], {}, [[]], {"a": {}}, float("nan")])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON document, the whole apart."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in [(*path, key), *places(inner, (*path, key))]]


def changed(value: Any, place: tuple[Any, ...], wrong: Any) -> Any:
    """A copy with something else in a place."""
    copied = copy.deepcopy(value)
    inner = copied
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = wrong
    return copied


def entries_of(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The entries of a file: the longest of its lists and objects that hold objects alone."""
    inner = (list(value.values()) if isinstance(value, dict) else value for value in table.values())
    return max(
        (each for each in inner if isinstance(each, list) and all(isinstance(one, dict) for one in each)), key=len
    )


class ReaderContract:
    """The tests of a format that is read; of each there is a file of six trials or more of tests/studies.py's study.

    `FASTEST_NS`: the least time in it, read by hand, in the unit that the tool uses.
    """

    FASTEST_NS: ClassVar = {
        "kernel-tuner": 14_143, "t4": 17_725, "clblast": 11_000, "cltune": 98_708_000, "ktt": 11_000, "pyatf": 3_753,
    }  # fmt: skip

    @pytest.fixture(autouse=True, params=READERS)
    def _each(self, request: pytest.FixtureRequest) -> None:
        self.FORMAT = request.param

    @pytest.fixture
    def data(self) -> bytes:
        return (DATA / f"{self.FORMAT}.json").read_bytes()

    def read(self, data: bytes, format: str | None = None) -> tuple[str, Document]:
        return read(io.BytesIO(data), "there.json", format)

    def test_it_is_recognised_by_what_it_holds(self, data: bytes) -> None:
        table = json.loads(data)
        assert [name for name, reader in READERS.items() if reader.recognises(table)] == [self.FORMAT]
        assert self.read(data)[0] == self.FORMAT
        assert READERS[self.FORMAT].about

    def test_its_trials_are_the_studys(self, data: bytes) -> None:
        name, document = self.read(data)
        adopted = adopt(document, PARAMETERS, format=name, file="/home/me/there.json")
        assert len(adopted.trials) == len(document.entries) >= 6
        assert not any(adopted.left_out.values())
        assert min(one.time_ns for one in adopted.trials if one.outcome is Outcome.OK) == self.FASTEST_NS[self.FORMAT]
        for trial in adopted.trials:
            assert all(trial.configuration[name] in values for name, values in PARAMETERS.items())
            assert (trial.outcome is Outcome.OK) == (trial.time_ns > 0)
            assert trial.origin is not None
            assert (trial.origin["format"], trial.origin["file"]) == (self.FORMAT, "there.json")

    def test_nothing_in_it_is_lost_unsaid(self, data: bytes) -> None:
        table = json.loads(data) | {"made_up": 1}
        entries = entries_of(table)
        for entry in entries:
            entry["made_up_too"] = 1
        name, document = self.read(json.dumps(table).encode())
        assert len(document.entries) + sum(document.left_out.values()) == len(entries)
        assert document.header["made_up"] == 1
        origins = [trial.origin for trial in adopt(document, PARAMETERS, format=name).trials]
        assert all(origin is not None and "made_up_too" in origin["entry"] for origin in origins), (
            "the rest of an Entry"
        )

    def test_it_is_stored_once_and_is_no_result(self, data: bytes, store: Store) -> None:
        name, document = self.read(data)
        trials = adopt(document, PARAMETERS, format=name).trials
        assert store.adopt(KEY, None, trials, {"format": name}) == len(trials)
        assert store.adopt(KEY, None, trials, {"format": name}) == 0
        assert store.trials(KEY) == []
        assert sorted(map(str, store.imported(KEY))) == sorted(map(str, trials))

    def test_half_a_file_is_one_line(self, data: bytes) -> None:
        for share in (0.0, 0.1, 0.5, 0.9, 0.99):
            half = data[: int(len(data) * share)]
            if self.FORMAT == "kernel-tuner" and b'"cache": {' in half:  # may be left open
                assert len(self.read(half)[1].entries) < len(self.read(data)[1].entries)
                continue
            with pytest.raises(UsageError, match=r"^there\.json: [^\n]*$"):
                self.read(half)

    def test_what_is_no_file_of_it_is_one_line(self) -> None:
        deep = b'{"results": ' + b"[" * 100_000
        for data in (b"", b"{}", b"[]", b"\xff\xfe", b"\x1f\x8bxxxx", deep, b'{"a": ' + b"9" * 5_000 + b"}", b'"x"'):
            for format in (None, self.FORMAT):
                with pytest.raises(UsageError, match=r"^there\.json: "):
                    self.read(data, format)


class WriterContract:
    """The tests of a format that is written; `LEFT_OUT`: of how much of the recording it says that it cannot say it."""

    LEFT_OUT: ClassVar = {"kernel-tuner": 1, "t4": 1, "clblast": 3, "wisdom": 5, "csv": 0}

    @pytest.fixture(autouse=True, params=[name for name, writer in WRITERS.items() if not writer.database])
    def _each(self, request: pytest.FixtureRequest) -> None:
        self.FORMAT = request.param

    @property
    def writer(self) -> Writer:
        return WRITERS[self.FORMAT]

    def written(self, recording: Recording) -> str:
        """What a recording is written as."""
        out = io.StringIO()
        self.writer.write([recording], out)
        return out.getvalue()

    def test_golden(self, recording: Recording, golden: Path) -> None:
        """To take a changed format over: `python -m tests.test_exchange`, then read the difference."""
        assert self.written(recording) == (golden / f"exchange.{self.FORMAT}").read_text(encoding="utf-8")

    def test_what_it_cannot_say_is_counted(self, recording: Recording) -> None:
        left_out = self.writer.write([recording], io.StringIO())
        assert sum(left_out.values()) == self.LEFT_OUT[self.FORMAT]

    def test_of_each_trial_it_says_the_configuration_and_time_or_that_it_does_not(self, recording: Recording) -> None:
        """Another trial makes another file, unless it is among those that are counted as left out."""
        whole, counted = self.written(recording), self.LEFT_OUT[self.FORMAT]
        for at, trial in enumerate(recording.own):
            told = trial.configuration
            values = {name: next(one for one in values if one != told[name]) for name, values in PARAMETERS.items()}
            others = [replace(trial, configuration={**told, name: value}) for name, value in values.items()]
            if trial.outcome is Outcome.OK:
                others.append(replace(trial, measurement=Measurement((1_234_567,))))
            before, after = recording.own[:at], recording.own[at + 1 :]
            if any(self.written(replace(recording, own=[*before, other, *after])) == whole for other in others):
                left_out = self.writer.write([replace(recording, own=[*before, *after])], io.StringIO())
                assert sum(left_out.values()) < counted, f"{trial} is neither written nor counted"

    def test_control_characters_act_on_no_terminal(self, recording: Recording) -> None:
        assert self.written(recording).replace("\n", "").isprintable()
