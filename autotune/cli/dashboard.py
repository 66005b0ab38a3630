"""`autotune dashboard`: what is stored, as pages for this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.options import DatabaseOption
from autotune.cli.output import say
from autotune.errors import SetupError
from autotune.text import command, installing


def dashboard(
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="0: any that is free.")] = 8081,
    database: DatabaseOption = None,
) -> None:
    """Show stored results in a browser, on this machine only.

    Shows the best configurations, searches in progress, which parameters matter, and every trial. It needs no token,
    runs no kernel and changes nothing. It follows searches of other processes that write to the same database. Ctrl-C
    ends it.

    \b
    Examples:
      autotune dashboard
      autotune dashboard --port 0 --db team.db
    """
    try:
        from autotune.service import Config, Service, serve
    except ImportError as error:
        raise SetupError(f"pages take {error.name}", hint=installing("serve")) from None

    def begun(url: str, service: Service) -> None:
        say(f"{service.store.where} is shown at {url}")
        if not service.store.counts():  # a mistyped name is a new file
            say(f"no trial is stored there; {command('search', 'STUDY', database=service.store.where)} makes some")

    serve(Config(database, port=port, read_only=True), begun)
