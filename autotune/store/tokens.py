"""Who may ask a server for what: tokens by name, kept as hashes.

A token is 32 random bytes, so a plain SHA-256 of it tells nobody what it is.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, insert, select, update

from autotune.errors import UsageError
from autotune.store.access import Access
from autotune.store.records import instant, now
from autotune.store.schema import tokens
from autotune.text import parse_duration

ROLES = ("read", "write", "run", "admin")
"""Each may do what those before it may: look and take away; import; have kernels run; see to tokens."""

CONSOLE = "console"
"""The name of whoever started a server: no token's."""

_LONGEST_DAYS = 36_500
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}"


@dataclass(frozen=True, slots=True)
class Token:
    """A token, but for itself. Instants are ISO 8601 in UTC."""

    name: str
    role: str
    created: str
    expires: str | None
    revoked: str | None

    @property
    def valid(self) -> bool:
        """Whether it is good now."""
        return self.revoked is None and (self.expires is None or self.expires > now())


def lifetime(seconds: float, where: str) -> timedelta:
    """Return how long a token lasts: a minute to a hundred years. Raises UsageError at `where`."""
    if not 60 <= seconds <= _LONGEST_DAYS * 86400:
        what = (
            "a token lasts for a minute at least" if seconds < 60 else f"a token lasts for {_LONGEST_DAYS} days at most"
        )
        raise UsageError(what, where=where, hint="write 90d, 8w or 12h, or nothing for good")
    return timedelta(seconds=seconds)


def token_hash(token: str) -> str:
    """Return what is kept of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def lasting(told: str, where: str) -> timedelta:
    """Return how long a token is good that is to last `90d`, `8w` or `1h30m`. Raises UsageError, placed at `where`."""
    hint = "write 90d, 8w or 12h"
    if told.strip()[-1:].isdigit():
        raise UsageError(f"{told!r} has no unit", where=where, hint=hint)
    return lifetime(parse_duration(told, where=where, hint=hint), where)


def require_token(name: str, role: str) -> None:
    """Raise UsageError for what can be no token's name, or no role."""
    if not re.fullmatch(_NAME, name) or name == CONSOLE:
        raise UsageError(f"{name!r:.80} is not a name", where="NAME", hint="write letters, digits, _ . @ -")
    if role not in ROLES:
        raise UsageError(f"no role {role!r:.40}", where="--role", hint=f"roles: {', '.join(ROLES)}")


def new_token() -> str:
    """Return a token that nobody can guess."""
    return f"at_{secrets.token_urlsafe(32)}"


class Tokens(Access):
    """The tokens of a server. Every method is one transaction and may raise StoreError."""

    def add_token(self, name: str, role: str, lasts: timedelta | None) -> str:
        """Make a token and return it: it is told this once. Raises UsageError for a name that is taken."""
        require_token(name, role)
        token = new_token()
        expires = None if lasts is None else instant(datetime.now(UTC) + lasts)
        columns = {"name": name, "hash": token_hash(token), "role": role, "created": now(), "expires": expires}

        def step(connection: Connection) -> bool:
            known = connection.execute(select(tokens.c.hash).where(tokens.c.name == name)).scalar()
            if known is None:
                connection.execute(insert(tokens), columns)
            return known in (None, columns["hash"])

        if not self._written(step):
            hint = "choose another: searches name who asked for them, so no name is given twice"
            raise UsageError(f"a token named {name} is there, or was", where="NAME", hint=hint)
        return token

    def tokens(self) -> list[Token]:
        """Return every token, the oldest first."""
        with self._reading() as connection:
            return [_token(row) for row in connection.execute(select(tokens).order_by(tokens.c.id)).mappings()]

    def revoke_token(self, name: str) -> bool:
        """End a token for good; False where there is none of that name."""
        chosen = tokens.c.name == name
        step = update(tokens).where(chosen, tokens.c.revoked.is_(None)).values(revoked=now())

        def revoke(connection: Connection) -> bool:
            connection.execute(step)
            return connection.execute(select(tokens.c.id).where(chosen)).first() is not None

        return self._written(revoke)

    def token_of(self, token: str) -> Token | None:
        """Return the token that this is, if it is good now."""
        with self._reading() as connection:
            row = connection.execute(select(tokens).where(tokens.c.hash == token_hash(token))).mappings().first()
        found = None if row is None else _token(row)
        return found if found is not None and found.valid else None


def _token(row: object) -> Token:
    return Token(**{name: row[name] for name in Token.__slots__})  # type: ignore[index]
