"""Store all results, in SQLite or PostgreSQL through SQLAlchemy; each failure is one clear line.

The names of location.py (where a database is) are imported at once, for look-ups; the others when first used.
"""

from typing import TYPE_CHECKING

from autotune import lazily
from autotune.store.location import (
    BUSY_S,
    CAME_IN,
    SCHEMA,
    SCHEMA_VERSION,
    TIMED_ELSEWHERE,
    UNSOUND,
    Location,
    as_it_is,
    damaged_database,
    database_error,
    is_for_reading,
    is_our_file,
    locate,
    log_of,
    may_not_be_written,
    require_database_file,
    shown,
    tend,
    version_in,
)

if TYPE_CHECKING:
    from autotune.store.database import ConnectionLost, ReadsOnly, clear_errors
    from autotune.store.fields import origin_fault
    from autotune.store.interchange import entered
    from autotune.store.mounts import lacks_room, open_alone, require_place
    from autotune.store.moving import checked_lines
    from autotune.store.queries import StoredTrial
    from autotune.store.records import device_of, in_utc, ordered
    from autotune.store.server import ServerStore
    from autotune.store.store import Store
    from autotune.store.submissions import DONE, FAILED, OPEN, QUEUED, RUNNING, STOPPED, STOPPING, Submission, Uploaded
    from autotune.store.tokens import CONSOLE, ROLES, Token, lasting, lifetime, new_token, require_token
else:
    __getattr__ = lazily(
        __name__,
        {
            "database": "ConnectionLost ReadsOnly clear_errors",
            "fields": "origin_fault",
            "interchange": "entered",
            "mounts": "lacks_room open_alone require_place",
            "moving": "checked_lines",
            "records": "device_of in_utc ordered",
            "server": "ServerStore",
            "queries": "StoredTrial",
            "store": "Store",
            "submissions": "DONE FAILED OPEN QUEUED RUNNING STOPPED STOPPING Submission Uploaded",
            "tokens": "CONSOLE ROLES Token lasting lifetime new_token require_token",
        },
    )
