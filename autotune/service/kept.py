"""Answers of a server that are kept in the user's cache, for builds that ask again and for when it is away."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from autotune.identity import text_digest
from autotune.service.trust import FLOPS, MATCH, NOTES

_HEADERS = ("etag", MATCH, NOTES, FLOPS)
_MOST = 2**20


class Kept(NamedTuple):
    """An answer, when it was received (seconds since 1970), and until when it need not be asked for again."""

    headers: Mapping[str, str]
    body: bytes
    at: float
    until: float

    @classmethod
    def of(cls, headers: Mapping[str, str], body: bytes) -> Kept:
        """Return an answer as it will be kept, received now."""
        age = re.search(r"max-age=(\d{1,9})", headers.get("cache-control", ""))
        now = time.time()
        kept = {name: headers[name] for name in _HEADERS if name in headers}
        return cls(kept, body, now, now + (int(age[1]) if age else 0))

    @property
    def is_fresh(self) -> bool:
        """Whether it can be used without asking. A clock that was set back makes no answer fresh."""
        return self.at <= time.time() < self.until

    @property
    def taken(self) -> str:
        """When it was received, for people."""
        return f"{datetime.fromtimestamp(self.at, UTC):%Y-%m-%d %H:%M:%S} UTC"


class KeptAnswers:
    """The answers of one server to one user, a file each. An answer that cannot be kept is asked for again."""

    def __init__(self, server: str) -> None:
        self._folder = _cache() / hashlib.sha256(server.encode("utf-8", "replace")).hexdigest()[:24]

    def find(self, question: str) -> Kept | None:
        """Return the last good answer to a question."""
        try:
            with self._path(question).open("rb") as file:
                head, _, body = file.read(_MOST).partition(b"\n")
            told = json.loads(head)
            headers = {str(name): str(value) for name, value in told["headers"].items()}
            kept = Kept(headers, body, float(told["at"]), float(told["until"]))
            whole = told["question"] == question and told["digest"] == hashlib.sha256(body).hexdigest()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None
        return kept if whole else None

    def keep(self, question: str, answer: Kept) -> None:
        """Keep an answer in place of the previous one."""
        told = {
            "question": question,
            "headers": dict(answer.headers),
            "at": answer.at,
            "until": answer.until,
            "digest": hashlib.sha256(answer.body).hexdigest(),
        }
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(json.dumps(told).encode() + b"\n" + answer.body)
                Path(name).replace(self._path(question))
            except OSError:
                Path(name).unlink(missing_ok=True)

    def _path(self, question: str) -> Path:
        return self._folder / text_digest(question)


def _cache() -> Path:
    if own := os.environ.get("AUTOTUNE_CACHE"):
        return Path(own) / "servers"
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not base.is_absolute():
        base = Path(os.path.expanduser("~/.cache"))  # noqa: PTH111  stays as it is if there is no home
    return base / "autotune" / "servers"
