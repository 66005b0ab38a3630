"""The studies that a server knows: its own by name, and those that were uploaded, by name and text."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from autotune.errors import AutotuneError, StudyError
from autotune.identity import STUDY_NAME, in_order
from autotune.pool import RunFolder
from autotune.service import uploads
from autotune.service.answers import Refused
from autotune.service.config import Config
from autotune.service.newest import Newest
from autotune.store import ServerStore, Uploaded
from autotune.study import (
    YOUNG_NS,
    Study,
    StudyText,
    default_size,
    find_study,
    study_file,
    study_paths,
    watched,
)

_KEPT = 64


class _Own(NamedTuple):
    """A study of the server's, with the stamps that show whether its files have changed, valid until an instant."""

    text: StudyText
    stamps: Mapping[Path, tuple[int, int] | None]
    until: float


class _Order(NamedTuple):
    """The names of a study's size in its order, empty if not known, valid until an instant."""

    names: Sequence[str]
    until: float


class Studies:
    """Finds studies by name. A name is never read as a path; the server's own studies come before uploaded ones."""

    def __init__(self, store: ServerStore, config: Config) -> None:
        self._store = store
        self._config = config
        self._folder = RunFolder()
        self._read: Newest[str, StudyText] = Newest(_KEPT)
        self._own: dict[str, _Own] = {}
        self._none: Newest[str, float] = Newest(_KEPT)  # until when a name is known to be none of its own
        self._orders: dict[str, _Order] = {}

    def close(self) -> None:
        """Remove the unpacked studies."""
        self._folder.remove()

    def names(self) -> list[str]:
        """Return the names of the server's own studies."""
        return sorted(study_paths())

    def text(self, name: str, kernel_hash: str | None = None, study_hash: str | None = None) -> StudyText:
        """Return the study of that name, as `found`."""
        return self.found(name, kernel_hash, study_hash)[0]

    def of(self, name: str, kernel_hash: str, study_hash: str) -> StudyText:
        """Return the study of a stored problem: with its own text or, if that is no longer here, by its name."""
        try:
            return self.text(name, kernel_hash, study_hash)
        except Refused:
            return self.text(name)

    def found(
        self, name: str, kernel_hash: str | None = None, study_hash: str | None = None
    ) -> tuple[StudyText, Uploaded | None]:
        """Return the study of that name: the server's own, else the one uploaded last; with the hashes, if given.

        Also return who uploaded it, if it was uploaded. Raises Refused (404) if there is none, StudyError if it cannot
        be read.
        """
        if not re.fullmatch(STUDY_NAME, name) or name.endswith(".toml"):
            raise Refused(422, f"{name!r:.80} is not a name of a study", where="study")
        own = self.own(name)
        if own is not None and _is(own, kernel_hash, study_hash):
            return own, None
        for uploaded in self._store.uploads(name):
            text = self._text(uploaded.upload)
            if text is not None and _is(text, kernel_hash, study_hash):
                return text, uploaded
        if own is not None:
            hint = f"a search with yours uploads it; asked for only by its name, {name}, the server uses its own"
            raise Refused(404, f"the server's study {name} is another version", where="study", hint=hint)
        hint = (
            f"known by name: {', '.join(self.names())}; put yours with its kernel into ./studies where the server "
            "runs; if it searches, a search with yours uploads it"
        )
        raise Refused(404, f"no study named {name!r}", where="study", hint=hint)

    def upload(self, name: str, asked_by: str) -> Uploaded | None:
        """Return the study that somebody means by a name: what they searched last under it, else what anybody did.

        None if there is none, or if the server has its own.
        """
        if study_file(name) is not None:
            return None
        known = (one for whose in (asked_by, None) for one in self._store.uploads(name, whose))
        return next((one for one in known if self._text(one.upload) is not None), None)

    def load(self, name: str) -> Study:
        """Return a study of that name, validated."""
        return self.text(name).study

    def own(self, name: str) -> StudyText | None:
        """Return the server's own study of that name, read again if one of its files has changed.

        That there is none is remembered for a moment as well, because to find that out all studies are read.
        """
        if time.monotonic() < self._none.get(name, 0.0):
            return None
        known = self._own.get(name)
        if known is not None and time.monotonic() < known.until:
            return known.text
        if known is None or known.stamps != {path: stamp(path) for path in known.stamps}:
            if study_file(name) is None:
                self._own.pop(name, None)
                self._none[name] = time.monotonic() + self._config.best_age_s
                return None
            known = _read(name)
        self._own[name] = known._replace(until=time.monotonic() + self._config.best_age_s)
        return known.text

    def in_order(self, name: str, size: Mapping[str, int]) -> dict[str, int]:
        """Return a stored size in the order of the study of that name; unchanged if there is no such study."""
        known = self._orders.get(name)
        if known is None or time.monotonic() >= known.until:
            known = _Order(self._order_of(name), time.monotonic() + self._config.best_age_s)
            self._orders[name] = known
        return in_order(size, known.names)

    def _order_of(self, name: str) -> Sequence[str]:
        try:
            return list(default_size(self.text(name)))
        except AutotuneError:  # none is here, or its file is wrong
            return ()

    def _text(self, upload: Mapping[str, Any]) -> StudyText | None:
        """Return an uploaded study, unpacked once; None for one that this server does not accept (any more)."""
        name = uploads.digest(upload)
        found = self._read.get(name)
        if found is None:
            try:
                uploads.require_small(upload, self._config.limits)
                found = uploads.read_accepted(self._unpacked(upload, self._folder.path / name))
            except (AutotuneError, OSError):
                return None
            self._read[name] = found
        return found

    def _unpacked(self, upload: Mapping[str, Any], folder: Path) -> Path:
        """Return an upload's study file in a folder that is complete or absent, as others may read it meanwhile."""
        if not os.path.exists(folder):
            part = Path(tempfile.mkdtemp(dir=self._folder.path))
            try:
                uploads.unpack(upload, part)
                with suppress(OSError):  # another was faster
                    part.rename(folder)
            finally:
                shutil.rmtree(part, ignore_errors=True)
        return uploads.study_in(folder)


def _read(name: str) -> _Own:
    """Read a study of the server's, with what shows that it has changed since. Raises StudyError."""
    began_ns = time.time_ns()
    with watched() as files:
        text = find_study(name)
        _ = text.study_hash
    hiding = Path("studies") / f"{name}.toml"
    found = {path: stamp(path) for path in (*map(Path, list(files)), hiding)}
    # A young file is read again: it may have changed without a new stamp.
    young = {path for path, one in found.items() if one is not None and one[0] > began_ns - YOUNG_NS}
    return _Own(text, found | dict.fromkeys(young), 0.0)


def _is(text: StudyText, kernel_hash: str | None, study_hash: str | None) -> bool:
    try:
        return kernel_hash in (None, text.kernel_hash) and study_hash in (None, text.study_hash)
    except StudyError:
        return False


def stamp(path: Path) -> tuple[int, int] | None:
    """Return a file's time of writing and its bytes, or None if it is not there. Another stamp means other content."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
