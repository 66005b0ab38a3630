"""The command line: parsing and printing, one file per command. `run` is the entry, `app` has all commands.

A command's file, and what it imports, is loaded only when that command is typed, not to list the commands.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from autotune import __version__
from autotune.cli.counting import Lines
from autotune.cli.output import say, write
from autotune.cli.refusals import Refused, plain, require_no_empty
from autotune.errors import AutotuneError, OutputError, UsageError, counting_told
from autotune.text import say_error


class Commands(TyperGroup):
    """Turns errors, of this package or known to `refusals`, into one line on stderr and their exit code."""

    def make_context(self, info_name: Any, args: list[str], *others: Any, **kwargs: Any) -> Any:
        """Read the words before the command."""
        try:
            require_no_empty(args)
            return super().make_context(info_name, args, *others, **kwargs)
        except UsageError as error:
            say_error(error)
            raise typer.Exit(error.exit_code) from None
        except Refused as error:
            _end(error)
            raise

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was typed."""
        try:
            with counting_told(Lines()):
                return super().invoke(ctx)
        except OutputError:  # is handled where stdout was opened: nothing more can be written there
            raise
        except AutotuneError as error:
            say_error(error)
            raise typer.Exit(error.exit_code) from None
        except KeyboardInterrupt:
            say("interrupted")
            raise typer.Exit(130) from None
        except Exception as error:
            _end(error, ctx.invoked_subcommand)
            raise


def _end(error: Exception, command: str | None = None) -> None:
    """Report an error that is not of this package, and end; return if it is a fault of the program."""
    if (code := told(error, command)) is not None:
        raise typer.Exit(code) from None


def told(error: Exception, command: str | None = None) -> int | None:
    """Report an error that is not of this package, and return its exit code; None for a fault of the program."""
    known = plain(error, command)
    if known is None:
        return None
    say_error(known)
    return known.exit_code


def _print_version(asked: bool) -> None:
    if asked:
        write(f"autotune {__version__}")
        raise typer.Exit


def _log() -> None:
    """Print the messages between search and workers if AUTOTUNE_LOG names a level."""
    given = os.environ.get("AUTOTUNE_LOG", "")
    level = given.upper()
    if not level:
        return
    if level not in logging.getLevelNamesMapping():
        raise UsageError(f"{given!r} is not a level", where="AUTOTUNE_LOG", hint="set it to debug")
    logging.basicConfig(format="%(relativeCreated)d ms %(threadName)s %(name)s: %(message)s")
    logging.getLogger("autotune").setLevel(level)


def main(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Options before a command."""
    _log()


_COMMANDS = {
    "search": ("search:search", "Search the parameters of a study, and print the best."),
    "best": ("best:best", "Print the best stored configuration for a device and size."),
    "devices": ("devices:list_devices", "List the OpenCL devices, and problems with their drivers."),
    "studies": ("studies:list_studies", "List the bundled studies and those in ./studies."),
    "history": ("history:history", "List stored trials, newest first."),
    "new": ("new:new_study", "Draft a study from a kernel."),
    "check": ("check:check", "Check a study; run this first on a new one."),
    "compare": ("compare:compare_values", "Show the best per value of a parameter, size or device."),
    "report": ("report:report_searches", "Write the results of a search into one HTML file."),
    "dashboard": ("dashboard:dashboard", "Show stored results in a browser, on this machine only."),
    "cover": ("cover:cover", "Choose a few configurations for many sizes."),
    "verify": ("verify:verify", "Measure again what `autotune best` names."),
    "worker": ("worker:worker", "Offer this machine's devices to the searches of a cluster."),
    "export": ("export:export_trials", "Write stored trials, or the bests for programs."),
    "import": ("import_:import_trials", "Add trials that `autotune export` or another tool wrote."),
    "import-study": ("import_study:import_study", "Write a study from a T1 file of another tuner."),
    "serve": ("serve:serve", "Serve searches, results and pages over HTTP."),
    "token": ("token:tokens", "Create, list and revoke the tokens of a server."),
}
"""Where each command is: file and name, a function or a group of commands; and how its help begins."""


def run(words: Sequence[str]) -> None:
    """Run what was typed."""
    first = next(iter(words), "")
    if first in _COMMANDS:
        made = _app((first,))
    elif _COMMANDS.keys().isdisjoint(words):
        made = _listed()
    else:  # options before a command
        made = _app(tuple(_COMMANDS))
    made(list(words))


def _listed() -> typer.Typer:
    """All commands, for the list and for corrections of a misspelt name; none of them does anything."""
    made = _without_commands()
    for name, (_, begins) in _COMMANDS.items():
        made.command(name, help=begins)(lambda: None)
    return made


@cache
def _app(names: Sequence[str]) -> typer.Typer:
    """These commands; the others are not loaded."""
    made = _without_commands()
    for name in names:
        file, function = _COMMANDS[name][0].split(":")
        module = import_module(f"{__name__}.{file}")
        command = getattr(module, function)
        if isinstance(command, typer.Typer):
            made.add_typer(command, name=name)
        else:
            made.command(name, help=getattr(module, "HELP", None))(command)
    return made


def _without_commands() -> typer.Typer:
    made = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        add_completion=False,
        context_settings={"help_option_names": ["--help", "-h"]},
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help="Finds the fastest verified parameters of OpenCL kernels and keeps them for every tool to look up.",
    )
    made.callback()(main)
    return made


if TYPE_CHECKING:
    app: typer.Typer


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _app(tuple(_COMMANDS))
