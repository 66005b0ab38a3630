"""Everything that is kept, in SQLite or PostgreSQL through SQLAlchemy; each failure one clear line.

The names below are imported when first used: a look-up of the cold path needs `location` only.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.store.store import Row as Row
    from autotune.store.store import Store as Store

_HOMES = {"Store": "store", "Row": "store"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
