"""`autotune import`: JSON lines as trials, and other tools' files."""

from __future__ import annotations

import io
import json
from collections import Counter
from gzip import GzipFile
from pathlib import Path
from typing import IO, Annotated

import typer

from autotune import text
from autotune.cli import options
from autotune.cli.output import opened_bytes, say, warn
from autotune.errors import UsageError, placed
from autotune.exchange import (
    HEADER,
    READERS,
    UNPACKING,
    Document,
    adopt,
    choices_of,
    device_of,
    element_of,
    is_foreign,
    is_packed,
    read,
    require_element,
    size_of,
)
from autotune.store import Store, checked_lines
from autotune.study import offered_choices, problem_key
from autotune.text import require_known

_BEGINNING = 2**16
MOST_HEADER = 2**20
"""The most characters of a file's header, which is everything beside its trials."""


def _known_format(name: str | None) -> str | None:
    require_known("format", () if name is None else [name], READERS, where="--from")
    return name


def import_trials(
    file: Annotated[Path | None, typer.Argument(metavar="FILE", help="Default: stdin.")] = None,
    origin: Annotated[
        str | None,
        typer.Option("--from", metavar="FORMAT", help=f"One of {', '.join(READERS)}.", callback=_known_format),
    ] = None,
    study: Annotated[str | None, typer.Option("--study", metavar="STUDY", help="What another tool tuned.")] = None,
    device: options.TheirDeviceOption = None,
    size: options.TheirSizeOption = None,
    choice: options.ChoiceOption = None,
    rename: Annotated[
        list[str] | None,
        typer.Option("--rename", metavar="THEIRS=OURS", help="The study's name of a parameter. Repeatable."),
    ] = None,
    fix: Annotated[
        list[str] | None,
        typer.Option("--fix", metavar="NAME=V[,V]", help="Keep these; the value where the file has none. Repeatable."),
    ] = None,
    database: options.DatabaseOption = None,
) -> None:
    """Add trials that `autotune export` or another tool wrote.

    Trials that are stored already are not added again. If a line or an entry is wrong, nothing is added, and it is
    named. Times that another tool measured are not results here: they tell the next search where to look, and their
    fastest configurations are measured first.

    \b
    Examples:
      autotune import trials.jsonl
      ssh lab autotune export | autotune import
      autotune import cache.json --study ./blur.toml --device 0 --size N=4096
      autotune import xgemm.json --study xgemm --rename MWG=TILE_M,NWG=TILE_N
    """
    where = str(file or "stdin")
    with opened_bytes(file) as stream:
        beginning = stream.read(_BEGINNING)
        whole = io.BufferedReader(_Joined(beginning, stream))
        if origin is None and study is None and not is_foreign(beginning):
            if any(given for given in (device, size, choice, rename, fix)):
                raise UsageError(
                    "says itself which study, device and size its trials are of",
                    where=where,
                    hint="leave the options out",
                )
            unpacked = GzipFile(fileobj=whole) if is_packed(beginning) else whole
            # Editors and shells of Windows begin a file with a mark (BOM), which is not content.
            _import_lines(io.TextIOWrapper(unpacked, encoding="utf-8-sig"), where, database)
            return
        name, document = read(whole, where, origin)
    if study is None:
        what = f"holds {READERS[name].about}{_of(document)}"
        raise UsageError(what, where=where, hint="say which study they are of: --study STUDY; nothing was imported")
    tuned = options.load_study(study)
    renamed = options.assigned(rename, "--rename")
    parameters = {known: parameter.values for known, parameter in tuned.parameters.items()}
    with placed(where, UsageError):
        meant = device_of(document, device, database)
        meant_size, source = size_of(document, size or (), tuned.sizes)
        choices = choices_of(document, choice or (), offered_choices(tuned.text))
        require_element(document, element_of(tuned, choices))
        wanted = options.assignments(fix, "--fix")
        adopted = adopt(document, parameters, format=name, file=where, rename=renamed, fix=wanted)
        told = {"format": name, "file": Path(where).name, "device": document.device, "kernel": document.kernel}
        told[HEADER] = _header(document)
    key = problem_key(tuned.text, meant_size, choices, meant.fingerprint)
    with Store.open(database) as store:
        count = store.adopt(key, meant.info, adopted.trials, told)
    for note in meant.notes:
        say(note)
    if document.device and meant.info is not None and document.device.lower() not in meant.info.name.lower():
        warn(f"the file is of {document.device}; its trials are kept for {meant.fingerprint}")
    say(f"{where}: {READERS[name].about}{_of(document)}, kept for {meant.fingerprint}")
    if meant_size:
        say(f"size {text.pairs(meant_size)}, from {source}")
    if named := tuned.chosen(choices):
        say(f"choices {text.pairs(named)}")
    for note in adopted.notes:
        say(note)
    say_left_out(adopted.left_out)
    say(f"{text.count(count, 'new trial')} imported, none of them a result before it is measured here")
    other = {} if meant_size == tuned.sizes else meant_size
    again = options.command("search", study, None, other, tuned.chosen(choices), database)
    say(f"to measure the fastest of them first: {again} -d {meant.fingerprint}")


def _import_lines(lines: IO[str], where: str, database: str | None) -> None:
    Store.to_read(database).close()  # a bad database is reported before lines are read; bad lines make no database
    count = 0
    try:
        with checked_lines(lines, where) as (waiting, found):
            if found:
                with Store.open(database) as store:
                    count = store.import_checked(waiting, found)
    except UnicodeDecodeError as error:
        hint = "save it as such: PowerShell's > writes UTF-16; nothing was imported"
        raise UsageError("is not text in UTF-8", where=where, hint=hint) from error
    except UNPACKING as error:
        raise UsageError(f"cannot be unpacked: {error}", where=where, hint="nothing was imported") from None
    say(f"{text.count(count, 'new trial')} imported")


def say_left_out(left_out: Counter[str]) -> None:
    """Say what could not be imported, by reason, the most frequent first."""
    reasons = [(reason, count) for reason, count in left_out.most_common() if count]
    for reason, count in reasons[:8]:
        say(f"left out: {text.count(count, 'trial')} {reason}")
    if rest := sum(count for _, count in reasons[8:]):
        say(f"left out: {text.count(rest, 'trial')} for other reasons")


def _of(document: Document) -> str:
    kernel = f" of {document.kernel:.80}" if document.kernel else ""
    return kernel + (f" on {document.device:.80}" if document.device else "")


def _header(document: Document) -> str:
    try:
        header = json.dumps(document.header)
    except RecursionError:
        header = ""
    if not header or len(header) > MOST_HEADER:
        raise UsageError(f"has more than {MOST_HEADER} characters beside its trials", hint="nothing was imported")
    return header


class _Joined(io.RawIOBase):
    """The part of a stream that was already read, followed by the rest."""

    def __init__(self, beginning: bytes, rest: IO[bytes]) -> None:
        self._beginning = beginning
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]
        part = self._beginning[: len(buffer)] or self._rest.read(len(buffer))
        self._beginning = self._beginning[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)
