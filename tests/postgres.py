"""A PostgreSQL server for the tests, if its programs and a driver are installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import wait_until


@contextmanager
def server(folder: Path) -> Iterator[str]:
    """Start a server in an empty folder and yield its URL; skip the test if none can be started."""
    pytest.importorskip("psycopg")
    initdb = _program("initdb")
    if initdb is None or _program("postgres") is None:
        pytest.skip("needs PostgreSQL's initdb and postgres")
    command = [initdb, "-D", folder / "data", "-A", "trust", "-U", "tester", "--no-sync"]
    subprocess.run(command, check=True, **_common(folder))
    with start(folder) as process:
        try:
            _wait(folder)
            yield f"postgresql://tester@/postgres?host={folder}"
        finally:
            process.terminate()


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start a server in the folder of `server`, for the first time or again."""
    options = ["-c", "listen_addresses=", "-c", "fsync=off", "-k", str(folder)]
    return subprocess.Popen([_program("postgres") or "", "-D", folder / "data", *options], **_common(folder))


def _program(name: str) -> str | None:
    """Find a program of PostgreSQL; Debian keeps those of each version in a folder that is not on the PATH."""
    places = os.pathsep.join([os.environ.get("PATH", ""), *map(str, Path("/usr/lib/postgresql").glob("*/bin"))])
    return shutil.which(name, path=places)


def _common(folder: Path) -> dict[str, Any]:
    identity = _ordinary_user(folder)
    return {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **identity}


def clear(url: str) -> None:
    """Empty the database."""
    import psycopg

    with psycopg.connect(url) as connection:
        connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


def _ordinary_user(folder: Path) -> dict[str, Any]:
    """Return options to run as an ordinary user: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    shutil.chown(folder, "nobody")
    return {"user": "nobody"}


def _wait(folder: Path) -> None:
    import psycopg

    def answers() -> bool:
        try:
            psycopg.connect(f"postgresql://tester@/postgres?host={folder}").close()
        except psycopg.OperationalError:
            return False
        return True

    wait_until(answers, lambda: "PostgreSQL did not start")
