"""The tables as they are now, for queries; migrations.py creates them, and a test checks that the two agree.

Mappings and lists are JSON text, instants ISO 8601 in UTC with microseconds, so that text order is time order.
`time_ns` is derived (the median of the samples), and so are the table `standings` and the columns `trials` with counts
(standings.py).
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from autotune.identity import ProblemKey
from autotune.store.fields import FIELDS, MEASUREMENT

metadata = MetaData()

# SQLite numbers rows by itself only for a column of exactly this type.
_Id = BigInteger().with_variant(Integer, "sqlite")


def _text(*names: str, empty: bool = False) -> list[Column[str]]:
    return [Column(name, Text, nullable=empty) for name in names]


def _refers(name: str, target: str, *, empty: bool = False) -> Column[int]:
    return Column(name, _Id, ForeignKey(f"{target}.id"), nullable=empty)


def _unique(name: str) -> Column[str]:
    return Column(name, Text, unique=True, nullable=False)


devices = Table(
    "devices",
    metadata,
    Column("id", _Id, primary_key=True),
    _unique("facts_hash"),  # `facts` can be too long for PostgreSQL's indexes
    *_text("fingerprint", "name", "driver", "facts"),
    Index("devices_by_fingerprint", "fingerprint"),
)

problems = Table(
    "problems",
    metadata,
    Column("id", _Id, primary_key=True),
    *_text(*ProblemKey._fields),
    Column("trials", Integer, nullable=False, server_default="0"),  # the number of finished trials
    UniqueConstraint(*ProblemKey._fields),
)

problem_key = tuple(problems.c[name] for name in ProblemKey._fields)
"""The columns that say what a problem is."""

searches = Table(
    "searches",
    metadata,
    Column("id", _Id, primary_key=True),
    _unique("uuid"),
    _refers("problem_id", "problems"),
    Column("generation", Integer, nullable=False),
    *_text("sampler"),
    Column("seed", _Id, nullable=True),
    *_text("environment", "started"),
    *_text("ended", empty=True),
    *_text("reason"),
    *_text("submission", empty=True),
    Column("trials", Integer, nullable=False, server_default="0"),  # the same; 0 for another tool's
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
    *_text("driver"),
    *(field.column() for field in MEASUREMENT),
    *_text("taken"),
    Index("retimings_by_trial", "trial_id"),
)

# A server's tables: the searches that users submit, in their order, and who may submit.

submissions = Table(
    "submissions",
    metadata,
    Column("id", _Id, primary_key=True),
    _unique("uuid"),
    *_text("server", "queue", "study", "request"),
    *_text("upload", empty=True),
    *_text("asked_by"),
    *_text("once", empty=True),
    *_text("state"),
    Column("attempts", Integer, nullable=False),
    *_text("created"),
    *_text("started", "ended", empty=True),
    *_text("reason"),
    *_text("result", empty=True),
    Column("exit_code", Integer, nullable=True),  # of a failed submission
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
    *_text("role", "created"),
    *_text("expires", "revoked", empty=True),
)

# All that a look-up ranks by (standings.py): a row for each ranking.Standing.
_group = ("problem_id", "driver", "generation")
standings = Table(
    "standings",
    metadata,
    _refers("problem_id", "problems"),
    *_text("driver"),
    Column("generation", Integer, nullable=False),
    *_text("configuration_hash"),
    Column("latest_id", _Id, nullable=False),
    Column("trial_id", _Id, nullable=False),
    Column("retiming_id", _Id, nullable=False),  # 0: never timed again
    Column("time_ns", Double, nullable=False),
    Column("first_ns", Double, nullable=False),
    PrimaryKeyConstraint(*_group, "configuration_hash"),
    Index("standings_by_arrival", "problem_id", "latest_id"),
    # Partial indexes (migrations.py): declared so here, SQLAlchemy would import PostgreSQL's dialect for every command.
    Index("standings_once", *_group, "time_ns", "configuration_hash"),
    Index("standings_again", *_group, "time_ns", "configuration_hash"),
    Index("standings_first", *_group, "first_ns"),
)
