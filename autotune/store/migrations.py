"""Migrations that bring the tables to the form in schema.py.

A migration is never edited after its release: users' databases have run it. A new column needs one function appended
to MIGRATIONS, its line in the table, and `tests/data/version_N.db`, written by the version that has N migrations.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Connection, inspect, text

from autotune.errors import StoreError
from autotune.store import standings
from autotune.store.database import UTF8
from autotune.store.location import SCHEMA_VERSION, TABLES, is_ours, version_in
from autotune.store.presence import is_recent
from autotune.store.queries import has_died

_MIGRATION_LOCK = 0x6175746F  # "auto": one number that every process of this program agrees on


def migrate(connection: Connection, where: str) -> None:
    """Bring the database to SCHEMA_VERSION within the caller's transaction, which must exclude other writers.

    Raises StoreError if the database is newer than this program or has tables of another one, and if a search of an
    older program is using it.
    """
    if connection.dialect.name == "postgresql":
        # With SQLite, the caller has the write lock already; PostgreSQL lets two processes create tables at once.
        connection.execute(text("SET LOCAL lock_timeout = 0"))  # another process's migration may take long
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
    version = stored_version(connection, where)
    if version == 0 and connection.dialect.name == "postgresql":
        _require_every_text(connection, where)
    if 0 < version < SCHEMA_VERSION:
        if connection.dialect.name == "postgresql":
            _require_owner(connection, version, where)
            # From here on nobody can begin to write.
            connection.execute(text("LOCK TABLE schema_version IN ACCESS EXCLUSIVE MODE"))
        _require_rest(connection, version, where)
    for migration in MIGRATIONS[version:]:
        migration(connection)
    if version == 0:
        connection.execute(text("INSERT INTO schema_version (version) VALUES (:new)"), {"new": SCHEMA_VERSION})
    elif version < SCHEMA_VERSION:
        connection.execute(text("UPDATE schema_version SET version = :new"), {"new": SCHEMA_VERSION})


def _require_every_text(connection: Connection, where: str) -> None:
    """Raise StoreError where a new database could not hold what a compiler may say: a search would end at that."""
    encoding = connection.execute(_ENCODING).scalar()
    if encoding not in ("UTF8", "SQL_ASCII"):
        raise StoreError(f"is encoded in {encoding}, which does not have every character", where=where, hint=UTF8)


_ENCODING = text("SHOW server_encoding")


def _require_owner(connection: Connection, version: int, where: str) -> None:
    """Raise StoreError if this session may not alter the tables: a role that only uses them, or a standby."""
    if not connection.execute(_MAY_ALTER).scalar():
        what = f"is of version {version}, to become {SCHEMA_VERSION}, and this role or server may not alter its tables"
        hint = "have the role that made them open it once, where it may be written: autotune studies --db URL"
        raise StoreError(what, where=where, hint=hint)


_MAY_ALTER = text("""
SELECT pg_has_role(relowner, 'USAGE') AND current_setting('transaction_read_only') = 'off'
FROM pg_class WHERE oid = 'schema_version'::regclass
""")


def _require_rest(connection: Connection, version: int, where: str) -> None:
    """Raise StoreError if a search runs on an older version: it would not update the columns and tables it lacks.

    Version 7 and later ones check the version in each transaction (`Access._written`), but would lose their work.
    """
    for started, environment, begun in connection.execute(_AT_WORK):
        if not has_died(started, environment) and is_recent(begun or started):
            what = f"is of version {version}, to become {SCHEMA_VERSION}, but a search of an older autotune is running"
            hint = "type it again once that has ended; one that was killed elsewhere is waited for an hour"
            raise StoreError(what, where=where, hint=hint)


_AT_WORK = text("""
SELECT s.started, s.environment, MAX(t.started) FROM searches s LEFT JOIN trials t ON t.search_id = s.id
WHERE s.ended IS NULL GROUP BY s.id, s.started, s.environment
""")


VERSION = text("SELECT version FROM schema_version")


def is_current(connection: Connection, where: str) -> bool:
    """Return whether the database has tables. Raises StoreError if it would first have to be migrated."""
    version = stored_version(connection, where)
    if version not in (0, SCHEMA_VERSION):
        what = f"is of version {version} and may not be written: it would have to become {SCHEMA_VERSION}"
        raise StoreError(what, where=where, hint="give --db a copy of it")
    return version > 0


def stored_version(connection: Connection, where: str) -> int:
    """Return the version of the database; 0 for an empty one.

    Raises StoreError for another program's tables, and for a newer or invalid version.
    """
    tables = set(inspect(connection).get_table_names())
    if connection.dialect.name == "postgresql" and not tables & {"schema_version", *TABLES}:
        return 0  # a server's database may be shared with other programs
    if not is_ours(tables, where):
        return 0
    return version_in(connection.execute(VERSION).scalar(), where)


def _run(connection: Connection, statements: str) -> None:
    identity = "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
    if connection.dialect.name == "sqlite":
        identity = "INTEGER PRIMARY KEY"
    for statement in statements.split(";"):
        if statement.strip():
            connection.exec_driver_sql(statement.replace("IDENTITY_KEY", identity))


def _first(connection: Connection) -> None:
    """Devices, problems, searches, trials and their re-timings."""
    _run(
        connection,
        """
        CREATE TABLE schema_version (version INTEGER NOT NULL);

        CREATE TABLE devices (
            id IDENTITY_KEY,
            facts_hash TEXT NOT NULL UNIQUE,
            fingerprint TEXT NOT NULL,
            name TEXT NOT NULL,
            driver TEXT NOT NULL,
            facts TEXT NOT NULL
        );
        CREATE INDEX devices_by_fingerprint ON devices (fingerprint);

        CREATE TABLE problems (
            id IDENTITY_KEY,
            study TEXT NOT NULL,
            kernel_hash TEXT NOT NULL,
            study_hash TEXT NOT NULL,
            device TEXT NOT NULL,
            size TEXT NOT NULL,
            choices TEXT NOT NULL,
            UNIQUE (study, kernel_hash, study_hash, device, size, choices)
        );

        CREATE TABLE searches (
            id IDENTITY_KEY,
            uuid TEXT NOT NULL UNIQUE,
            problem_id BIGINT NOT NULL REFERENCES problems (id),
            generation INTEGER NOT NULL,
            sampler TEXT NOT NULL,
            seed BIGINT,
            environment TEXT NOT NULL,
            started TEXT NOT NULL,
            ended TEXT,
            reason TEXT NOT NULL
        );
        CREATE INDEX searches_by_problem ON searches (problem_id);

        CREATE TABLE search_devices (
            search_id BIGINT NOT NULL REFERENCES searches (id),
            device_id BIGINT NOT NULL REFERENCES devices (id),
            PRIMARY KEY (search_id, device_id)
        );

        CREATE TABLE trials (
            id IDENTITY_KEY,
            uuid TEXT NOT NULL UNIQUE,
            search_id BIGINT NOT NULL REFERENCES searches (id),
            device_id BIGINT REFERENCES devices (id),
            configuration TEXT NOT NULL,
            configuration_hash TEXT NOT NULL,
            outcome TEXT NOT NULL,
            reason TEXT NOT NULL,
            time_ns DOUBLE PRECISION,
            samples_ns TEXT,
            warmup_ns TEXT,
            cache TEXT,
            max_error DOUBLE PRECISION,
            build_s DOUBLE PRECISION NOT NULL,
            verify_s DOUBLE PRECISION NOT NULL,
            time_s DOUBLE PRECISION NOT NULL,
            build_log TEXT NOT NULL,
            binary_hash TEXT NOT NULL,
            driver TEXT NOT NULL,
            device_index INTEGER,
            started TEXT,
            finished TEXT,
            environment TEXT NOT NULL
        );
        CREATE INDEX trials_by_search ON trials
            (search_id, outcome, driver, configuration_hash, time_ns, finished);
        CREATE INDEX trials_by_configuration ON trials (configuration_hash);
        CREATE INDEX trials_by_start ON trials (started);

        CREATE TABLE retimings (
            id IDENTITY_KEY,
            uuid TEXT NOT NULL UNIQUE,
            trial_id BIGINT NOT NULL REFERENCES trials (id),
            driver TEXT NOT NULL,
            time_ns DOUBLE PRECISION NOT NULL,
            samples_ns TEXT NOT NULL,
            warmup_ns TEXT NOT NULL,
            cache TEXT NOT NULL,
            taken TEXT NOT NULL
        );
        CREATE INDEX retimings_by_trial ON retimings (trial_id)
        """,
    )


def _made(connection: Connection) -> None:
    """How a trial was built and launched, for look-ups that compute nothing; an index to find the fastest trials."""
    _run(
        connection,
        """
        ALTER TABLE trials ADD COLUMN made TEXT;
        CREATE INDEX trials_by_time ON trials (search_id, outcome, driver, time_ns)
        """,
    )


def _origin(connection: Connection) -> None:
    """Which trials another tool made, and its entries for them."""
    _run(connection, "ALTER TABLE trials ADD COLUMN origin TEXT")


def _standings(connection: Connection) -> None:
    """A summary for look-ups instead of the indexes that they used; and the number of a problem's trials."""
    _run(
        connection,
        """
        ALTER TABLE problems ADD COLUMN trials INTEGER NOT NULL DEFAULT 0;
        CREATE TABLE standings (
            problem_id BIGINT NOT NULL REFERENCES problems (id),
            driver TEXT NOT NULL,
            generation INTEGER NOT NULL,
            configuration_hash TEXT NOT NULL,
            latest_id BIGINT NOT NULL,
            trial_id BIGINT NOT NULL,
            retiming_id BIGINT NOT NULL,
            time_ns DOUBLE PRECISION NOT NULL,
            first_ns DOUBLE PRECISION NOT NULL,
            PRIMARY KEY (problem_id, driver, generation, configuration_hash)
        )
        """,
    )
    standings.build(connection)
    _run(
        connection,
        """
        CREATE INDEX standings_by_arrival ON standings (problem_id, latest_id);
        CREATE INDEX standings_once ON standings
            (problem_id, driver, generation, time_ns, configuration_hash) WHERE retiming_id = 0;
        CREATE INDEX standings_again ON standings
            (problem_id, driver, generation, time_ns, configuration_hash) WHERE retiming_id > 0;
        CREATE INDEX standings_first ON standings (problem_id, driver, generation, first_ns) WHERE retiming_id > 0;
        DROP INDEX trials_by_time;
        DROP INDEX trials_by_search;
        CREATE INDEX trials_by_search ON trials (search_id, outcome)
        """,
    )


def _service(connection: Connection) -> None:
    """A server's queue of submissions, and its tokens."""
    _run(
        connection,
        """
        ALTER TABLE searches ADD COLUMN submission TEXT;
        CREATE INDEX searches_by_submission ON searches (submission);

        CREATE TABLE submissions (
            id IDENTITY_KEY,
            uuid TEXT NOT NULL UNIQUE,
            server TEXT NOT NULL,
            queue TEXT NOT NULL,
            study TEXT NOT NULL,
            request TEXT NOT NULL,
            upload TEXT,
            asked_by TEXT NOT NULL,
            once TEXT,
            state TEXT NOT NULL,
            attempts INTEGER NOT NULL,
            created TEXT NOT NULL,
            started TEXT,
            ended TEXT,
            reason TEXT NOT NULL,
            result TEXT,
            UNIQUE (asked_by, once)
        );
        CREATE INDEX submissions_by_state ON submissions (server, state);
        CREATE INDEX submissions_by_study ON submissions (study);

        CREATE TABLE tokens (
            id IDENTITY_KEY,
            name TEXT NOT NULL UNIQUE,
            hash TEXT NOT NULL UNIQUE,
            role TEXT NOT NULL,
            created TEXT NOT NULL,
            expires TEXT,
            revoked TEXT
        )
        """,
    )


def _counted(connection: Connection) -> None:
    """The outcomes of a search's trials, and the fastest ones, from an index alone: for pages over a million trials."""
    _run(
        connection,
        """
        DROP INDEX trials_by_search;
        CREATE INDEX trials_by_search ON trials (search_id, outcome, driver, time_ns)
        """,
    )


def _counted_by_search(connection: Connection) -> None:
    """The number of finished trials of each search: for look-ups after a problem was started over."""
    _run(connection, "ALTER TABLE searches ADD COLUMN trials INTEGER NOT NULL DEFAULT 0")
    standings.count_each(connection)


def _exit_code(connection: Connection) -> None:
    """The exit code of the command line if a submitted search has failed."""
    _run(connection, "ALTER TABLE submissions ADD COLUMN exit_code INTEGER")


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    _first,
    _made,
    _origin,
    _standings,
    _service,
    _counted,
    _counted_by_search,
    _exit_code,
)
