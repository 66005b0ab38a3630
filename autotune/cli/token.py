"""`autotune token`: the tokens of a server and their roles."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.options import DatabaseOption, JsonOption
from autotune.cli.output import say, table, write, write_json
from autotune.errors import UsageError
from autotune.store import ROLES, ServerStore, Token, lasting, require_token

tokens = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Create, list and revoke the tokens of a server.\n\n"
    "Roles: read; write may also import; run may also run kernels; admin may also manage tokens.",
)


@tokens.command("add")
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the user: searches name who asked for them.")],
    role: Annotated[str, typer.Option(metavar="ROLE", help=f"One of {', '.join(ROLES)}.")] = ROLES[0],
    expires: Annotated[str | None, typer.Option(metavar="90d", help="How long it is valid. Default: for ever.")] = None,
    database: DatabaseOption = None,
) -> None:
    """Make a token and print it.

    It is printed only once: the database keeps a hash of it.

    \b
    Examples:
      autotune token add ann --role run --expires 90d
      export AUTOTUNE_TOKEN=$(autotune token add ci)
    """
    require_token(name, role)  # before a database is made
    lasts = None if expires is None else lasting(expires, "--expires")
    with ServerStore.open(database) as store:
        token = store.add_token(name, role, lasts)
    write(token)
    say(f"{name} may {role}; send it as Authorization: Bearer, or set AUTOTUNE_TOKEN to it")


@tokens.command("list")
def list_tokens(database: DatabaseOption = None, as_json: JsonOption = False) -> None:
    """List the tokens with their role and validity.

    \b
    Examples:
      autotune token list
      autotune token list --db team.db --json
    """
    with ServerStore.to_read(database) as store:
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
    """Revoke a token for good; servers know within a second.

    \b
    Examples:
      autotune token revoke ann
    """
    with ServerStore.to_read(database) as store:  # makes no database
        if name not in {one.name for one in store.tokens()}:
            raise UsageError(f"no token named {name!r}", where="NAME", hint="autotune token list names them")
    with ServerStore.open(database) as store:
        store.revoke_token(name)
    say(f"the token of {name} is revoked")


def _row(one: Token) -> tuple[str, ...]:
    state = "revoked" if one.revoked else "good" if one.valid else "expired"
    expires = f"{one.expires[:16].replace('T', ' ')} UTC" if one.expires else ""
    return one.name, one.role, one.created[:10], expires, state
