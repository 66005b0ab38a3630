"""Fixtures that several test files share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests import postgres


@pytest.fixture(scope="session")
def postgres_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a PostgreSQL server of the tests' own; skips where it cannot be started."""
    folder = tmp_path_factory.mktemp("postgres")
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)  # the server runs as an ordinary user
    with postgres.server(folder) as url:
        yield url
