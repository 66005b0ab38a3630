"""Export trials to other databases, and import trials from them or from other tools."""

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
"""An import waits in memory up to so many bytes, else in a temporary file."""


@contextmanager
def checked_lines(
    lines: Iterable[str], source: str = "", go_on: Callable[[], None] = lambda: None
) -> Iterator[tuple[IO[str], dict[str, Incoming]]]:
    """Yield the arguments of `Moving.import_checked`; needs no database. Raises StoreError as `import_lines` does."""
    from autotune.store import importing  # no search needs it, and its models take a while

    with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8") as waiting:
        yield waiting, importing.check(lines, waiting, source, go_on)


class Moving(Access):
    """The methods that export and import trials. Every method may raise StoreError."""

    def export_lines(self) -> Iterator[str]:
        """Yield every trial as one line of JSON, oldest first. Raises StoreError if one has no stored search."""
        from autotune.store import interchange

        with self._reading() as connection:
            self._require_searches(connection)
            yield from interchange.export_lines(connection)

    def export_page(self, after: int) -> tuple[list[str], int]:
        """Return the next lines of `export_lines` after a trial's number (0: the first lines), and the last's number.

        For slow readers: nothing is locked between the calls, and trials stored meanwhile may be among the lines.
        """
        from autotune.store import interchange

        with self._reading() as connection:
            if not after:
                self._require_searches(connection)
            return interchange.export_page(connection, after)

    def _require_searches(self, connection: Connection) -> None:
        """Raise StoreError if some trials would be left out silently."""
        known = select(searches.c.id).join(problems, problems.c.id == searches.c.problem_id)
        query = select(func.count()).select_from(trials).where(trials.c.search_id.not_in(known))
        if lost := int(connection.execute(query).scalar_one()):
            raise damaged_database(self.where, f"{count(lost, 'trial')} without a stored search")

    def adopt(
        self, key: ProblemKey, device: DeviceInfo | None, trials: Sequence[Trial], told: Mapping[str, str]
    ) -> int:
        """Add the trials that another tool made, all or none; return how many were new.

        `told` is what is known of the file. A file with the same `format`, `device` and `kernel` is the same search:
        only its new trials are added. `device`: as described on this machine, None if it never was.
        """
        from autotune.store import importing

        search = importing.foreign(key, device, told)
        with tempfile.SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8") as waiting:
            found = importing.wait(search, trials, waiting)
            return self._written(lambda connection: importing.store(connection, waiting, found))

    def import_lines(self, lines: Iterable[str], source: str = "", go_on: Callable[[], None] = lambda: None) -> int:
        """Add the trials of exported lines; return how many were new. Trials already here are not added again.

        Raises StoreError with the number of the first bad line, and `source`, the name of its file; then nothing is
        added. Nothing is added either if `go_on`, which is called now and then, raises to give up.
        """
        with checked_lines(lines, source, go_on) as checked:
            return self.import_checked(*checked, go_on)

    def import_checked(
        self, waiting: IO[str], found: Mapping[str, Incoming], go_on: Callable[[], None] = lambda: None
    ) -> int:
        """Add the trials of checked lines; return how many were new."""
        from autotune.store import importing

        return self._written(lambda connection: importing.store(connection, waiting, found, go_on))
