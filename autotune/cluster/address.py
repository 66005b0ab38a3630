"""Where a cluster's scheduler is, and the connection to it: Dask's own, with Dask's own settings for TLS."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from autotune.errors import SetupError, UsageError

if TYPE_CHECKING:
    from distributed import Client

_ADDRESS = re.compile(r"(?:(tcp|tls)://)?(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?/?")
_PORT = 8786

CONNECT_S = 10.0
"""How long a scheduler may take to answer."""


class SchedulerAway(SetupError):
    """No scheduler answers, or none of our kind; one may come yet."""


@dataclass(frozen=True)
class Address:
    """A scheduler: `tcp://head:8786`, or `tls://head:8786` where the connection is encrypted."""

    protocol: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """Return the address that somebody typed; `tcp` and Dask's port where they are left out. Raises UsageError."""
        found = _ADDRESS.fullmatch(text.strip())
        if found is None or not 0 < int(found[3] or _PORT) < 2**16:
            raise UsageError(
                f"{text!r} is no address of a scheduler", where="--on", hint="write --on tcp://HOST:8786, or tls://"
            )
        return cls(found[1] or "tcp", found[2], int(found[3] or _PORT))

    def __str__(self) -> str:
        return f"{self.protocol}://{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """True where nobody else can hear or send."""
        try:
            return ipaddress.ip_address(self.ip).is_loopback
        except ValueError:
            return False

    @property
    def is_open(self) -> bool:
        """True where whoever reaches the port is believed: neither encrypted nor of this machine alone."""
        return self.protocol == "tcp" and not self.is_loopback

    @property
    def ip(self) -> str:
        """The host as a number; as it was typed where it has none."""
        host = self.host.strip("[]")
        try:
            return str(socket.getaddrinfo(host, self.port, type=socket.SOCK_STREAM)[0][4][0])
        except OSError:
            return host

    def near(self) -> str:
        """Return this machine's own address on the way there: the only one that a worker listens at.

        Raises SetupError where there is no way.
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
    """Raise SetupError where the extra is not installed; keep Dask from talking to the terminal."""
    if find_spec("distributed") is None:
        raise SetupError(
            "a cluster needs dask.distributed, which is not installed",
            hint="pip install '.[cluster]' in a checkout, or pip install 'opencl-autotune[cluster]'",
        )
    import distributed.versions

    warnings.filterwarnings("ignore", category=distributed.versions.VersionMismatchWarning)  # refused in a line
    if os.environ.get("AUTOTUNE_LOG", "").lower() != "debug":
        for name in ("distributed", "distributed.client", "tornado"):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def security(address: Address) -> Any:
    """Return Dask's settings for TLS. Raises SetupError where they are needed and missing, or cannot be read."""
    from distributed.security import Security

    try:
        found = Security()
        arguments = found.get_connection_args("client")
    except (OSError, ValueError) as error:
        raise SetupError(f"the TLS files cannot be read: {error}", hint="see docs/cluster.md, TLS") from None
    if address.protocol == "tls" and arguments.get("ssl_context") is None:
        raise SetupError(
            "no certificate is named", where=str(address), hint="docs/cluster.md, TLS, has the six lines that name it"
        )
    if address.protocol == "tcp" and arguments.get("require_encryption"):
        raise SetupError("Dask's settings require encryption", where=str(address), hint="write --on tls://...")
    return found


async def connect(address: Address, timeout_s: float = CONNECT_S) -> Client:
    """Return an asynchronous client of a scheduler.

    Raises SchedulerAway where none answers, SetupError where it is not as ours.
    """
    import dask
    from distributed import Client

    require_distributed()
    known = security(address)
    with dask.config.set({"distributed.diagnostics.computations.nframes": 0}):  # no source code of ours travels
        client: Client = Client(
            str(address), asynchronous=True, security=known, timeout=timeout_s, set_as_default=False, name="autotune"
        )
    try:
        await client
        await _require_same(client, address)
    except SetupError:
        await client.close(timeout=1)
        raise
    except Exception as error:  # refused, no route, a stranger's protocol, a certificate: whatever it says
        await client.close(timeout=1)
        last = next((part for part in reversed(str(error).splitlines()) if part.strip()), type(error).__name__)
        raise SchedulerAway(
            f"no scheduler answers ({last.strip()[:200]})",
            where=str(address),
            hint=f"start one there: dask scheduler --host {address.host} --port {address.port} --no-dashboard",
        ) from None
    return client


async def _require_same(client: Client, address: Address) -> None:
    """Raise SetupError where the scheduler runs another version of distributed: the protocol is no promise."""
    import distributed

    theirs = (await client.scheduler.versions())["packages"].get("distributed")
    if theirs != distributed.__version__:
        raise SetupError(
            f"the scheduler runs distributed {theirs}, this is {distributed.__version__}",
            where=str(address),
            hint=f"install the same in both places: pip install distributed=={theirs}",
        )
