"""What every format of the registries keeps to that other tools' files are read in, or ours written."""

from __future__ import annotations

import copy
import io
import json
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.exchange import READERS, WRITERS, Document, Recording, adopt, read
from autotune.exchange.writing import Writer
from autotune.model import Outcome
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


class ReaderContract:
    """The tests of a format that is read; of each there is a file of six trials or more of tests/studies.py's study."""

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
        for trial in adopted.trials:
            assert all(trial.configuration[name] in values for name, values in PARAMETERS.items())
            assert (trial.outcome is Outcome.OK) == (trial.time_ns > 0)
            assert trial.origin is not None
            assert (trial.origin["format"], trial.origin["file"]) == (self.FORMAT, "there.json")

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

    def test_control_characters_act_on_no_terminal(self, recording: Recording) -> None:
        assert self.written(recording).replace("\n", "").isprintable()
