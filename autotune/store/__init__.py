"""Everything that is kept, in SQLite or PostgreSQL through SQLAlchemy; each failure one clear line.

The names below are imported when first used: a look-up of the cold path needs `location` only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.store.overview import StoredSearch as StoredSearch
    from autotune.store.overview import StoredTrial as StoredTrial
    from autotune.store.server import ServerStore as ServerStore
    from autotune.store.store import Row as Row
    from autotune.store.store import Store as Store
    from autotune.store.submissions import Submission as Submission
    from autotune.store.tokens import ROLES as ROLES
    from autotune.store.tokens import Token as Token

_HOMES = {
    "Store": "store",
    "Row": "store",
    "ServerStore": "server",
    "StoredSearch": "overview",
    "StoredTrial": "overview",
    "Submission": "submissions",
    "ROLES": "tokens",
    "Token": "tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
