"""How a server is started, and which configurations it refuses."""

from __future__ import annotations

import platform
import re
import shlex
import ssl
from dataclasses import dataclass, field
from pathlib import Path

from autotune.errors import UsageError
from autotune.service.transport import is_loopback
from autotune.text import to_open


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one request, one search and one user.

    Bytes and files of an upload; seconds and trials of a search; valid configurations of an uploaded study's space;
    waiting and running searches of one user; bytes of an import; seconds and bytes of memory of a check.
    """

    upload_bytes: int = 2**20
    upload_files: int = 64
    seconds: float = 4 * 3600.0
    trials: int = 100_000
    space: int = 10**9
    waiting: int = 50
    import_bytes: int = 2**30
    check_s: float = 30.0
    check_bytes: int = 4 * 2**30


@dataclass(frozen=True, slots=True)
class Config:
    """A server. Its queue is stored under `name`: several servers may share a database.

    `database` is a path or a URL, `host` and `port` where it listens, `certificate` and `key` the PEM files of its TLS.
    `behind_proxy`: a reverse proxy encrypts, and says who asks. `root` is the path below which browsers find the
    server, such as `/tune`, if a proxy removes it. `names` are the host names by which it may be called, besides those
    of loopback. `allow_python` runs references in Python of anyone who may have searches run. `read_only` serves what
    is stored and accepts nothing. `limits` bound the requests. `on` is the scheduler of the cluster that its searches
    run on; None: this machine. `best_age_s` is how long the answer to a look-up may be used again.
    """

    database: str | None = None
    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None
    behind_proxy: bool = False
    root: str = ""
    names: tuple[str, ...] = ()
    allow_python: bool = False
    read_only: bool = False
    name: str = field(default_factory=platform.node)
    limits: Limits = field(default_factory=Limits)
    on: str | None = None
    best_age_s: float = 1.0

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it, directly or through a proxy."""
        return is_loopback(self.host) and not self.behind_proxy

    @property
    def is_secure(self) -> bool:
        """Whether browsers reach it by HTTPS only."""
        return self.certificate is not None or self.behind_proxy


def require_safe(config: Config, has_tokens: bool) -> None:
    """Raise UsageError for a server that others could reach without identifying themselves, or in clear text."""
    if config.root and not _ROOT.fullmatch(config.root):
        hint = "write it as in an address, from its first slash: /tune"
        raise UsageError(f"{config.root!r:.60} is not a path", where="--root-path", hint=hint)
    for name in config.names:
        if not _NAME.fullmatch(name):
            hint = "write what stands between :// and the port: tune.example.org"
            raise UsageError(f"{name!r:.60} is not a host name", where="--host-name", hint=hint)
    if (config.certificate is None) != (config.key is None):
        raise UsageError("a certificate and its key go together", where="--tls-cert, --tls-key", hint="give both")
    if config.certificate is not None and config.key is not None:
        _require_pair(config.certificate, config.key)
    if config.is_local:
        return
    where = "--behind-proxy" if config.behind_proxy else f"--host {config.host}"
    if not has_tokens:
        raise UsageError("others would reach this server, and no token is there", where=where, hint=_ADD)
    if config.certificate is None and not config.behind_proxy:
        hint = "give --tls-cert and --tls-key, or --behind-proxy where a reverse proxy encrypts"
        raise UsageError("others would reach this server in clear text", where=where, hint=hint)


def _require_pair(certificate: Path, key: Path) -> None:
    """Raise UsageError if a certificate and its key cannot be used."""
    for option, path in (("--tls-cert", certificate), ("--tls-key", key)):
        try:
            path.open("rb").close()
        except OSError as error:
            hint = to_open(str(path), error)
            raise UsageError(f"cannot be read: {error.strerror}", where=f"{option} {path}", hint=hint) from None

    def phrase() -> str:
        hint = f"take it off: openssl pkey -in {shlex.quote(str(key))} -out FILE"
        raise UsageError("has a pass phrase, which nobody types for a server", where=f"--tls-key {key}", hint=hint)

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, phrase)
    except OSError as error:  # errors of SSL are among them
        hint = "give a certificate and its own key, both as PEM"
        where = f"--tls-cert {certificate} --tls-key {key}"
        raise UsageError(f"cannot be used together: {error.strerror}", where=where, hint=hint) from None


_ROOT = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_NAME = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*|\[[0-9A-Fa-f:.]+\]")
_ADD = "autotune token add NAME --role run"
