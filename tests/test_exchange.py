"""Other tools' files: each format by its contract, by a golden file, and by the tool that reads it."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sqlite3
import subprocess
import sys
from codecs import BOM_UTF8
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import optuna
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from autotune import lookup
from autotune.cli import app
from autotune.errors import AutotuneError, StoreError, UsageError
from autotune.exchange import READERS, WRITERS, Recording, adopt, choices_of, gather, is_foreign, read, size_of
from autotune.exchange import optuna as writing_optuna
from autotune.exchange.document import Document, Entry
from autotune.model import Measurement, Outcome, ProblemKey, Trial
from autotune.pool import Evaluator
from autotune.store import Store
from autotune.study import Problem
from autotune.tuner import Budget, ReplayEvaluator, Request, run
from tests.contracts.exchange import (
    DATA,
    PARAMETERS,
    WRONG,
    ReaderContract,
    WriterContract,
    changed,
    entries_of,
    places,
)
from tests.stored import DEVICE, KEY, ok, put
from tests.studies import SOURCE, TOML, study

GOLDEN = Path(__file__).parent / "golden"
FINGERPRINT = DEVICE.fingerprint
BOTH_WAYS = [format for format in WRITERS if format in READERS]
NASTY = "=cmd|' /C calc'!A0\x1b[2J\n"


class TestReaders(ReaderContract):
    pass


class TestWriters(WriterContract):
    pass


def own_trials() -> list[Trial]:
    """Two trials that passed, the default re-timed; a wrong one, one that did not build, and a stopped one."""
    moment = datetime(2026, 11, 21, 8, 4, 41, 635672, tzinfo=UTC)

    def trial(wpt: int, wg: int, outcome: Outcome, samples: tuple[int, ...] = (), **more: Any) -> Trial:
        measured = Measurement(samples) if samples else None
        told = {"driver": "550.1", "build_s": 0.25, "started": moment, "finished": moment} | more
        return Trial({"WPT": wpt, "WG": wg, "FAST": 0}, outcome, measurement=measured, **told)

    return [
        trial(1, 64, Outcome.OK, (2_000_000, 2_100_000, 1_900_000), retimed=Measurement((2_050_000,))),
        trial(2, 64, Outcome.OK, (1_000_000, 1_000_500)),
        trial(4, 64, Outcome.WRONG_RESULT, reason=NASTY),
        trial(8, 32, Outcome.COMPILE_ERROR, reason="no"),
        trial(1, 32, Outcome.STOPPED, (5_000_000,)),
    ]


def imported_trial() -> Trial:
    """A trial from a cache of Kernel Tuner, faster than all of our own."""
    told = {"rest": {"time": 0.5, "nvml_power": 139.161}, "parameters": {}}
    origin = {"format": "kernel-tuner", "file": "cache.json", "entry": json.dumps(told)}
    moment = datetime(2022, 12, 23, 12, 11, 26, tzinfo=UTC)
    measured = Measurement((500_000,))
    configuration = {"WPT": 8, "WG": 64, "FAST": 1}
    return Trial(configuration, Outcome.OK, measurement=measured, started=moment, finished=moment, origin=origin)


def make_recording() -> Recording:
    key = ProblemKey("saxpy", "k" * 32, "s" * 32, FINGERPRINT, {"N": 1000}, {"T": "float"})
    headers = [("kernel-tuner", {"device_name": "H", "made_up": 7})]
    return Recording(
        key, DEVICE, DEVICE.driver, PARAMETERS, "saxpy", "float", own_trials(), [imported_trial()], headers
    )


@pytest.fixture
def recording() -> Recording:
    return make_recording()


@pytest.fixture
def golden() -> Path:
    return GOLDEN


@pytest.mark.parametrize("format", READERS)
@settings(max_examples=25)
@given(data=st.data())
def test_what_stands_in_a_file_is_taken_or_refused_in_one_line(format: str, data: st.DataObject) -> None:
    table = json.loads((DATA / f"{format}.json").read_text())
    place = data.draw(st.sampled_from(places(table)))
    changes = changed(table, place, data.draw(WRONG))
    try:
        name, document = read(io.BytesIO(json.dumps(changes).encode()), "there")
        trials = adopt(document, PARAMETERS, format=name).trials
    except UsageError as error:
        assert "\n" not in str(error)  # noqa: PT017  most are taken
        return
    for trial in trials:
        assert trial.outcome.failed or 0 < trial.time_ns < 2**62
        assert all(trial.configuration[name] in values for name, values in PARAMETERS.items())


# The command line ------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the study of tests/studies.py as a file, and an empty database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_DB", str(tmp_path / "a.db"))
    (tmp_path / "saxpy.cl").write_text(SOURCE)
    (tmp_path / "saxpy.toml").write_text(TOML)
    return tmp_path


HERE = ["--study", "./saxpy.toml", "-d", FINGERPRINT]


def typed(*words: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=stdin)


def test_a_file_comes_in_by_its_content_alone(folder: Path) -> None:
    for format in READERS:
        done = typed("import", str(DATA / f"{format}.json"), *HERE)
        assert done.exit_code == 0, done.stderr
        assert "imported, none of them counts before it is measured here" in done.stderr
        assert "autotune search ./saxpy.toml" in done.stderr
    again = typed("import", *HERE, stdin=gzip.compress((DATA / "t4.json").read_bytes()))
    assert "0 new trials imported" in again.stderr
    best = lookup.best(study_text(), {"N": 1000}, {"T": "float"}, FINGERPRINT)
    assert best.match is lookup.Match.DEFAULT
    shown = typed("history", "saxpy", "--json").stdout
    assert {row["origin"] for row in json.loads(shown)} <= set(READERS)
    assert "imported from ktt" in typed("history", "saxpy", "--limit", "99").stdout


def study_text() -> Any:
    from autotune.study import find_study

    return find_study("./saxpy.toml")


def test_the_size_is_the_files_where_it_names_it(folder: Path) -> None:
    for told in ("clblast", "kernel-tuner"):
        assert "size N=4096, from the file" in typed("import", str(DATA / f"{told}.json"), *HERE).stderr
    assert "size N=1000, from the study's default" in typed("import", str(DATA / "cltune.json"), *HERE).stderr
    told = typed("import", str(DATA / "clblast.json"), *HERE, "--size", "64").stderr
    assert "size N=64, from --size" in told


@pytest.mark.parametrize(
    ("extents", "sizes", "size", "source"),
    [
        ([64, 64], {"N": 8}, {"N": 64}, "the file"),
        ([64, 64], {"W": 8, "H": 8}, {"W": 64, "H": 64}, "the file"),
        ([64, 64], {"M": 8, "N": 8, "K": 8}, None, "the study's default: 64, 64 in the file has no names, say --size"),
        ([64, 32], {"W": 8, "H": 8}, None, "the study's default: 64, 32 in the file has no names, say --size"),
        ([64, 32], {"W": 32, "H": 64}, None, "the study's default"),
    ],
)
def test_extents_without_names_are_a_size_where_no_other_is_meant(
    extents: list[int], sizes: dict[str, int], size: dict[str, int] | None, source: str
) -> None:
    document = READERS["kernel-tuner"].read({"problem_size": extents, "tune_params_keys": [], "cache": {}})
    found, told = size_of(document, [], sizes)
    assert found == (size or sizes)
    assert told.removesuffix(" if it is another") == source


SIZELESS = """
name = "sizeless"
kernel = "saxpy.cl"
parameters = { WPT.values = [1, 2, 4, 8], WG.values = [32, 64, 128, 256], FAST.values = [0, 1] }
arguments = { y = { type = "float", shape = ["1000"], access = "out" } }
launch = [{ entry = "saxpy", global = ["1000"], local = ["WG"], arguments = ["y"] }]
reference = { numpy = { y = "zeros(1000)" } }
"""


def test_a_study_without_sizes_is_told_of_none(folder: Path) -> None:
    (folder / "sizeless.toml").write_text(SIZELESS)
    told = typed("import", str(DATA / "kernel-tuner.json"), "--study", "./sizeless.toml", *HERE[2:]).stderr
    assert "imported, none of them counts" in told
    assert "\nsize " not in told


def test_what_a_cache_has_throughout_may_be_a_size_or_a_choice_of_the_study(folder: Path) -> None:
    cache = json.loads((DATA / "kernel-tuner.json").read_text())
    cache["tune_params_keys"] += ["N", "T"]
    for entry in cache["cache"].values():
        entry |= {"N": 64.0, "T": "double"}
    (folder / "sized.json").write_text(json.dumps(cache))
    told = typed("import", "sized.json", *HERE).stderr
    assert "size N=64, from the file\nchoices T=double\n" in told
    assert "autotune search ./saxpy.toml --size N=64 --choice T=double -d " in told
    assert "\nchoices" not in typed("import", "sized.json", *HERE, "--choice", "T=float").stderr
    (folder / "other.json").write_text(json.dumps(cache).replace("double", "half"))
    said = typed("import", "other.json", *HERE).stderr
    assert said == "error: other.json: what all its trials have: T cannot be 'half'; say --choice\n"


@pytest.mark.parametrize("told", [True, 1.0, 1, "1"])
def test_what_a_file_calls_a_choice_is_the_study_s_value(told: Any) -> None:
    document = Document([Entry({"RELU": told, "WG": 32}, Outcome.OK, 1)] * 2)
    assert choices_of(document, [], {"RELU": [0, 1], "T": ["float", "a"]}) == {"RELU": 1, "T": "float"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "holds a cache of Kernel Tuner of saxpy on pthread-Intel(R) Xeon(R) Processor; say which study"),
        ([*HERE, "--from", "t4"], "results: is not a JSON array: None; nothing was imported"),
        ([*HERE, "--rename", "WGX=WG"], "--rename: no parameter 'WGX' (did you mean 'WG'?)"),
        ([*HERE, "--rename", "WG=WGX"], "--rename: no parameter 'WGX' (did you mean 'WG'?)"),
        ([*HERE, "--rename", "WG=WPT"], "--rename: the file has a parameter 'WPT' of its own"),
        ([*HERE, "--rename", "WG=FAST", "--rename", "FAST=FAST"], "--rename: two parameters would have one name"),
        ([*HERE, "--rename", "A=WG", "--rename", "A=WPT"], "--rename: A is given 2 values"),
        ([*HERE, "--fix", "A=1", "--fix", "A=2"], "--fix: A is given 2 values, and the file has none"),
        ([*HERE, "--fix", "FAST=3"], "no trial in it is of the study: 26 without the values that --fix names"),
        ([*HERE, "--fix", "A=3"], "--fix: no parameter named 'A'"),
        ([*HERE, "--size", "M=3"], "--size: no size named 'M'"),
        (["--study", "./saxpy.toml", "-d", "nobody-1cu-1g", "--choice", "T=int"], "--choice: T cannot be 'int'"),
        ([*HERE, "--from", "kernel_tuner"], "--from: no format named 'kernel_tuner' (did you mean 'kernel-tuner'?)"),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(folder: Path, words: list[str], said: str) -> None:
    done = typed("import", str(DATA / "kernel-tuner.json"), *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert typed("history").stdout == ""


def test_a_cache_without_trials_says_so(folder: Path) -> None:
    table = json.loads((DATA / "kernel-tuner.json").read_text()) | {"cache": {}}
    (folder / "cache.json").write_text(json.dumps(table))
    assert typed("import", "cache.json", *HERE).stderr == "error: cache.json: holds no trial\n"


def test_a_file_that_names_no_device_asks_for_one(folder: Path) -> None:
    table = json.loads((DATA / "kernel-tuner.json").read_text()) | {"device_name": ""}
    (folder / "cache.json").write_text(json.dumps(table))
    done = typed("import", "cache.json", "--study", "./saxpy.toml")
    assert (done.exit_code, "does not say which device it is of; say --device" in done.stderr) == (2, True)
    unknown = typed("import", str(DATA / "kernel-tuner-published.json"), "--study", "./saxpy.toml")
    assert "is of 'NVIDIA RTX A4000', a name that no device here or stored has" in unknown.stderr


def test_a_stored_device_is_known_by_its_name(folder: Path) -> None:
    with Store.open(None) as store:
        put(store, [ok({"A": 1}, 5)])
    table = json.loads((DATA / "kernel-tuner.json").read_text()) | {"device_name": "nvidia h200"}
    (folder / "cache.json").write_text(json.dumps(table))
    assert f"kept for {FINGERPRINT}" in typed("import", "cache.json", "--study", "./saxpy.toml").stderr


def test_parameters_of_other_names_and_values(folder: Path) -> None:
    table = json.loads((DATA / "cltune.json").read_text())
    for place, result in enumerate(table["results"]):
        told = result["parameters"]
        result["parameters"] = {"WGS": told["WG"], "WPT": float(told["WPT"]), "VW": 1 + place % 2, "KREG": 1}
    table["results"][0]["parameters"]["WGS"] = 48
    (folder / "other.json").write_text(json.dumps(table))
    words = ["import", "other.json", *HERE, "--rename", "WGS=WG"]
    assert "varies 'VW' (1, 2), which the study does not have" in typed(*words).stderr
    assert "has no FAST, which the study tunes" in typed(*words, "--fix", "VW=1").stderr
    done = typed(*words, "--fix", "VW=1", "--fix", "FAST=1")
    assert done.exit_code == 0, done.stderr
    assert "left out: 1 trial with WG=48, not a value of the study" in done.stderr
    assert "left out: 8 trials without the values that --fix names" in done.stderr
    assert "ignored, as always the same and not a parameter of the study: VW=1 KREG=1" in done.stderr
    assert "7 new trials imported" in done.stderr


def test_our_own_lines_tell_themselves_what_they_belong_to(folder: Path) -> None:
    typed("import", str(DATA / "t4.json"), *HERE)
    lines = typed("export").stdout
    assert not is_foreign(lines.encode()[:1000])
    assert not is_foreign(b"{}\n")
    assert not is_foreign(b"")
    assert is_foreign(json.dumps(json.loads((DATA / "t4.json").read_text())).encode())
    assert "8 new trials imported" in typed("import", "--db", "b.db", stdin=lines.encode()).stderr
    assert typed("export", "--db", "b.db").stdout == lines
    refused = typed("import", "-d", "0", stdin=lines.encode())
    assert "already says which study, device and size its trials have" in refused.stderr


def test_our_own_lines_are_read_packed_and_as_windows_writes_them(folder: Path) -> None:
    typed("import", str(DATA / "t4.json"), *HERE)
    lines = typed("export").stdout.encode()
    for number, data in enumerate((gzip.compress(lines), BOM_UTF8 + lines, gzip.compress(BOM_UTF8 + lines))):
        assert "8 new trials imported" in typed("import", "--db", f"{number}.db", stdin=data).stderr
        assert typed("export", "--db", f"{number}.db").stdout.encode() == lines
    for cut in (gzip.compress(lines)[:-20], gzip.compress(lines)[:5]):
        refused = typed("import", "--db", "c.db", stdin=cut)
        assert refused.exit_code == 2
        assert "cannot be unpacked" in refused.stderr
        assert "nothing was imported" in refused.stderr
    marked = BOM_UTF8 + (DATA / "t4.json").read_bytes()
    assert "say which study they are of" in typed("import", stdin=marked).stderr


def test_a_line_cannot_pass_an_import_off_as_a_result(folder: Path) -> None:
    typed("import", str(DATA / "t4.json"), *HERE)
    line = json.loads(typed("export").stdout.splitlines()[0])
    for change in ({"origin": None}, {"search": line["search"] | {"sampler": "bayes"}}, {"origin": {"format": "x"}}):
        with Store.open("b.db") as store, pytest.raises(StoreError, match="origin"):
            store.import_lines([json.dumps(line | change)])


# In: what the search makes of it ---------------------------------------------------------------------------


def test_a_published_cache_gives_its_known_optimum() -> None:
    """The fastest by the file's own times; source: tests/data/exchange/README.md."""
    data = (DATA / "kernel-tuner-published.json").read_bytes()
    _, document = read(io.BytesIO(data), "published")
    assert (document.device, document.kernel) == ("NVIDIA RTX A4000", "vector_add")
    parameters = {"block_size_x": tuple(range(128, 1025, 64))}
    trials = adopt(document, parameters, format="kernel-tuner").trials
    assert len(trials) == 15
    times = {entry["block_size_x"]: entry["time"] for entry in json.loads(data)["cache"].values()}
    best = min(trials, key=lambda trial: trial.time_ns)
    assert best.configuration["block_size_x"] == min(times, key=times.get)
    assert best.time_ns == round(min(times.values()) * 1e6)


def test_a_cache_that_was_left_open_is_read_as_far_as_it_goes() -> None:
    text = (DATA / "kernel-tuner.json").read_text()
    whole = text.removesuffix("}\n}")
    for data, entries, cut in ((text, 26, 0), (whole, 26, 0), (whole + ",", 26, 0), (whole[:-30], 25, 1)):
        _, document = read(io.BytesIO(data.encode()), "open")
        assert (len(document.entries), sum(document.left_out.values())) == (entries, cut)
    empty = text[: text.index('"cache": {') + len('"cache": {')]
    assert read(io.BytesIO(empty.encode()), "open")[1].entries == []


def test_failures_are_told_from_what_never_ran() -> None:
    entries = {
        "1": {"A": 1, "time": "CompilationFailedConfig"},
        "2": {"A": 2, "time": "RuntimeFailedConfig"},
        "3": {"A": 3, "time": "InvalidConfig"},
        "4": {"A": 4, "time": 1e20},
        "5": {"A": 5, "energy": 3},
        "6": {"A": 6, "time": 0},
        "7": {"A": 7, "__error__": "ErrorConfig"},
        "8": {"A": 8, "time": 2.5, "timestamp": "not one"},
    }
    table = {"tune_params_keys": ["A"], "cache": entries}
    document = READERS["kernel-tuner"].read(table)
    told = [(entry.configuration["A"], entry.outcome.value, entry.time_ns) for entry in document.entries]
    assert told == [
        (1, "compile_error", None),
        (2, "launch_error", None),
        (4, "launch_error", None),
        (7, "launch_error", None),
        (8, "ok", 2_500_000),
    ]
    assert sum(document.left_out.values()) == 3


def test_units_are_those_that_the_file_names() -> None:
    def time_ns(unit: str, own: str) -> int | None:
        result = {
            "configuration": {"A": 1},
            "times": {"runtimes": []},
            "invalidity": "correct",
            "objectives": ["TotalDuration"],
            "measurements": [{"name": "TotalDuration", "value": 96.256, "unit": own}],
        }
        return READERS["t4"].read({"metadata": {"timeunit": unit}, "results": [result]}).entries[0].time_ns

    assert time_ns("", "Microseconds") == 96_256
    assert time_ns("miliseconds", "") == 96_256_000
    assert time_ns("", "") == 96_256_000
    with pytest.raises(UsageError, match="no unit of time 'fortnight'"):
        time_ns("fortnight", "")


def test_a_search_tries_the_fastest_imported_first_and_trusts_none(tmp_path: Path) -> None:
    problem = Problem(study(), device=DEVICE)
    database = str(tmp_path / "a.db")
    document = read(io.BytesIO((DATA / "kernel-tuner.json").read_bytes()), "there")[1]
    trials = adopt(document, PARAMETERS, format="kernel-tuner").trials
    with Store.open(database) as store:
        store.adopt(problem.key, DEVICE, trials, {"format": "kernel-tuner"})
        assert [len(found) for _, found in store.related(problem.key)] == [26]
    slow = [
        Trial(problem.space.configuration(row), Outcome.OK, measurement=Measurement((9_000_000 + row,)), driver="550.1")
        for row in range(len(problem.space))
    ]
    evaluator: Evaluator = ReplayEvaluator(slow)
    request = Request(problem, database=database, budget=Budget(trials=6), seed=1)
    result = run(request, evaluator=evaluator)
    with Store.open(database) as store:
        tried = [trial.configuration for trial in store.trials(problem.key)]
    fastest = sorted((one for one in trials if one.configuration in problem.space), key=lambda trial: trial.time_ns)
    assert tried[0] == problem.default
    assert tried[1:4] == [trial.configuration for trial in fastest[:3]]
    assert (result.reused, result.trials) == (0, 6)
    assert result.best is not None
    assert result.best.time_ns >= 9_000_000


_SEVERAL = "holds results of several kernels: another, "


@pytest.mark.parametrize(
    ("format", "change", "said"),
    [
        (
            "clblast",
            lambda told: told["results"][0].update(kernel="another"),
            _SEVERAL,
        ),
        (
            "cltune",
            lambda told: told["results"][0].update(kernel="another"),
            _SEVERAL,
        ),
        (
            "ktt",
            lambda told: told["Results"][0].update(KernelName="another"),
            _SEVERAL,
        ),
        ("clblast", lambda told: told.update(precision="64"), "is of double, and the study is of float; say --choice"),
        (
            "ktt",
            lambda told: told["Results"][0]["Configuration"][0].pop("Name"),
            "Results.0.Configuration.0.Name: is missing",
        ),
        (
            "ktt",
            lambda told: told["Results"][0]["Configuration"].append(told["Results"][0]["Configuration"][0]),
            "Name: is there twice: 'WPT'",
        ),
    ],
)
def test_what_would_be_taken_for_another_is_refused(folder: Path, format: str, change: Any, said: str) -> None:
    told = json.loads((DATA / f"{format}.json").read_text())
    change(told)
    (folder / "in.json").write_text(json.dumps(told))
    done = typed("import", "in.json", *HERE)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert said in done.stderr


# Out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", BOTH_WAYS)
def test_what_we_do_not_know_survives(folder: Path, format: str) -> None:
    table = json.loads((DATA / f"{format}.json").read_text()) | {"made_up": {"a": [1, None]}}
    entries = entries_of(table)
    for entry in entries:
        entry["power"] = {"joules": 3.25}
        configuration_of(entry)["KREG"] = 1
    if format == "kernel-tuner":
        table["tune_params_keys"].append("KREG")
        table["tune_params"]["KREG"] = [1]
        table["cache"] = {f"{key},1": entry for key, entry in table["cache"].items()}
    if format != "clblast":  # which has whole numbers alone
        _say_true_and_false(table, [configuration_of(entry) for entry in entries])
    (folder / "in.json").write_text(json.dumps(table))
    assert typed("import", "in.json", *HERE).exit_code == 0
    done = typed("export", "--format", format, "--study", "./saxpy.toml")
    assert json.dumps(json.loads(done.stdout), sort_keys=True) == json.dumps(table, sort_keys=True)


def configuration_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an entry that holds its parameters."""
    return next((part for part in (entry, *entry.values()) if isinstance(part, dict) and "WG" in part), entry)


def _say_true_and_false(table: dict[str, Any], configurations: list[dict[str, Any]]) -> None:
    """Have a file write FAST as a Python script with `[False, True]` does."""
    for one in configurations:
        one["FAST"] = bool(one["FAST"])
    if "cache" in table:
        table["tune_params"]["FAST"] = [False, True]
        names = table["tune_params_keys"]
        table["cache"] = {",".join(str(one[name]) for name in names): one for one in configurations}


def test_a_format_that_can_tell_no_trial_writes_no_file(recording: Recording, folder: Path) -> None:
    words = replace(
        recording,
        own=[replace(one, configuration={**one.configuration, "T": "WORD"}) for one in recording.own],
        imported=[],
    )
    out = io.StringIO()
    with pytest.raises(AutotuneError, match=r"none of its trials can be written in this format: .* not whole numbers"):
        WRITERS["clblast"].write([words], out)
    assert out.getvalue() == ""


@pytest.mark.parametrize("format", BOTH_WAYS)
def test_our_own_trials_come_back_as_they_went(recording: Recording, format: str) -> None:
    untimed = Trial({"WPT": 8, "WG": 128, "FAST": 0}, Outcome.OK)  # imported as passed, without a time
    out = io.StringIO()
    left_out = WRITERS[format].write([replace(recording, own=[*recording.own, untimed])], out)
    assert left_out["that passed, without a time"] == 1
    name, document = read(io.BytesIO(out.getvalue().encode()), "ours")
    assert name == format
    back = {tuple(t.configuration.values()): t for t in adopt(document, PARAMETERS, format=name).trials}
    assert len(back) == len([*recording.own, *recording.imported, untimed]) - sum(left_out.values())
    for trial in (*recording.own, *recording.imported):
        if (told := back.pop(tuple(trial.configuration.values()), None)) is not None:
            how = Outcome.LAUNCH_ERROR if trial.outcome.failed else trial.outcome  # or, better, as it was
            assert told.outcome in (how, trial.outcome)
            assert told.outcome.failed or told.time_ns == trial.measurement.median_ns
    assert not back


def test_one_file_is_of_one_problem(folder: Path) -> None:
    for size in ("64", "128"):
        typed("import", str(DATA / "t4.json"), *HERE, "--size", size)
    refused = typed("export", "--format", "t4", "--study", "./saxpy.toml")
    assert "t4 holds one device, size and choice, and 2 are stored" in refused.stderr
    assert f"choose: -d {FINGERPRINT} --size N=64" in refused.stderr
    assert refused.exit_code == 2
    assert json.loads(typed("export", "--format", "t4", *HERE, "--size", "64").stdout)["results"]
    assert len(typed("export", "--format", "csv", "--study", "./saxpy.toml").stdout.splitlines()) == 17
    missing = typed("export", "--format", "csv", *HERE, "--size", "9").stderr
    assert f"nothing is stored of saxpy at N=9 on {FINGERPRINT}; autotune search ./saxpy.toml -d " in missing
    Path("saxpy.toml").write_text(Path("saxpy.toml").read_text() + "\n[tolerance]\nabsolute = 1\n")
    changed = typed("export", "--format", "csv", "--study", "./saxpy.toml").stderr
    assert "nothing is stored of saxpy as it is now: 16 trials of another version of it or its kernel" in changed
    assert "say --study STUDY" in typed("export", "--format", "csv").stderr
    assert "no format named 'cvs' (did you mean 'csv'?)" in typed("export", "--format", "cvs").stderr
    assert (
        "--study: the lossless format holds every study; leave --study out"
        in typed("export", "--study", "./saxpy.toml").stderr
    )


def test_where_choices_differ_each_alternative_names_them_all(folder: Path) -> None:
    told = TOML.replace('T = ["float", "double"]', 'T = ["float", "double"]\nS = [0, 3]')
    (folder / "saxpy.toml").write_text(told)
    for chosen in (["T=float"], ["T=double", "S=3"]):
        wanted = [word for choice in chosen for word in ("--choice", choice)]
        assert typed("import", str(DATA / "t4.json"), *HERE, *wanted).exit_code == 0
    refused = typed("export", "--format", "t4", "--study", "./saxpy.toml")
    start = f"-d {FINGERPRINT} --size N=1000 --choice"
    offered = [f"{start} S=0 --choice T=float", f"{start} S=3 --choice T=double"]
    assert f"choose: {'; '.join(offered)}" in refused.stderr
    for options in offered:
        followed = typed("export", "--format", "t4", "--study", "./saxpy.toml", *options.split())
        assert followed.exit_code == 0, followed.stderr


def test_a_changed_kernels_trials_are_counted_not_written(folder: Path) -> None:
    typed("import", str(DATA / "t4.json"), *HERE)
    (folder / "saxpy.cl").write_text(SOURCE + "// changed\n")
    typed("import", str(DATA / "ktt.json"), *HERE)
    done = typed("export", "--format", "csv", "--study", "./saxpy.toml")
    assert "left out: 8 trials of another version of the study" in done.stderr
    assert len(done.stdout.splitlines()) == 8


def test_a_table_has_a_row_for_each_trial_and_no_formula(recording: Recording) -> None:
    out = io.StringIO()
    WRITERS["csv"].write([recording], out)
    rows = list(csv.DictReader(io.StringIO(out.getvalue())))
    assert [row["outcome"] for row in rows] == ["ok", "ok", "ok", "wrong_result", "compile_error", "stopped"]
    assert rows[0]["origin"] == "kernel-tuner"
    assert rows[3]["reason"].startswith("'=cmd|")
    assert not any(cell.startswith(("=", "+", "@")) for row in rows for cell in row.values())


def test_wisdom_is_the_best_of_ours(recording: Recording) -> None:
    out = io.StringIO()
    WRITERS["wisdom"].write([recording, replace(recording, own=())], out)
    head, best = map(json.loads, out.getvalue().splitlines())
    assert dict(zip(head["tunable_parameters"], best["config"], strict=True)) == {"WPT": 2, "WG": 64, "FAST": 0}
    assert best["time"] == 1.00025


@pytest.fixture(autouse=True, scope="module")
def _steps_read_once() -> Iterator[None]:
    """Have Optuna read the files of its migrations only once, not for each database.

    Reading takes longer than writing a database, and does not depend on the database.
    """
    kept: list[ScriptDirectory] = []

    def read(config: Config) -> ScriptDirectory:
        kept[:] = kept or [made(config)]
        return kept[0]

    with pytest.MonkeyPatch.context() as patch:
        made = ScriptDirectory.from_config
        patch.setattr(ScriptDirectory, "from_config", read)
        yield


@contextmanager
def opened(path: Path) -> Iterator[optuna.storages.RDBStorage]:
    """Optuna's own storage of a database; it is closed here, because Optuna leaves that to its caller."""
    storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
    yield storage
    storage.remove_session()
    storage.engine.dispose()


def test_optuna_reads_its_database_and_tells_what_matters(folder: Path, recording: Recording) -> None:
    rows = [(wpt, wg, fast) for wpt in (1, 2, 4, 8) for wg in (32, 64) for fast in (0, 1)]
    trials = [ok({"WPT": wpt, "WG": wg, "FAST": fast}, 100_000 * wpt + wg + fast) for wpt, wg, fast in rows]
    trials.append(Trial({"WPT": 8, "WG": 128, "FAST": 0}, Outcome.OK))  # imported as passed, without a time
    path = folder / "o.db"
    WRITERS["optuna"].write([replace(recording, own=[*trials, *own_trials()[2:]], imported=())], path)
    with opened(path) as storage:
        (name,) = optuna.get_all_study_names(storage)
        assert name == f"saxpy {FINGERPRINT} N=1000 T=float"
        require_whole(optuna.load_study(study_name=name, storage=storage))


def require_whole(loaded: optuna.Study) -> None:
    states = [trial.state.name for trial in loaded.trials]
    assert (states.count("COMPLETE"), states.count("PRUNED"), states.count("FAIL")) == (16, 1, 3)
    assert loaded.best_params == {"WPT": 1, "WG": 32, "FAST": 0}
    importance = optuna.importance.get_param_importances(
        loaded, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
    )
    assert importance["WPT"] > importance["FAST"]


@pytest.mark.parametrize("name", ["a?b.db", "?timeout=1.db", "a%20b.db", "{SCHEMA}.db"])
def test_an_optuna_database_is_written_where_it_is_named(
    folder: Path, recording: Recording, name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    usual = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.INFO)
    try:
        WRITERS["optuna"].write([replace(recording, own=recording.own[:1], imported=())], folder / name)
        assert optuna.logging.get_verbosity() == optuna.logging.INFO  # the program's own affair
    finally:
        optuna.logging.set_verbosity(usual)
    assert capfd.readouterr().err == ""
    with closing(sqlite3.connect(folder / name)) as written:
        assert written.execute("SELECT COUNT(*) FROM trials").fetchone()[0] > 0
    assert [path.name for path in folder.iterdir() if ".db" in path.name or path.name == "a"] == [name]


@pytest.mark.slow
@pytest.mark.parametrize("pages", [4, 30])  # full while the tables are made, and after some of the trials
def test_an_optuna_database_without_room_is_one_line(
    folder: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch, pages: int
) -> None:
    class Full(writing_optuna._Unsynced):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self.execute(f"PRAGMA max_page_count={pages}")

    monkeypatch.setattr(writing_optuna, "_Unsynced", Full)
    trials = [ok({"WPT": 1, "WG": 32, "FAST": 0}, 100_000)] * 150
    with pytest.raises(UsageError, match=r"o\.db: .*the disk"):
        WRITERS["optuna"].write([replace(recording, own=trials)], folder / "o.db")
    assert not list(folder.glob("o.db*"))


@pytest.mark.filterwarnings("ignore")  # of the dashboard and of Optuna, between them
def test_optunas_dashboard_lists_what_is_written(folder: Path, recording: Recording) -> None:
    dashboard = pytest.importorskip("optuna_dashboard", reason="pip install '.[dev]'")
    WRITERS["optuna"].write([recording], folder / "o.db")
    application = dashboard.wsgi(f"sqlite:///{folder / 'o.db'}")

    def asked(path: str) -> Any:
        environment: dict[str, Any] = {"PATH_INFO": path, "REQUEST_METHOD": "GET"}
        setup_testing_defaults(environment)
        statuses: list[str] = []
        body = b"".join(application(environment, lambda status, *_: statuses.append(status)))
        assert statuses == ["200 OK"]
        return json.loads(body)

    (listed,) = asked("/api/studies")["study_summaries"]
    assert listed["study_name"] == f"saxpy {FINGERPRINT} N=1000 T=float"
    told = asked(f"/api/studies/{listed['study_id']}")["trials"]
    with opened(folder / "o.db") as storage:
        assert len(told) == len(optuna.load_study(study_name=None, storage=storage).trials)


def test_a_database_is_never_written_over(folder: Path) -> None:
    typed("import", str(DATA / "t4.json"), *HERE)
    (folder / "o.db").write_bytes(b"mine")
    assert "is not overwritten" in typed("export", "o.db", "--format", "optuna", *HERE).stderr
    assert (folder / "o.db").read_bytes() == b"mine"
    assert "give a FILE" in typed("export", "--format", "optuna", *HERE).stderr
    assert "no such folder; mkdir -p no\n" in typed("export", "no/o.db", "--format", "optuna", *HERE).stderr
    (folder / "p.db.part").touch()  # another export is at work, or one was killed
    refused = typed("export", "p.db", "--format", "optuna", *HERE).stderr
    assert refused.startswith("error: p.db.part: cannot be written: File exists")


KERNEL_TUNER = """
import sys, warnings
warnings.simplefilter("ignore")
import kernel_tuner
results, _ = kernel_tuner.tune_kernel(
    "saxpy", "kernel void saxpy() {}", 1000, [], {"WPT": [1, 2, 4, 8], "WG": [32, 64, 128, 256], "FAST": [0, 1]},
    lang="opencl", block_size_names=["WG"], restrictions=["WPT*WG<=512"], cache=sys.argv[1], simulation_mode=True,
    strategy=sys.argv[2], quiet=True,
)
timed = [result for result in results if isinstance(result.get("time"), float)]
print(len(results), len(timed), sorted(min(timed, key=lambda result: result["time"]).items())[:3])
"""


@pytest.mark.skipif(find_spec("kernel_tuner") is None, reason="needs Kernel Tuner: pip install '.[bench]'")
@pytest.mark.device
def test_kernel_tuner_replays_our_cache(folder: Path) -> None:
    problem = Problem(study())
    failed = {"WPT": 8, "WG": 32, "FAST": 1}
    trials = [
        Trial(problem.space.configuration(row), Outcome.OK, measurement=Measurement((5_000 + 7 * row % 13,)))
        for row in range(len(problem.space))
    ]
    trials = [Trial(failed, Outcome.COMPILE_ERROR) if one.configuration == failed else one for one in trials]
    recording = replace(make_recording(), own=trials, imported=(), headers=())
    with (folder / "cache.json").open("w") as out:
        WRITERS["kernel-tuner"].write([recording], out)
    command = [sys.executable, "-c", KERNEL_TUNER, str(folder / "cache.json"), "brute_force"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    best = min((one for one in trials if one.outcome is Outcome.OK), key=lambda trial: trial.time_ns)
    assert done.stdout.strip().endswith(f"26 25 {sorted(best.configuration.items())}")


def test_a_recording_is_of_the_study_as_it_is(store: Store) -> None:
    built = study(sizes=(size := {"N": 1000, "M": 2}))  # in another order than the alphabet's
    key = ProblemKey("saxpy", built.text.kernel_hash, built.text.study_hash, FINGERPRINT, size, {"T": "double"})
    put(store, [*own_trials(), ok({"WPT": 3, "WG": 64, "FAST": 0}, 5)], key=key)
    put(store, [ok({"WPT": 1, "WG": 64, "FAST": 0}, 5)], key=KEY._replace(study="saxpy"))
    (found,), left_out = gather(store, built)
    assert (found.key, found.device, found.element, found.entry) == (key, DEVICE, "double", "saxpy")
    assert (len(found.own), left_out, [*found.key.size]) == (5, 2, ["N", "M"])


def test_a_database_cannot_forge_what_a_tool_wrote(store: Store, tmp_path: Path) -> None:
    told = imported_trial()
    for entry in ("[]", "{", '{"rest": 1, "parameters": {}}', "[" * 5000):
        trial = replace(told, origin={**told.origin, "entry": entry})
        out = io.StringIO()
        WRITERS["kernel-tuner"].write([replace(make_recording(), own=(), imported=[trial])], out)
        assert json.loads(out.getvalue())["cache"]["8,64,1"]["time"] == 0.5
    store.adopt(KEY, None, [told], {"format": "kernel-tuner"})
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("UPDATE trials SET origin = '{}'")
    connection.close()
    with pytest.raises(StoreError, match="origin"):
        store.imported(KEY)


if __name__ == "__main__":
    for name, writer in WRITERS.items():
        if not writer.database:
            with (GOLDEN / f"exchange.{name}").open("w", encoding="utf-8") as file:
                writer.write([make_recording()], file)
