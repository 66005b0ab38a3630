"""What is sent with a search beside its requests: its problem, its data and its Python, by digests, in pieces.

A claim names the digests. The device is then sent only what it lacks: data that the next search uses too is not sent
again. A worker reads no file of its own in place of a packed one.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import pickle
import shutil
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from autotune.cluster import tasks
from autotune.cluster.failures import refused
from autotune.errors import AutotuneError, SetupError, StudyError

PIECE = 16 * 2**20
"""Bytes of a message. The scheduler and both ends hold a few messages at a time."""

_AT_ONCE = 4
"""How many devices are sent something at a time."""

_ANSWER_S = 120.0
"""Seconds that a device may take to store a piece."""


class Item(NamedTuple):
    """A file that is sent: its path in the study's folder there, and the digest of its content."""

    path: str
    digest: str


class Luggage:
    """The sending side: contents, and files that are read when they are sent, by their digests."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self._contents: dict[str, bytes | Path] = {}
        self._turn = asyncio.Semaphore(_AT_ONCE)

    def add(self, content: bytes | Path) -> str:
        """Add a content or a file; return its digest. Raises StudyError if it cannot be read."""
        try:
            digest = _digest(content)
            self.sizes[digest] = len(content) if isinstance(content, bytes) else content.stat().st_size
        except OSError as error:
            raise StudyError(f"cannot be read: {error.strerror}", where=str(content)) from None
        self._contents[digest] = content
        return digest

    def piece(self, digest: str, begin: int) -> bytes:
        """Return the next part of a content, up to PIECE bytes. Raises SetupError if the file has no more."""
        content = self._contents[digest]
        if isinstance(content, bytes):
            return content[begin : begin + PIECE]
        try:
            with content.open("rb") as file:
                file.seek(begin)
                found = file.read(min(PIECE, self.sizes[digest] - begin))
        except OSError as error:
            raise SetupError(f"cannot be read: {error.strerror}", where=str(content)) from None
        if not found and self.sizes[digest]:
            raise SetupError("has changed since the search began", where=str(content), hint="type the search again")
        return found

    async def send(self, client: Any, worker: str, digests: Iterable[str]) -> Mapping[str, Any]:
        """Have a worker store what it lacks; return nothing, or its answer if it refuses. May raise one of `lost`.

        Raises SetupError if a file has changed.
        """
        async with self._turn:
            for digest in digests:
                if refused := await self._send(client, worker, digest):
                    return refused
        return {}

    async def _send(self, client: Any, worker: str, digest: str) -> Mapping[str, Any]:
        there, nbytes = -1, self.sizes[digest]
        while there < nbytes:
            begin = max(there, 0)
            data = await asyncio.to_thread(self.piece, digest, begin)
            request = pickle.dumps({"digest": digest, "begin": begin, "data": data, "nbytes": nbytes})
            asked = client.run(tasks.keep, request, workers=[worker])
            answer: Mapping[str, Any] = (await asyncio.wait_for(asked, _ANSWER_S))[worker]
            if "refused" in answer:
                return answer
            there = answer["there"]
        return {}


class Depot:
    """The receiving side: a folder of contents by their digests. Use it from any thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = threading.Lock()

    def lacks(self, digests: Iterable[str]) -> list[str]:
        """Return which of these contents are not here, or not complete."""
        return [digest for digest in digests if not os.path.isfile(self._place(digest))]

    def put(self, digest: str, begin: int, data: bytes, nbytes: int) -> int:
        """Store a piece of a content; return how many of its bytes are here. Raises SetupError if there is no room.

        A piece that is not the next one, as if two searches send the same, is dropped.
        """
        with _writing_to(self._folder), self._turn:
            return self._put(self._place(digest), begin, data, nbytes)

    async def keep(self, piece: Mapping[str, Any]) -> dict[str, Any]:
        """Store a piece, and answer how many bytes of its content are there, or what is wrong."""
        try:
            return {"there": await asyncio.to_thread(self.put, **piece)}
        except AutotuneError as error:
            return refused(error)

    def keep_only(self, digests: Collection[str]) -> None:
        """Remove all other contents."""
        with self._turn:
            for path in self._folder.glob("*"):
                if path.name not in digests:
                    path.unlink(missing_ok=True)

    def read(self, digest: str) -> bytes:
        """Return a content. Raises SetupError if it is not what was packed."""
        with _reading(place := self._place(digest)):
            content = place.read_bytes()
        self._require(digest, content)
        return content

    def lay(self, items: Iterable[Item], folder: Path) -> None:
        """Put files where a study finds them. Raises SetupError if that fails, or if a file is not what was packed."""
        for item in items:
            path, place = _inside(folder, item.path), self._place(item.digest)
            with _reading(place):
                place.stat()
            with _writing_to(folder):
                path.parent.mkdir(parents=True, exist_ok=True)
                _lay(place, path)
            self._require(item.digest, path)

    def close(self) -> None:
        """Remove everything."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _put(self, place: Path, begin: int, data: bytes, nbytes: int) -> int:
        if os.path.exists(place):
            return nbytes
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = place.with_suffix(".part")
        try:
            with part.open("ab") as file:
                if file.tell() == begin:
                    file.write(data)
                there = file.tell()
        except OSError:  # without room, free what was taken for others
            part.unlink(missing_ok=True)
            raise
        if there >= nbytes:
            part.rename(place)
        return there

    def _place(self, digest: str) -> Path:
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise SetupError(f"no digest of a file: {digest!r:.80}")
        return self._folder / digest

    def _require(self, digest: str, content: bytes | Path) -> None:
        """Check the digest at the time of use: until then a file may have been changed or replaced."""
        if _digest(content) != digest:
            self._place(digest).unlink(missing_ok=True)
            hint = "leave its files alone while it runs, and type the search again"
            raise SetupError("a file of the study is not the one that the search began with", hint=hint)


@contextmanager
def _reading(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SetupError(f"a file of the study is gone: {error.strerror}", where=str(place)) from None


@contextmanager
def _writing_to(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what = f"a file of the study cannot be written to {folder}: {error.strerror or error}"
        raise SetupError(what, hint="make room, or set TMPDIR to a folder that has it") from None


def _digest(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    with content.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _inside(folder: Path, name: str) -> Path:
    """Return the path of that name in a folder. Raises SetupError for a path outside it."""
    path = folder / name
    if "\0" in name or not path.resolve().is_relative_to(folder.resolve()) or path == folder:
        raise SetupError(f"a file of the study lies outside its folder: {name!r:.80}")
    return path


def _lay(content: Path, path: Path) -> None:
    """Link a file, which may be large. Python, which may be run and may write to itself, is copied."""
    if path.suffix != ".py":
        with suppress(OSError):  # on another file system, or one without links
            os.link(content, path)
            return
    shutil.copyfile(content, path)
