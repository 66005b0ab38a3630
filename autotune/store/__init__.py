"""Everything that is kept, in SQLite or PostgreSQL through SQLAlchemy; each failure one clear line.

Where a database is (location.py) is there at once, for look-ups; the other names are imported when first used.
"""

from typing import TYPE_CHECKING, Any

from autotune.store.location import (
    CAME_IN,
    SCHEMA_VERSION,
    Location,
    damaged_database,
    database_error,
    is_ours,
    locate,
    require_database_file,
    shown,
    version_in,
)

if TYPE_CHECKING:
    from autotune.store.fields import origin_fault
    from autotune.store.overview import StoredSearch, StoredTrial
    from autotune.store.records import device_of
    from autotune.store.server import ServerStore
    from autotune.store.store import Row, Store
    from autotune.store.submissions import Submission
    from autotune.store.tokens import ROLES, Token

__all__ = [
    "CAME_IN", "ROLES", "SCHEMA_VERSION", "Location", "Row", "ServerStore", "Store", "StoredSearch", "StoredTrial",
    "Submission", "Token", "damaged_database", "database_error", "device_of", "is_ours", "locate", "origin_fault",
    "require_database_file", "shown", "version_in",
]  # fmt: skip

_HOMES = {
    "Store": "store",
    "Row": "store",
    "ServerStore": "server",
    "StoredSearch": "overview",
    "StoredTrial": "overview",
    "Submission": "submissions",
    "ROLES": "tokens",
    "Token": "tokens",
    "device_of": "records",
    "origin_fault": "fields",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
