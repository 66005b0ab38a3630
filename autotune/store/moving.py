"""Trials that go to another database or come from one, or from another tool."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from sqlalchemy import Connection, func, select

from autotune.model import DeviceInfo, ProblemKey, Trial
from autotune.store.access import Access
from autotune.store.location import damaged_database
from autotune.store.schema import problems, searches, trials
from autotune.text import count

if TYPE_CHECKING:
    from autotune.store.importing import Incoming

_IN_MEMORY = 16 * 2**20
"""Bytes of an import that wait in memory; beyond, in a temporary file."""


@contextmanager
def checked_lines(
    lines: Iterable[str], source: str = "", go_on: Callable[[], None] = lambda: None
) -> Iterator[tuple[IO[str], dict[str, Incoming]]]:
    """Yield what `Moving.import_checked` takes; no database need be there. Raises StoreError as `import_lines` does."""
    from autotune.store import importing  # which no search needs, and its models take a while

    with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8") as waiting:
        yield waiting, importing.check(lines, waiting, source, go_on)


class Moving(Access):
    """What moves trials. Every method may raise StoreError."""

    def export_lines(self) -> Iterator[str]:
        """Yield every trial as one line of JSON, oldest first. Raises StoreError where one could not be told whole."""
        from autotune.store import interchange

        with self._reading() as connection:
            self._require_searches(connection)
            yield from interchange.export_lines(connection)

    def export_page(self, after: int) -> tuple[list[str], int]:
        """Return the next lines of `export_lines` after that of a trial's number (0: the first), and the last's number.

        For who reads as slowly as he likes: nothing is held in between, and what is stored meanwhile may be among them.
        """
        from autotune.store import interchange

        with self._reading() as connection:
            if not after:
                self._require_searches(connection)
            return interchange.export_page(connection, after)

    def _require_searches(self, connection: Connection) -> None:
        """Raise StoreError where some trials would be left out in silence."""
        known = select(searches.c.id).join(problems, problems.c.id == searches.c.problem_id)
        query = select(func.count()).select_from(trials).where(trials.c.search_id.not_in(known))
        if lost := int(connection.execute(query).scalar_one()):
            raise damaged_database(self.where, f"{count(lost, 'trial')} without a stored search")

    def adopt(
        self, key: ProblemKey, device: DeviceInfo | None, trials: Sequence[Trial], told: Mapping[str, str]
    ) -> int:
        """Add the trials that another tool made, all or none; return how many were new.

        `told` is what is known of the file. One with the same `format`, `device` and `kernel` is the same search: its
        trials are not added again, and what it holds besides is. `device`: as described here, None where it never was.
        """
        from autotune.store import importing

        search = importing.foreign(key, device, told)
        with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8") as waiting:
            found = importing.wait(search, trials, waiting)
            return self._written(lambda connection: importing.store(connection, waiting, found))

    def import_lines(self, lines: Iterable[str], source: str = "", go_on: Callable[[], None] = lambda: None) -> int:
        """Add the trials of exported lines; return how many were new. One already here is not added again.

        Raises StoreError with the number of the first line that does not fit, and `source`, the file it is in;
        then nothing is added. Nor is it where `go_on`, which is called now and then, raises to give up.
        """
        with checked_lines(lines, source, go_on) as checked:
            return self.import_checked(*checked, go_on)

    def import_checked(
        self, waiting: IO[str], found: Mapping[str, Incoming], go_on: Callable[[], None] = lambda: None
    ) -> int:
        """Add the trials of lines that were checked; return how many were new."""
        from autotune.store import importing

        return self._written(lambda connection: importing.store(connection, waiting, found, go_on))
