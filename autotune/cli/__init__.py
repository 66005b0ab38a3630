"""The command line: parsing and printing, one file per command. `app` is the entry."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from autotune import __version__
from autotune.cli import (
    best,
    check,
    compare,
    cover,
    dashboard,
    devices,
    export,
    history,
    import_,
    search,
    serve,
    studies,
    token,
    verify,
    worker,
)
from autotune.cli import report as reports
from autotune.cli.output import report, say, write
from autotune.errors import AutotuneError, OutputError, UsageError


class Commands(TyperGroup):
    """Turns the errors of this package into one line on stderr and their exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was typed."""
        try:
            return super().invoke(ctx)
        except OutputError:  # for those who opened stdout: nothing more can be written there
            raise
        except AutotuneError as error:
            report(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None


def _print_version(asked: bool) -> None:
    if asked:
        write(f"autotune {__version__}")
        raise typer.Exit


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Finds the fastest verified parameters of OpenCL kernels and keeps them for every tool to look up.",
)


def _log() -> None:
    """Have what search and workers say to each other printed, where AUTOTUNE_LOG names a level."""
    level = os.environ.get("AUTOTUNE_LOG", "").upper()
    if not level:
        return
    if level not in logging.getLevelNamesMapping():
        raise UsageError(f"{level!r} is no level", where="AUTOTUNE_LOG", hint="set it to debug")
    logging.basicConfig(format="%(relativeCreated)d ms %(threadName)s %(name)s: %(message)s")
    logging.getLogger("autotune").setLevel(level)


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options before a command."""
    _log()


_COMMANDS: dict[str, Callable[..., None]] = {
    "search": search.search,
    "best": best.best,
    "devices": devices.list_devices,
    "studies": studies.list_studies,
    "history": history.history,
    "check": check.check,
    "compare": compare.compare_values,
    "report": reports.report_searches,
    "dashboard": dashboard.dashboard,
    "cover": cover.cover,
    "verify": verify.verify,
    "worker": worker.worker,
    "export": export.export_trials,
    "import": import_.import_trials,
    "serve": serve.serve,
}
for _name, _command in _COMMANDS.items():
    app.command(_name, help=best.HELP if _name == "best" else None)(_command)
app.add_typer(token.tokens, name="token")
