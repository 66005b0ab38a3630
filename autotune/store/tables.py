"""The tables as they are now, for queries. How they came to be is migrations.py's; a test holds the two together.

Mappings and lists are JSON text, instants ISO 8601 in UTC with microseconds, so that text order is time order.
`time_ns` is derived (the median of the samples): the only column that a look-up has to rank by.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from autotune.store.fields import FIELDS, MEASUREMENT

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
    Index("searches_by_problem", "problem_id"),
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
    # All that a look-up ranks by, so that it need not read the samples and build logs in between.
    Index("trials_by_search", "search_id", "outcome", "driver", "configuration_hash", "time_ns", "finished"),
    # The few fastest of many.
    Index("trials_by_time", "search_id", "outcome", "driver", "time_ns"),
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
