"""Fixtures that several test files share."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack, nullcontext
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, NullPool, create_engine
from typer.main import get_command

from autotune.devices import Session, open_session, traits
from autotune.model import DeviceInfo
from autotune.reports import Inspector
from autotune.store import Store
from autotune.study import Problem
from tests import brief, postgres
from tests.covered import COVERED_BY
from tests.devices import device_here
from tests.sessions import building_once
from tests.studies import study

SLOWEST_FIRST = ("cluster", "browser", "device")

# Keep compiled bytecode, as for users, even if the environment turns that off. Otherwise each process of pytest, and
# each process that a test starts, would compile everything that it imports of this package and of the tests again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # Ignored signals are inherited: under `nohup` the programs that tests start would ignore it too.
    signal.signal(signal.SIGHUP, lambda *_: None)
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a background job of a script
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine may make or run an example slowly, which is not a fault of the tested code.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude what is collected from Python's garbage collection, because it stays to the end."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use the server's fixture as `server`, and sort slow files first.

    Modules that need a device mark themselves. All tests of a file run in one worker: files that take minutes begin
    first, so that none is left alone at the end.
    """
    ranks: dict[Path, int] = {}
    for item in items:
        if "postgres_url" in getattr(item, "fixturenames", ()):
            item.add_marker("server")
        marks = (item.get_closest_marker(name) for name in SLOWEST_FIRST)
        rank = next((place for place, mark in enumerate(marks) if mark), len(SLOWEST_FIRST))
        ranks[item.path] = min(rank, ranks.get(item.path, rank))
    items.sort(key=lambda item: ranks[item.path])


@pytest.fixture(autouse=True, scope="session")
def own_locks() -> Iterator[None]:
    """Use separate folders for locks and kept builds in these tests: other tests may run at the same time."""
    with tempfile.TemporaryDirectory(prefix="autotune-test-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_LOCKS", folder)
        patch.setenv("AUTOTUNE_CACHE", folder)
        yield


@pytest.fixture(autouse=True, scope="session")
def shared_builds(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[None]:
    """Have the workers of these searches keep their builds for later searches, in all of pytest's processes."""
    base = tmp_path_factory.getbasetemp()
    kept = (base if worker_id == "master" else base.parent) / "builds"
    kept.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        brief.share_builds(patch.setattr, kept)
        patch.setenv(brief.BUILDS, str(kept))
        yield


@pytest.fixture(autouse=True, scope="session")
def brief_finales() -> Iterator[None]:
    """Time the finalists of these searches for half a second."""
    with pytest.MonkeyPatch.context() as patch:
        brief.shorten_finales(patch.setattr)
        yield


@pytest.fixture(autouse=True, scope="session")
def one_command_line() -> Iterator[None]:
    """Cache Typer's commands: its runner makes all of them anew at each call, which takes longer than most of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture(autouse=True, scope="session")
def written_once() -> Iterator[None]:
    """Share compiled statements: SQLAlchemy writes each anew for each opened database, slower than SQLite runs it."""
    first = create_engine("sqlite://", poolclass=NullPool)
    first.connect().close()  # so that its dialect knows the database's version

    def created(*args: object, **options: object) -> Engine:
        engine = create_engine(*args, **options)
        if engine.dialect.name == first.dialect.name:
            engine.dialect = engine.pool._dialect = first.dialect
            engine._compiled_cache = first._compiled_cache
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("autotune.store.database.create_engine", created)
        yield


@pytest.fixture(autouse=True)
def untraced(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes of a test marked `untraced` without coverage."""
    if request.node.get_closest_marker("untraced"):
        for name in COVERED_BY:
            monkeypatch.delenv(name, raising=False)


@pytest.fixture
def problem() -> Problem:
    """The problem of the small study."""
    return Problem(study())


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A newly made database: making one takes several times as long as opening it."""
    made = tmp_path_factory.mktemp("empty") / "a.db"
    with Store.open(str(made)):
        return made


@pytest.fixture
def store(tmp_path: Path, empty_database: Path) -> Iterator[Store]:
    """An empty database for each test."""
    own = shutil.copy(empty_database, tmp_path / "a.db")
    with Store.open(str(own)) as opened:
        yield opened


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where to make a database, of each kind."""
    return str(tmp_path / "a.db") if request.param == "sqlite" else str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user can reach: pytest closes its own folders to others, again at each run."""
    with tempfile.TemporaryDirectory(prefix="autotune-test-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def postgres_url(postgres_server: str) -> str:
    """The URL of an empty PostgreSQL database; skips if no server can be started."""
    postgres.clear(postgres_server)
    return postgres_server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The URL of a PostgreSQL server for the tests."""
    with tempfile.TemporaryDirectory(prefix="autotune-test-") as folder:
        Path(folder).chmod(0o755)  # the server runs as an ordinary user
        with postgres.server(Path(folder)) as url:
            yield url


@pytest.fixture(scope="module")
def device() -> DeviceInfo:
    """The device that kernels run on."""
    return device_here()


@pytest.fixture(scope="module")
def session(device: DeviceInfo) -> Session:
    """A session on it."""
    return building_once(open_session(device))


@pytest.fixture(scope="module")
def one_compiler() -> Iterator[None]:
    """Have one process compile these drafts, one after another, because each new process would start a driver.

    test_inspect.py tests that each draft has its own process, and what happens if one fails.
    """
    with ExitStack() as opened, pytest.MonkeyPatch.context() as patch:
        kept = cache(lambda device: opened.enter_context(Inspector(device)))
        patch.setattr("autotune.cli.new.Inspector", lambda device: nullcontext(kept(device)))
        yield


@pytest.fixture
def links(device: DeviceInfo) -> None:
    """Skips if the driver, unlike PoCL's, calls no linker when it launches."""
    if not traits(device).builds_at_launch:
        pytest.skip(f"{device.name} needs no linker")


@pytest.fixture(autouse=True)
def doubles(request: pytest.FixtureRequest) -> None:
    """Skips a test marked `doubles` if the driver has no `double`."""
    if request.node.get_closest_marker("doubles"):
        device = device_here()
        if "cl_khr_fp64" not in device.extensions:
            pytest.skip(f"{device.name} has no double")


@pytest.fixture(autouse=True)
def processor(request: pytest.FixtureRequest) -> None:
    """Skips a test marked `processor` if a device with its own cores was chosen."""
    if request.node.get_closest_marker("processor"):
        device = device_here()
        if not traits(device).shares_cores:
            pytest.skip(f"{device.name} is no processor that compiles as well")
