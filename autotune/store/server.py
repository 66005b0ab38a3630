"""The store as a server has it open: with its queue, its tokens and pages of what is there."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.store import queries
from autotune.store.hold import Hold, is_held
from autotune.store.schema import trials
from autotune.store.store import Store
from autotune.store.submissions import Submissions
from autotune.store.tokens import Tokens

MOST = 1000
"""Rows of a page at most."""


class ServerStore(Store, Submissions, Tokens):
    """An open database, for several threads at once. Every method is one transaction and may raise StoreError."""

    def hold(self, server: str) -> Hold:
        """Return what says that a server of that name is at work here, not taken yet: to be closed before this is."""
        return Hold(self._engine, self._location, server)

    def is_at_work(self, server: str) -> bool:
        """Whether a server of that name is at work here: nobody else runs what was sent to it."""
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
        """Return trials, newest first: of a study, a device model, with these outcomes, of these searches."""
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

    def trial(self, number: int) -> queries.StoredTrial | None:
        """Return the trial of that number; None where there is none."""
        with self._reading() as connection:
            return next(iter(queries.rows(connection, queries.everything().where(trials.c.id == number))), None)

    def sweep(self) -> None:
        """Mark as lost what searches left pending whose process has died."""
        self._written(queries.mark_lost)
