"""Where a cluster's scheduler is, and the connection to it: Dask's own, with Dask's own settings for TLS."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import shlex
import socket
import ssl
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from autotune.cluster.failures import close
from autotune.errors import SetupError, UsageError
from autotune.text import installing

if TYPE_CHECKING:
    from distributed import Client

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"(?:(tcp|tls)://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?/?")
_PORT = 8786

CONNECT_S = 10.0
"""Seconds for a connection to the scheduler's port."""

_ANSWER_S = 5.0
"""Seconds for what listens there to answer as a scheduler: Dask itself would wait for ever."""

_CLOSE_S = 1.0


class SchedulerAway(SetupError):
    """No scheduler answers, or none of our kind; one may still start."""


@dataclass(frozen=True)
class Address:
    """A scheduler: `tcp://head:8786`, or `tls://head:8786` for an encrypted connection."""

    protocol: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that somebody typed, by default with `tcp` and Dask's port. Raises UsageError."""
        found = _ADDRESS.fullmatch(text.strip())
        if found is None or not 0 < int(found[3] or _PORT) < 2**16:
            raise UsageError(
                f"{text!r} is not an address of a scheduler", where="--on", hint="write --on tcp://HOST:8786, or tls://"
            )
        return cls(found[1] or "tcp", found[2], int(found[3] or _PORT))

    def __str__(self) -> str:
        return f"{self.protocol}://{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True if only this machine can read or send there."""
        try:
            return ipaddress.ip_address(self.ip).is_loopback
        except ValueError:
            return False

    @property
    def is_open(self) -> bool:
        """True if everyone who reaches the port is trusted: it is neither encrypted nor limited to this machine."""
        return self.protocol == "tcp" and not self.is_loopback

    @property
    def ip(self) -> str:
        """The host as a number, or as it was typed if it has no number."""
        host = self.host.strip("[]")
        try:
            return str(socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)[0][4][0])
        except (OSError, UnicodeError):  # the name is not known, or not a valid one
            return host

    def near(self) -> str:
        """Return this machine's own address towards the scheduler; a worker listens only there.

        Raises SetupError if there is no route.
        """
        ip = self.ip
        family = socket.AF_INET6 if ":" in ip else socket.AF_INET
        try:
            with socket.socket(family, socket.SOCK_DGRAM) as probe:  # sends nothing
                probe.connect((ip, self.port))
                return str(probe.getsockname()[0])
        except OSError as error:
            raise SetupError(f"no way there: {error.strerror or error}", where=str(self)) from None


def require_distributed() -> None:
    """Raise SetupError if the extra is not installed; `hush` Dask."""
    if find_spec("distributed") is None:
        raise SetupError(
            "a cluster needs dask.distributed, which is not installed",
            hint=installing("cluster"),
        )
    import distributed.versions

    warnings.filterwarnings("ignore", category=distributed.versions.VersionMismatchWarning)  # we refuse with one line
    hush()


def hush() -> None:
    """Keep Dask from writing to this process's terminal: for messages that it cannot read, it prints tracebacks."""
    if os.environ.get("AUTOTUNE_LOG", "").lower() != "debug":
        for name in ("distributed", "distributed.client", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def keep_quiet() -> None:
    """Have errors in callbacks of the running loop logged for debugging instead of printed.

    Errors of a connection that was given up may come late.
    """

    def note(_: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        log.debug("%s", context.get("message", ""), exc_info=context.get("exception"))

    asyncio.get_running_loop().set_exception_handler(note)


def security(address: Address, role: str = "client") -> Any:
    """Return Dask's settings for TLS. Raises SetupError if a role's are needed but missing, or cannot be read."""
    from distributed.security import Security

    _require_no_phrase(role)
    try:
        found = Security()
        arguments = found.get_connection_args(role)
    except (OSError, ValueError) as error:  # the error names no file
        raise SetupError(
            f"the TLS files of a {role} cannot be read: {error}",
            where=_tls_files(role),
            hint="see docs/cluster.md, Who may join",
        ) from None
    if address.protocol == "tls" and arguments.get("ssl_context") is None:
        raise SetupError(
            f"no certificate of a {role} is named",
            where=str(address),
            hint="docs/cluster.md, Who may join, has the lines that name it",
        )
    if address.protocol == "tcp" and arguments.get("require_encryption"):
        raise SetupError("Dask's settings require encryption", where=str(address), hint="write --on tls://...")
    return found


def _require_no_phrase(role: str) -> None:
    """Raise SetupError if a role's key has a pass phrase: OpenSSL would ask for it, in each process."""
    certificate, key = _tls_file(f"{role}.cert"), _tls_file(f"{role}.key")

    def phrase() -> str:
        hint = f"take it off: openssl pkey -in {shlex.quote(key or certificate)} -out FILE"
        raise SetupError("has a pass phrase, which nobody types for a cluster", where=key or certificate, hint=hint)

    with suppress(OSError, ValueError):  # Dask's own attempt reports these
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(certificate, key or None, phrase)


def _tls_file(setting: str) -> str:
    """Return a file that Dask's settings name, or an empty string if they name none or hold its content."""
    import dask.config

    named = str(dask.config.get(f"distributed.comm.tls.{setting}", None) or "")
    return "" if "\n" in named else named


def _tls_files(role: str) -> str:
    """Return the files that Dask's settings name for a role."""
    return ", ".join(filter(None, map(_tls_file, (f"{role}.cert", f"{role}.key", "ca-file"))))


async def connect(address: Address, timeout_s: float = CONNECT_S) -> Client:
    """Return an asynchronous client of a scheduler.

    Raises SchedulerAway if none answers, SetupError if it does not match this side.
    """
    import dask
    from distributed import Client

    require_distributed()
    known = security(address)
    await _require_known(address)
    with dask.config.set({"distributed.diagnostics.computations.nframes": 0}):  # sends no source code of ours
        client: Client = Client(
            str(address), asynchronous=True, security=known, timeout=timeout_s, set_as_default=False, name="autotune"
        )
    try:
        async with asyncio.timeout(timeout_s + _ANSWER_S):
            await client
            await _require_same(client, address)
    except BaseException as error:  # also if cancelled: a client that is not closed warns at the end
        await close(client, _CLOSE_S)
        if isinstance(error, SetupError) or not isinstance(error, Exception):
            raise
        raise _away(address, error) from None
    return client


async def _require_known(address: Address) -> None:
    """Raise SchedulerAway if the host's name is not known: Dask would ask for it again and again."""
    try:
        await asyncio.get_running_loop().getaddrinfo(address.host.strip("[]"), address.port)
    except (OSError, UnicodeError) as error:
        hint = "correct the name, or write its number"
        raise SchedulerAway(f"unknown host {address.host} ({error})", where=str(address), hint=hint) from None


def _away(address: Address, error: Exception) -> SchedulerAway:
    """Return the error for a failed connection: refused, no route, another protocol, a certificate."""
    root = _root(error)
    said = getattr(root, "strerror", None) or next((part for part in reversed(str(root).splitlines()) if part), "")
    if not isinstance(root, OSError):  # what reading it raised: of a web server's, that there is not so much memory
        said = f"the answer is not a scheduler's: {type(root).__name__}"
    reason = " ".join(said.split())[:200] or ("silence" if isinstance(root, TimeoutError) else type(root).__name__)
    return SchedulerAway(f"no scheduler answers ({reason})", where=str(address), hint=_cure(address, error, root))


def _root(error: BaseException) -> BaseException:
    """Return the network's own error among the errors that led to this one, or this one if there is none."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError | ConnectionRefusedError | ConnectionResetError):
            return cause
        cause = getattr(cause, "real_error", None) or cause.__cause__ or cause.__context__
    return error


_OUT_OF_DATE = (9, 10)
"""Errors of a certificate, by OpenSSL's X509_V_ERR: not yet valid, or expired."""


def _cure(address: Address, error: Exception, root: BaseException) -> str:
    """Return what to do about it; `root`: the network's error."""
    from distributed.comm import CommClosedError

    if getattr(root, "verify_code", 0) in _OUT_OF_DATE:
        return "make another, for every machine (docs/cluster.md, Who may join), or set the clock right"
    if isinstance(root, ssl.SSLError):
        return "start it with --protocol tls, and give both ends the same certificate: docs/cluster.md, Who may join"
    if isinstance(error, OSError) and not isinstance(error, TimeoutError | CommClosedError):
        return f"start one there: {_command(address)}"
    other = "with TLS (write --on tls://...)" if address.protocol == "tcp" else "without (start it with --protocol tls)"
    return f"what listens there is stopped, or no scheduler, or one {other}"


def _command(address: Address) -> str:
    """Return the command that starts a scheduler that listens only at this address."""
    protocol = " --protocol tls" if address.protocol == "tls" else ""
    where = f"--host {address.host} --port {address.port}{protocol}"
    return f"dask scheduler {where} --no-dashboard --dashboard-address 127.0.0.1:0"


async def _require_same(client: Client, address: Address) -> None:
    """Raise SetupError if the scheduler runs another version of distributed: protocols may differ between versions."""
    import distributed

    theirs = (await client.scheduler.versions())["packages"].get("distributed")
    if theirs != distributed.__version__:
        raise SetupError(
            f"the scheduler runs distributed {theirs}, this is {distributed.__version__}",
            where=str(address),
            hint=f"install the same in both places: pip install distributed=={theirs}",
        )
