"""The tables as they are now, for queries, and how they came to be; a test holds the two together.

Mappings and lists are JSON text, instants ISO 8601 in UTC with microseconds, so that text order is time order.
`time_ns` is derived (the median of the samples), and so are the table `standings` and `problems.trials` (standings.py).

A migration is never edited once released: databases out there have run it. A new column is one function appended to
MIGRATIONS, its line in the table, and `tests/data/version_N.db`, written by the version that has N of them.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    inspect,
    text,
)

from autotune.store import standings as summary
from autotune.store.fields import FIELDS, MEASUREMENT
from autotune.store.location import SCHEMA_VERSION, TABLES, is_ours, version_in

metadata = MetaData()

# SQLite numbers rows by itself only for a column of exactly this type.
_Id = BigInteger().with_variant(Integer, "sqlite")


def _text(name: str, *, empty: bool = False) -> Column[str]:
    return Column(name, Text, nullable=empty)


def _refers(name: str, target: str, *, empty: bool = False) -> Column[int]:
    return Column(name, _Id, ForeignKey(f"{target}.id"), nullable=empty)


def _unique(name: str) -> Column[str]:
    return Column(name, Text, unique=True, nullable=False)


devices = Table(
    "devices",
    metadata,
    Column("id", _Id, primary_key=True),
    _unique("facts_hash"),  # `facts` outgrows what PostgreSQL indexes
    _text("fingerprint"),
    _text("name"),
    _text("driver"),
    _text("facts"),
    Index("devices_by_fingerprint", "fingerprint"),
)

problems = Table(
    "problems",
    metadata,
    Column("id", _Id, primary_key=True),
    _text("study"),
    _text("kernel_hash"),
    _text("study_hash"),
    _text("device"),
    _text("size"),
    _text("choices"),
    Column("trials", Integer, nullable=False, server_default="0"),  # how many have finished
    UniqueConstraint("study", "kernel_hash", "study_hash", "device", "size", "choices"),
)

searches = Table(
    "searches",
    metadata,
    Column("id", _Id, primary_key=True),
    _unique("uuid"),
    _refers("problem_id", "problems"),
    Column("generation", Integer, nullable=False),
    _text("sampler"),
    Column("seed", _Id, nullable=True),
    _text("environment"),
    _text("started"),
    _text("ended", empty=True),
    _text("reason"),
    _text("submission", empty=True),
    Index("searches_by_problem", "problem_id"),
    Index("searches_by_submission", "submission"),
)

search_devices = Table(
    "search_devices",
    metadata,
    _refers("search_id", "searches"),
    _refers("device_id", "devices"),
    PrimaryKeyConstraint("search_id", "device_id"),
)

trials = Table(
    "trials",
    metadata,
    Column("id", _Id, primary_key=True),
    _unique("uuid"),
    _refers("search_id", "searches"),
    _refers("device_id", "devices", empty=True),
    *(field.column() for field in FIELDS),
    Index("trials_by_search", "search_id", "outcome", "driver", "time_ns"),
    Index("trials_by_configuration", "configuration_hash"),
    Index("trials_by_start", "started"),
)

retimings = Table(
    "retimings",
    metadata,
    Column("id", _Id, primary_key=True),
    _unique("uuid"),
    _refers("trial_id", "trials"),
    _text("driver"),
    *(field.column() for field in MEASUREMENT),
    _text("taken"),
    Index("retimings_by_trial", "trial_id"),
)

# What a server keeps: the searches it is asked for, in their order, and who may ask.

submissions = Table(
    "submissions",
    metadata,
    Column("id", _Id, primary_key=True),
    _unique("uuid"),
    _text("server"),
    _text("queue"),
    _text("study"),
    _text("request"),
    _text("upload", empty=True),
    _text("asked_by"),
    _text("once", empty=True),
    _text("state"),
    Column("attempts", Integer, nullable=False),
    _text("created"),
    _text("started", empty=True),
    _text("ended", empty=True),
    _text("reason"),
    _text("result", empty=True),
    UniqueConstraint("asked_by", "once"),
    Index("submissions_by_state", "server", "state"),
    Index("submissions_by_study", "study"),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", _Id, primary_key=True),
    _unique("name"),
    _unique("hash"),
    _text("role"),
    _text("created"),
    _text("expires", empty=True),
    _text("revoked", empty=True),
)

# All that a look-up ranks by (standings.py): a row for what ranking.Standing says.
_group = ("problem_id", "driver", "generation")
_once, _again = text("retiming_id = 0"), text("retiming_id > 0")
standings = Table(
    "standings",
    metadata,
    _refers("problem_id", "problems"),
    _text("driver"),
    Column("generation", Integer, nullable=False),
    _text("configuration_hash"),
    Column("latest_id", _Id, nullable=False),
    Column("trial_id", _Id, nullable=False),
    Column("retiming_id", _Id, nullable=False),  # 0: never timed again
    Column("time_ns", Double, nullable=False),
    Column("first_ns", Double, nullable=False),
    PrimaryKeyConstraint(*_group, "configuration_hash"),
    Index("standings_by_arrival", "problem_id", "latest_id"),
    Index("standings_once", *_group, "time_ns", "configuration_hash", sqlite_where=_once, postgresql_where=_once),
    Index("standings_again", *_group, "time_ns", "configuration_hash", sqlite_where=_again, postgresql_where=_again),
    Index("standings_first", *_group, "first_ns", sqlite_where=_again, postgresql_where=_again),
)


# The history -----------------------------------------------------------------------------------------------

_MIGRATION_LOCK = 0x6175746F  # "auto": one number that every process of this program agrees on


def migrate(connection: Connection, where: str) -> None:
    """Bring the database to SCHEMA_VERSION within the caller's transaction, which must exclude other writers.

    Raises StoreError where the database is newer than this program or holds tables of another one.
    """
    if connection.dialect.name == "postgresql":
        # SQLite's caller holds the write lock already; PostgreSQL lets two processes create tables at once.
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
    version = stored_version(connection, where)
    for migration in MIGRATIONS[version:]:
        migration(connection)
    if version == 0:
        connection.execute(text("INSERT INTO schema_version (version) VALUES (:new)"), {"new": SCHEMA_VERSION})
    elif version < SCHEMA_VERSION:
        connection.execute(text("UPDATE schema_version SET version = :new"), {"new": SCHEMA_VERSION})


def stored_version(connection: Connection, where: str) -> int:
    """Return the version of the database; 0 for an empty one.

    Raises StoreError for somebody else's tables, and for a version that is newer or none at all.
    """
    tables = set(inspect(connection).get_table_names())
    if connection.dialect.name == "postgresql" and not tables & {"schema_version", *TABLES}:
        return 0  # a server's database may be shared with others
    if not is_ours(tables, where):
        return 0
    return version_in(connection.execute(text("SELECT version FROM schema_version")).scalar(), where)


def _run(connection: Connection, statements: str) -> None:
    identity = "BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY"
    if connection.dialect.name == "sqlite":
        identity = "INTEGER PRIMARY KEY"
    for statement in statements.split(";"):
        if statement.strip():
            connection.execute(text(statement.replace("IDENTITY_KEY", identity)))


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
    """What a trial was built and launched as, for look-ups that compute nothing; the fastest trials by an index."""
    _run(
        connection,
        """
        ALTER TABLE trials ADD COLUMN made TEXT;
        CREATE INDEX trials_by_time ON trials (search_id, outcome, driver, time_ns)
        """,
    )


def _origin(connection: Connection) -> None:
    """Which trials another tool made, and what it wrote of them."""
    _run(connection, "ALTER TABLE trials ADD COLUMN origin TEXT")


def _standings(connection: Connection) -> None:
    """A summary for look-ups, in place of the indexes they went by; and how many trials a problem has."""
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
    summary.build(connection)
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
    """What a server is asked for and by whom: its queue, and tokens."""
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
    """How the trials of a search ended, and the fastest of them, by an index alone: for pages over a million trials."""
    _run(
        connection,
        """
        DROP INDEX trials_by_search;
        CREATE INDEX trials_by_search ON trials (search_id, outcome, driver, time_ns)
        """,
    )


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (_first, _made, _origin, _standings, _service, _counted)
