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
    from autotune.store.records import device_of, ordered
    from autotune.store.server import ServerStore
    from autotune.store.store import Row, Store
    from autotune.store.submissions import DONE, FAILED, OPEN, QUEUED, RUNNING, STOPPED, STOPPING, Submission
    from autotune.store.tokens import CONSOLE, ROLES, Token, new_token

__all__ = [
    "CAME_IN", "CONSOLE", "DONE", "FAILED", "OPEN", "QUEUED", "ROLES", "RUNNING", "SCHEMA_VERSION", "STOPPED",
    "STOPPING", "Location", "Row", "ServerStore", "Store", "StoredSearch", "StoredTrial", "Submission", "Token",
    "damaged_database", "database_error", "device_of", "is_ours", "locate", "new_token", "ordered", "origin_fault",
    "require_database_file", "shown", "version_in",
]  # fmt: skip

_HOMES = {
    "Store": "store",
    "Row": "store",
    "ServerStore": "server",
    "StoredSearch": "overview",
    "StoredTrial": "overview",
    "Submission": "submissions",
    "DONE": "submissions",
    "FAILED": "submissions",
    "OPEN": "submissions",
    "QUEUED": "submissions",
    "RUNNING": "submissions",
    "STOPPED": "submissions",
    "STOPPING": "submissions",
    "CONSOLE": "tokens",
    "ROLES": "tokens",
    "new_token": "tokens",
    "ordered": "records",
    "Token": "tokens",
    "device_of": "records",
    "origin_fault": "fields",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
