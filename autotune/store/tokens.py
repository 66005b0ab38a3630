"""Who may do what on a server: tokens by name, stored as hashes.

A token is 32 random bytes, so its plain SHA-256 does not reveal it.
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
"""Each role may do all that those before it may: read and export; import; run kernels; manage tokens."""

CONSOLE = "console"
"""The name of the user who started a server; no token may have it."""

_LONGEST_DAYS = 36_500
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,63}"


@dataclass(frozen=True, slots=True)
class Token:
    """The stored facts of a token, without its secret. Instants are ISO 8601 in UTC."""

    name: str
    role: str
    created: str
    expires: str | None
    revoked: str | None

    @property
    def valid(self) -> bool:
        """Whether it is valid now."""
        return self.revoked is None and (self.expires is None or self.expires > now())


def lifetime(seconds: float, where: str) -> timedelta:
    """Return the lifetime of a token. Raises UsageError at `where` unless it is a minute to a hundred years."""
    if not 60 <= seconds <= _LONGEST_DAYS * 86400:
        what = (
            "a token lasts for a minute at least" if seconds < 60 else f"a token lasts for {_LONGEST_DAYS} days at most"
        )
        raise UsageError(what, where=where, hint="write 90d, 8w or 12h, or nothing for good")
    return timedelta(seconds=seconds)


def token_hash(token: str) -> str:
    """Return the stored hash of a token."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def lasting(told: str, where: str) -> timedelta:
    """Return the lifetime in a text such as `90d`, `8w` or `1h30m`. Raises UsageError at `where`."""
    hint = "write 90d, 8w or 12h"
    if told.strip()[-1:].isdigit():
        raise UsageError(f"{told!r} has no unit", where=where, hint=hint)
    return lifetime(parse_duration(told, where=where, hint=hint), where)


def require_token(name: str, role: str) -> None:
    """Raise UsageError if a token cannot have this name, or there is no such role."""
    if not re.fullmatch(_NAME, name) or name == CONSOLE:
        raise UsageError(f"{name!r:.80} is not a name", where="NAME", hint="write letters, digits, _ . @ -")
    if role not in ROLES:
        raise UsageError(f"no role {role!r:.40}", where="--role", hint=f"roles: {', '.join(ROLES)}")


def new_token() -> str:
    """Return a new token that cannot be guessed."""
    return f"at_{secrets.token_urlsafe(32)}"


class Tokens(Access):
    """The tokens of a server. Every method is one transaction and may raise StoreError."""

    def add_token(self, name: str, role: str, lasts: timedelta | None) -> str:
        """Create a token and return it, only this once. Raises UsageError if the name is taken."""
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
        """Revoke a token for good; return False if there is none with this name."""
        chosen = tokens.c.name == name
        step = update(tokens).where(chosen, tokens.c.revoked.is_(None)).values(revoked=now())

        def revoke(connection: Connection) -> bool:
            connection.execute(step)
            return connection.execute(select(tokens.c.id).where(chosen)).first() is not None

        return self._written(revoke)

    def token_of(self, token: str) -> Token | None:
        """Return the facts of a token if it is known and valid now, else None."""
        with self._reading() as connection:
            row = connection.execute(select(tokens).where(tokens.c.hash == token_hash(token))).mappings().first()
        found = None if row is None else _token(row)
        return found if found is not None and found.valid else None


def _token(row: object) -> Token:
    return Token(**{name: row[name] for name in Token.__slots__})  # type: ignore[index]
