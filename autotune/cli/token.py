"""`autotune token`: who may ask a server for what."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated

import typer

from autotune.cli.options import DatabaseOption, JsonOption
from autotune.cli.output import say, table, write, write_json
from autotune.errors import UsageError
from autotune.store import ServerStore, Token, lifetime

_SECONDS = {"m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

tokens = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="See to the tokens of a server: who may read, import (write), have kernels run (run), see to tokens (admin).",
)


@tokens.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose it is: searches name who asked for them.")],
    role: Annotated[str, typer.Option(metavar="ROLE", help="One of read, write, run, admin.")] = "read",
    expires: Annotated[str | None, typer.Option(metavar="90d", help="How long it is good. Default: for good.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Make a token and print it, this once: the database keeps a hash of it.

    \b
    Examples:
      autotune token add ann --role run --expires 90d
      export AUTOTUNE_TOKEN=$(autotune token add ci)
    """
    with ServerStore.open(database) as store:
        token = store.add_token(name, role, None if expires is None else _lasts(expires))
    write(token)
    say(f"{name} may {role}; send it as Authorization: Bearer, or set AUTOTUNE_TOKEN to it")


@tokens.command("list")
def list_tokens(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List the tokens: name, role, since when, until when."""
    with ServerStore.open(database) as store:
        found = store.tokens()
    if as_json:
        write_json([{**{field: getattr(one, field) for field in Token.__slots__}, "valid": one.valid} for one in found])
    elif found:
        table(("name", "role", "created", "expires", "state"), map(_row, found))
    else:
        say("there is no token; autotune token add NAME --role run makes one")


@tokens.command("revoke")
def revoke(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Whose token.")], database: DatabaseOption = None
) -> None:
    """End a token for good; a server knows within a second."""
    with ServerStore.open(database) as store:
        if not store.revoke_token(name):
            raise UsageError(f"no token named {name!r}", where="NAME", hint="autotune token list names them")
    say(f"the token of {name} is revoked")


def _row(one: Token) -> tuple[str, ...]:
    state = "revoked" if one.revoked else "good" if one.valid else "expired"
    return one.name, one.role, one.created[:10], (one.expires or "")[:16].replace("T", " "), state


def _lasts(text: str) -> timedelta:
    found = re.fullmatch(r"([0-9]{1,5})([mhdw])", text.strip())
    if found is None or not int(found[1]):
        raise UsageError(f"{text!r} is no time", where="--expires", hint="write 90d, 12h or 8w")
    return lifetime(int(found[1]) * _SECONDS[found[2]], "--expires")
