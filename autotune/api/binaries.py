"""Built programs on disk, one file per device, driver and source, so that the next process need not compile.

A binary is code. So a file is used only if no other user can have written it, and only if it is complete: programs
whose file is damaged are built again.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from platformdirs import user_cache_dir

from autotune.devices import BackendError, Guest, Program
from autotune.model import DeviceInfo

MOST_FILES = 1000
"""Files that are kept at most: those used last."""

_MAGIC = b"autotune binary 1\n"
log = logging.getLogger(__name__)


def folder() -> Path:
    """Return the folder of the binaries: `binaries` in AUTOTUNE_CACHE, else in the user's cache directory."""
    return Path(os.environ.get("AUTOTUNE_CACHE") or user_cache_dir("autotune")) / "binaries"


def key_of(info: DeviceInfo, source: str, options: Sequence[str]) -> str:
    """Return the file name for the binary of a source, built with these options by a driver for a device's model."""
    parts = (info.backend, info.platform, info.fingerprint, info.name, info.driver, source, *options)
    return hashlib.sha256("\0".join(part.replace("\0", " ") for part in parts).encode()).hexdigest()


def restore(guest: Guest, key: str, options: Sequence[str]) -> Program | None:
    """Return a program that was kept, or None if there is no complete one that the driver accepts."""
    place = folder() / key
    kept = _read(place)
    if kept is None:
        return None
    try:
        return guest.restore(kept, options)
    except BackendError as error:
        log.debug("%s is not taken: %s", place, error)
        return None


def keep(program: Program, key: str) -> None:
    """Write a program's binary, completely or not at all.

    It is not a failure if the folder cannot be written, or the driver does not return the binary.
    """
    place = folder()
    try:
        binary = program.binary
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not binary or not _is_ours(place.stat()):
            return
        descriptor, name = tempfile.mkstemp(prefix=".", dir=place)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(binary).digest() + binary)
            Path(name).replace(place / key)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        _tidy(place)
    except (OSError, BackendError) as error:
        log.debug("no binary is kept in %s: %s", place, error)


def _read(place: Path) -> bytes | None:
    """Return the binary in a file, or None if it is missing or incomplete, or another user can have written it."""
    try:
        with place.open("rb") as file:
            if not _is_ours(os.fstat(file.fileno())) or not _is_ours(place.parent.stat()):
                return None
            content = file.read()
        os.utime(place)
    except OSError:
        return None
    start = len(_MAGIC) + 32
    told, binary = content[len(_MAGIC) : start], content[start:]
    whole = content.startswith(_MAGIC) and hashlib.sha256(binary).digest() == told
    return binary if whole else None


def _is_ours(found: os.stat_result) -> bool:
    return found.st_uid == os.geteuid() and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _tidy(place: Path) -> None:
    """Remove the files that were not used for the longest time."""
    files = [entry for entry in os.scandir(place) if entry.is_file(follow_symlinks=False)]
    if len(files) > MOST_FILES:
        for entry in sorted(files, key=lambda one: one.stat(follow_symlinks=False).st_mtime)[: len(files) // 4]:
            with suppress(OSError):
                Path(entry.path).unlink()
