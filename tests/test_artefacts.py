"""The bests of a study for programs: what is collected, the table, and which buffers are swapped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.cli.export import FORMATS
from autotune.errors import StudyError, UsageError
from autotune.lookup import ARTEFACTS, artefacts, collect
from autotune.lookup.artefacts import document, header
from autotune.study import find_study
from tests.artefacts import (
    CHOICES,
    GROUPS,
    H100,
    collected,
    launched,
    stored,
    swapping,
    text,
)
from tests.stored import DEVICE
from tests.studies import SOURCE, TOML, at

# What is collected ----------------------------------------------------------------------------------------


def test_all_devices_and_sizes_or_those_chosen(tmp_path: Path) -> None:
    place = str(stored(tmp_path / "a.db", (DEVICE, 1000, at(1)), (DEVICE, 64, at(2)), (H100, 1000, at(4))))
    found = collect(text(), CHOICES, database=place)
    assert [(entry.device, entry.problem.size["N"]) for entry in found.entries] == [
        (H100.fingerprint, 1000), (DEVICE.fingerprint, 64), (DEVICE.fingerprint, 1000),
    ]  # fmt: skip
    assert len(found.defaults) == 1
    assert len(collect(text(), CHOICES, devices=[DEVICE.fingerprint], database=place).entries) == 2
    assert len(collect(text(), CHOICES, sizes=[{"N": 1000}], database=place).entries) == 2
    for asked, said in (
        ({"sizes": [{"N": 5}], "devices": [DEVICE.fingerprint]}, f" at N=5 on {DEVICE.fingerprint};"),
        ({"devices": ["x-1cu"]}, " on x-1cu;"),
        ({"devices": [DEVICE.fingerprint, "x-1cu"]}, " on x-1cu;"),
        ({"sizes": [{"N": 5}]}, " at N=5;"),
        ({"sizes": [{"N": 1000}, {"N": 5}]}, " at N=5;"),
    ):
        with pytest.raises(UsageError, match=f"nothing is stored of saxpy{said}"):
            collect(text(), CHOICES, database=place, **asked)
    changed = text(tolerance={"relative": 0.5})
    with pytest.raises(UsageError, match="nothing is stored of saxpy as it is now, but of another version of it"):
        collect(changed, CHOICES, database=place)
    stored(Path(place), (DEVICE, 1000, at(1)), study=changed)
    found = collect(changed, CHOICES, database=place)
    assert (len(found.entries), found.changed) == (1, 2)
    assert collect(text(), CHOICES, database=place).changed == 0


@pytest.mark.parametrize("format", ARTEFACTS)
def test_each_file_for_programs_holds_every_best_and_the_kernel_if_it_is_asked_for(tmp_path: Path, format: str) -> None:
    write = ARTEFACTS[format]
    whole = collected(tmp_path / "a.db", (DEVICE, 1000, at(2)), (DEVICE, 64, at(4)), (H100, 1000, at(1, fast=1)))
    written = write(whole)
    assert (written.bests, written.text[-1:]) == (3, "\n")
    for place in range(3):
        fewer = write(whole.keeping({0, 1, 2, 3} - {place}))
        assert (fewer.bests, fewer.text != written.text) == (2, True), "each best is in it"
    assert ["get_global_id" in write(whole, embed=embed).text for embed in (False, True)] == [False, True]
    nasty = "x\x1b[2J\x9b\u202e\r\nforged"
    hostile = [replace(one, best=one.best._replace(driver=nasty, device_name=nasty)) for one in whole.entries]
    text = write(replace(whole, entries=tuple(hostile))).text
    assert text.replace("\n", "").isprintable()
    assert "\nforged" not in text
    assert "left out: 1 of a device and size: never" in write(replace(whole, refused=(StudyError("never"),))).notes


# The table ------------------------------------------------------------------------------------------------


def test_the_table_is_what_its_schema_says(tmp_path: Path) -> None:
    schema = json.loads((Path(artefacts.__file__).parent / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    place = str(stored(tmp_path / "a.db", (DEVICE, 1000, at(2)), (H100, 64, at(1, fast=1))))
    for embed in (False, True):
        found = json.loads(document(collect(text(), CHOICES, database=place), embed=embed).text)
        jsonschema.validate(found, schema)
        assert (found["source"] is not None) is embed
    entry = next(entry for entry in found["entries"] if entry["device"] == DEVICE.fingerprint)
    assert (entry["size"], entry["configuration"]) == ({"N": 1000}, at(2))
    assert entry["launches"] == [
        {
            "kernel": "saxpy",
            "global": [512],
            "local": [64],
            "offset": None,
            "arguments": ["N", "alpha", "x", "y"],
            "counted": {},
        }
    ]
    assert entry["arguments"]["x"] == {
        "kind": "buffer", "type": "float", "access": "in", "extents": [1000], "bytes": 4000,
    }  # fmt: skip
    spoilt = {**found, "entries": [{**entry, "launches": []}], "more": 1}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spoilt, schema)


# Buffers that change places --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("groups", GROUPS, ids="-".join)
@pytest.mark.parametrize("turns", [4, 5, 6])
def test_a_table_goes_by_the_names_with_which_buffers_begin(tmp_path: Path, groups: list[str], turns: int) -> None:
    study = swapping(turns, groups)
    told = json.loads(document(collected(tmp_path / "a.db", (DEVICE, 1024, at(2)), study=study)).text)
    jsonschema.validate(told, json.loads((Path(artefacts.__file__).parent / "schema.json").read_text()))
    for entry in (told["entries"][0], told["default"]):
        passed = [entry["launches"][place]["arguments"] for place in entry["order"]]
        assert (passed, entry["ends"]) == launched(turns, groups)
        assert {one["access"] for one in entry["arguments"].values()} == {"inout"}


def test_access_is_what_a_program_gives_and_a_result_in_scratch_is_refused(tmp_path: Path) -> None:
    for turns, access in ((6, {"b": "scratch"}), (7, {"b": "in"}), (7, {"b": "scratch"})):
        study = swapping(turns, ["ab"], **access)
        place = str(stored(tmp_path / f"{turns}{access['b']}.db", (DEVICE, 1024, at(2)), study=study))
        if (turns, access) == (7, {"b": "scratch"}):
            said = "arguments.a: after the number of turns for this size, its result is in b, which is scratch; it"
            with pytest.raises(StudyError, match=said):
                collect(study, CHOICES, database=place)
            continue
        (entry,) = json.loads(document(collect(study, CHOICES, database=place)).text)["entries"]
        assert {name: one["access"] for name, one in entry["arguments"].items()} == {
            "a": "inout", "b": "inout" if access["b"] == "in" else "scratch",
        }  # fmt: skip
        assert entry["ends"] == {"a": "b" if turns == 7 else "a"}


def test_a_best_whose_result_ends_in_scratch_is_left_out_and_counted(tmp_path: Path) -> None:
    study = swapping("2 + N % 2", ["ab"], b="scratch")
    catalogue = collected(tmp_path / "a.db", *((DEVICE, n, at(1)) for n in (64, 65, 66, 67)), study=study)
    note = "left out: 2 of a device and size: arguments.a: after the number of turns for this size, its result is in b"
    for written in (document(catalogue), header(catalogue)):
        assert written.bests == 2
        assert written.notes[-1].startswith(note)
    assert [entry["size"]["N"] for entry in json.loads(document(catalogue).text)["entries"]] == [64, 66]


def test_where_nothing_changes_places_outputs_lie_where_they_began(tmp_path: Path) -> None:
    catalogue = collected(tmp_path / "a.db", (DEVICE, 1000, at(1)))
    assert json.loads(document(catalogue).text)["entries"][0]["ends"] == {"y": "y"}
    assert "ENDS" not in header(catalogue).text


# `autotune export` -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ARTEFACTS)
def test_an_export_is_asked_for_well(tmp_path: Path, format: str) -> None:
    assert len(set(FORMATS)) == len(FORMATS), "a file for programs and another tool's have one name"
    stored(tmp_path / "a.db", (DEVICE, 1000, at(1)))
    run = CliRunner().invoke
    base = ["export", "--format", format, "--db", str(tmp_path / "a.db")]
    for words, said in (
        (base, "holds one study; say --study STUDY"),
        ([*base, "--study", "matmul"], "nothing is stored of matmul; autotune search matmul --db "),
        (
            [*base, "--study", "matmul", "--size", "64", "--choice", "T=int"],
            "matmul --size M=64,N=64,K=64 --choice T=int",
        ),
        (["export", "--embed"], "the lossless format holds"),
        (["export", "--prefix", "X"], "the lossless format holds"),
        (["export", "--format", "csv", "--study", "matmul", "--prefix", "X"], "--prefix: is only for header"),
    ):
        done = run(app, words)
        assert done.exit_code == 2
        assert said in done.stderr


def test_a_size_that_nothing_serves_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("saxpy.toml").write_text(TOML)
    Path("saxpy.cl").write_text(SOURCE)
    stored(Path("a.db"), (DEVICE, 1000, at(1)), (DEVICE, 64, at(3)), study=find_study("./saxpy.toml"))
    done = CliRunner().invoke(app, ["export", "--format", "table", "--study", "./saxpy.toml", "--db", "a.db"])
    assert done.exit_code == 0
    assert "left out: 1 of a device and size without a verified configuration of the study" in done.stderr
    assert "bests of saxpy written: 1" in done.stderr
