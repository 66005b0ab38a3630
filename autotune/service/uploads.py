"""A study that came with a request: a TOML text and the files it names, nothing else.

It is unpacked into a folder of its own, the study into `upload` there, and can read only that folder. The files lie
relative to the study as they do at its author; the server's files and the bundled kernels are hidden from it. Nothing
of it is executed to find out what it is; a reference in Python needs `--allow-python`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import AutotuneError, StudyError
from autotune.identity import text_digest
from autotune.pool import RunFolder
from autotune.service.refused import Refused
from autotune.service.sending import BESIDE
from autotune.study import Study, StudyText, confined, read_study

if TYPE_CHECKING:
    from autotune.service.config import Limits

STUDY_FILE = "study.toml"

_STUDIES = "upload"

_NAME = re.compile(r"(?!\.)[A-Za-z0-9_.+-]{1,100}")
_MOST_LEVELS = 4


def require_small(upload: Mapping[str, Any], limits: Limits) -> None:
    """Raise Refused for an upload with too many or too large files, or with a name that no file should have."""
    files: Mapping[str, str] = upload["files"]
    if len(files) > limits.upload_files:
        raise Refused(413, f"{len(files)} files were sent, at most {limits.upload_files} may", where="upload.files")
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in (upload["study"], *files.values()))
    if size > limits.upload_bytes:
        raise Refused(413, f"{size:,} bytes were sent, at most {limits.upload_bytes:,} may", where="upload")
    seen: set[str] = set()
    for name in files:
        beside = BESIDE if name.startswith(BESIDE) else ""
        parts = name.removeprefix(beside).split("/")
        if len(parts) > _MOST_LEVELS or not all(_NAME.fullmatch(part) for part in parts) or name == STUDY_FILE:
            hint = f"write letters, digits, _ . + - and at most 3 folders before; .. in {BESIDE} alone, and no / first"
            raise Refused(422, f"{name!r:.120} is not a file name", where="upload.files", hint=hint)
        folders = {beside + "/".join(parts[:place]) for place in range(1, len(parts))}
        if name in seen or folders & files.keys():
            raise Refused(422, f"{name!r:.120} is a file and a folder", where="upload.files")
        seen |= {name, *folders}
    for text in (upload["study"], *files.values()):
        if "\0" in text or re.search("[\ud800-\udfff]", text):
            raise Refused(422, "holds bytes that no text file can have", where="upload", hint="send UTF-8 without NUL")


def unpack(upload: Mapping[str, Any], folder: Path) -> Path:
    """Write an upload into an empty folder; return the path of its study file."""
    study = study_in(folder)
    for name, text in {STUDY_FILE: upload["study"], **upload["files"]}.items():
        path = study.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return study


def study_in(folder: Path) -> Path:
    """Return the path of the study file of an upload that is unpacked in a folder."""
    return folder / _STUDIES / STUDY_FILE


def its_files(study: Path) -> AbstractContextManager[None]:
    """Within this context, allow reading only files that came with an unpacked study."""
    return confined(study.parent.parent)


@contextmanager
def unpacked(upload: Mapping[str, Any]) -> Iterator[Path]:
    """Yield the path of an upload's study file, in a folder that exists only within this context."""
    run = RunFolder()
    try:
        folder = run.path / "upload"
        folder.mkdir()
        with clear_of(str(folder)):
            yield unpack(upload, folder)
    finally:
        run.remove()


@contextmanager
def clear_of(folder: str) -> Iterator[None]:
    """Have errors name the files of an upload as its author does."""
    names = {f"{folder}/{_STUDIES}/": "", f"{folder}/{BESIDE[3:]}": BESIDE, folder: "the upload"}
    try:
        yield
    except AutotuneError as error:
        for part in ("what", "where", "hint", "detail"):
            said = getattr(error, part)
            for place, name in names.items():
                said = said.replace(place, name)
            setattr(error, part, said)
        error.args = (error.what,)
        raise


class Accepted(StudyText):
    """An unpacked study that was checked when it was uploaded; it is checked again only when its `study` is used."""

    @cached_property
    def study(self) -> Study:
        """The text validated, once. Raises StudyError."""
        with its_files(self.path):
            return Study.from_text(self)


def read(path: Path, *, allow_python: bool) -> StudyText:
    """Return an unpacked study, checked. This takes time, so call it in a process with limits.

    Raises StudyError for an error, or for a study that must not be run here.
    """
    text = read_accepted(path)
    if not allow_python and (where := _python_in(text.table)):
        hint = "give it as numpy, kernel or file, or ask for a server started with --allow-python"
        raise StudyError("this server does not run Python of others", where=where, hint=hint)
    study = text.study
    if study.name != text.name or callable(study.reference.function):
        raise StudyError("holds what only a caller in Python can give", where="reference")
    return text


def read_accepted(path: Path) -> StudyText:
    """Return an unpacked study with its hashes, unchecked. Raises StudyError if it cannot be read."""
    with its_files(path):
        text = Accepted(*read_study(path))
        _ = text.kernel_hash, text.study_hash  # computed while only its own files can be read
        return text


def _python_in(table: Mapping[str, Any]) -> str:
    """Return the key of a study that names Python to be run, or "" if none does."""
    arguments = table.get("arguments")
    entries = {"reference": table.get("reference")}
    if isinstance(arguments, Mapping):
        entries |= {
            f"arguments.{name}.data": one.get("data") for name, one in arguments.items() if isinstance(one, dict)
        }
    return next((f"{key}.python" for key, one in entries.items() if isinstance(one, Mapping) and "python" in one), "")


def digest(upload: Mapping[str, Any]) -> str:
    """Return a short digest of an upload's text."""
    return text_digest(json.dumps([upload["study"], upload["files"]], sort_keys=True))
