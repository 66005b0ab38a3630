"""`autotune export`: every trial as JSON lines, a study's in another tool's format, its bests for programs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from autotune import text
from autotune.cli.files import require_spare, writing
from autotune.cli.import_ import say_left_out
from autotune.cli.options import ChoiceOption, DatabaseOption, StoredDeviceOption, StoredSizeOption, load_study
from autotune.cli.output import say
from autotune.errors import UsageError
from autotune.exchange import WRITERS, gather, one
from autotune.lookup import ARTEFACTS, Asked, collect, device_meant
from autotune.store import Store, shown
from autotune.study import offered_choices, watched
from autotune.text import in_quotes, parse_choices, parse_size, require_known

LINES = "jsonl"
"""Our own format: the only one that keeps everything."""

FORMATS = (LINES, *ARTEFACTS, *WRITERS)


def _known_format(name: str) -> str:
    require_known("format", [name], FORMATS, where="--format")
    return name


def export_trials(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: stdout.")] = None,
    output: Annotated[
        str,
        typer.Option("--format", metavar="FORMAT", help=f"One of {', '.join(FORMATS)}.", callback=_known_format),
    ] = LINES,
    study: Annotated[
        str | None, typer.Option("--study", metavar="STUDY", help="What to write in another format.")
    ] = None,
    device: StoredDeviceOption = None,
    size: StoredSizeOption = None,
    choice: ChoiceOption = None,
    database: DatabaseOption = None,
    embed: Annotated[bool, typer.Option("--embed", help="Put the kernel's text into a header or a table.")] = False,
    prefix: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Prefix of a header's names. Default: the study and its choices."),
    ] = None,
) -> None:
    """Write stored trials, or the bests for programs.

    Without options, it writes every trial of all studies as one line of JSON: raw samples, outcome, and its problem.

    With --format and --study, it writes the best configurations of a study for programs: a C99 and C++ `header` with a
    function that chooses by device and size, or a `table` in JSON. Or it writes the study's trials in the format of
    another tool. --device, --size and --choice select; without them it writes all. What a format cannot hold is left
    out, and counted on stderr. The names in a header begin with --prefix, or with the study's name and the choices that
    are not its defaults, so that a program can include several headers.

    \b
    Examples:
      autotune export > trials.jsonl
      autotune export trials.jsonl
      autotune export sgemm_tuned.h --format header --study sgemm --embed
      autotune export cache.json --format kernel-tuner --study sgemm --device 0 --size 1024
      autotune export trials.db --format optuna --study sgemm && optuna-dashboard sqlite:///trials.db
    """
    if output == LINES:
        options = {"--study": study, "--device": device, "--size": size, "--choice": choice, "--prefix": prefix}
        for option in [name for name, given in options.items() if given is not None] + ["--embed"] * embed:
            what = f"every {option[2:]}" if option in ("--study", "--device", "--size", "--choice") else "trials alone"
            raise UsageError(f"the lossless format holds {what}", where=option, hint=f"leave {option} out")
        _export_lines(file, database)
        return
    if study is None:
        raise UsageError("holds one study", where=f"--format {output}", hint="say --study STUDY")
    if prefix is not None and output != "header":
        raise UsageError("is only for header", where="--prefix", hint="leave it out")
    asked = Asked(study, device, tuple(size or ()), tuple(choice or ()), database, output)
    if output in ARTEFACTS:
        _export_bests(asked, file, {"embed": embed, **({} if prefix is None else {"prefix": prefix})})
        return
    if embed:
        raise UsageError(f"is only for {' and '.join(ARTEFACTS)}", where="--embed", hint="leave it out")
    _export(asked, file)


def _export_lines(file: Path | None, database: str | None) -> None:
    count = 0
    if file is not None:
        require_spare(file, database)  # before the database is read
    with Store.to_read(database) as store, writing(file, database) as out:
        for line in store.export_lines():
            count += 1
            out.write(in_quotes(line.rstrip("\n"), pairs=True) + "\n")
    say(f"{text.count(count, 'trial')} exported" + (f" to {file}" if file else ""))


def _export_bests(asked: Asked, file: Path | None, options: Mapping[str, bool | str]) -> None:
    """Write a study's bests in a format of ARTEFACTS, with its `options`; each `--size` is a separate size."""
    with watched() as read:
        study, database = load_study(asked.study), asked.database
        devices = [] if asked.device is None else [device_meant(asked.device, database).fingerprint]
        wanted = [parse_size(size, study.sizes) for size in asked.sizes]
        catalogue = collect(
            study.text, parse_choices(asked.choices, offered_choices(study.text)), devices=devices, sizes=wanted,
            database=database, named=asked.study,
        )  # fmt: skip
    written = ARTEFACTS[asked.format](catalogue, **options)
    with writing(file, database, read) as out:
        out.write(written.text)
    for note in written.notes:
        say(note)
    if catalogue.without:
        say(f"left out: {catalogue.without} of a device and size without a verified configuration of the study")
    if catalogue.changed:
        say(f"left out: {catalogue.changed} of a device and size, as the study or its kernel has changed since")
    say(f"bests of {study.name} written: {written.bests}" + (f", to {file}" if file else ""))


def _export(asked: Asked, file: Path | None) -> None:
    """Write a study's trials in a format of WRITERS."""
    with watched() as read:
        study, writer, database = load_study(asked.study), WRITERS[asked.format], asked.database
        size = parse_size(asked.sizes, study.sizes) if asked.sizes else None
        choices = parse_choices(asked.choices, offered_choices(study.text)) if asked.choices else None
        model = None if asked.device is None else device_meant(asked.device, database).fingerprint
        with Store.to_read(database) as store:
            recordings, changed = gather(
                store, study, device=model, size=size, choices=choices, named=asked.study,
                database=None if database is None else shown(database),
            )  # fmt: skip
    if writer.single:
        one(recordings, asked.format)
    count = sum(len(recording.own) + len(recording.imported) for recording in recordings)
    if writer.database:
        left_out = writer.write(recordings, _new(file, asked.format))
    else:
        with writing(file, database, read) as out:
            left_out = writer.write(recordings, out)
    left_out["of another version of the study, or not valid in it"] += changed
    say_left_out(left_out)
    say(f"{text.count(count, 'trial')} of {study.name} looked at" + (f", written to {file}" if file else ""))


def _new(file: Path | None, format: str) -> Path:
    """Return the path of a database to be made. Raises UsageError without a path, or if something exists there."""
    if file is None or str(file) == "-":
        raise UsageError("is a database, not text", where=f"--format {format}", hint="give a FILE")
    if os.path.exists(file):
        raise UsageError("exists already, and is not overwritten", where=str(file), hint="name another file")
    if not os.path.isdir(folder := str(file.parent)):
        raise UsageError("cannot be written: no such folder", where=str(file), hint=text.typed(["mkdir", "-p", folder]))
    return file
