"""The store as a server has it open: with its queue, its tokens and pages of what is there."""

from __future__ import annotations

from autotune.store.hold import Hold, is_held
from autotune.store.overview import Overview
from autotune.store.store import Store
from autotune.store.submissions import Submissions
from autotune.store.tokens import Tokens


class ServerStore(Store, Submissions, Tokens, Overview):
    """An open database, for several threads at once."""

    def hold(self, server: str) -> Hold:
        """Return what says that a server of that name is at work here, not taken yet: to be closed before this is."""
        return Hold(self._engine, self._location, server)

    def is_at_work(self, server: str) -> bool:
        """Whether a server of that name is at work here: nobody else runs what was sent to it."""
        with self._reading() as connection:
            return is_held(connection, self._location, server)
