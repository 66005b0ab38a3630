"""The store for a server: with its queue, its tokens and pages of trials."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.store import queries
from autotune.store.hold import Hold, is_held
from autotune.store.schema import trials
from autotune.store.store import Store
from autotune.store.submissions import Submissions
from autotune.store.tokens import Tokens

MOST = 1000
"""The most rows of a page."""


class ServerStore(Store, Submissions, Tokens):
    """An open database, for several threads at once. Every method is one transaction and may raise StoreError."""

    def hold(self, server: str) -> Hold:
        """Return the lock of a server's name, not taken yet; it must be closed before this store."""
        return Hold(self._engine, self._location, server)

    def is_at_work(self, server: str) -> bool:
        """Return whether a server with that name is running on this database: only that server runs its submissions."""
        with self._reading() as connection:
            return is_held(connection, self._location, server)

    def page(
        self,
        *,
        study: str | None = None,
        device: str | None = None,
        outcomes: Sequence[str] = (),
        searches_: Sequence[int] = (),
        before: int | None = None,
        limit: int = 50,
    ) -> list[queries.StoredTrial]:
        """Return trials, newest first: of a study, a device model, these outcomes or searches, before a number."""
        query = queries.everything(study, device)
        if outcomes:
            query = query.where(trials.c.outcome.in_(outcomes))
        if searches_:
            query = query.where(trials.c.search_id.in_(searches_))
        if before is not None:
            query = query.where(trials.c.id < before)
        query = query.order_by(trials.c.id.desc()).limit(min(limit, MOST))
        with self._reading() as connection:
            return queries.rows(connection, query)

    def sweep(self) -> None:
        """Mark the pending trials of searches whose process has died as lost."""
        self._written(queries.mark_lost)
