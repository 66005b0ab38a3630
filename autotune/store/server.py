"""The store as a server has it open: with its queue, its tokens and pages of what is there."""

from __future__ import annotations

from autotune.store.overview import Overview
from autotune.store.store import Store
from autotune.store.submissions import Submissions
from autotune.store.tokens import Tokens


class ServerStore(Store, Submissions, Tokens, Overview):
    """An open database, for several threads at once."""
