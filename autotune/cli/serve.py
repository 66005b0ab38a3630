"""`autotune serve`: searches and results over HTTP."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from autotune import cluster, pool, text
from autotune.cli.options import DatabaseOption, OnOption, PythonOption
from autotune.cli.output import say, warn
from autotune.errors import SetupError


def serve(
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Where to listen; this machine only by default.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="0: any that is free.")] = 8080,
    certificate: Annotated[
        Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate, to be reached by others.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key.")] = None,
    behind_proxy: Annotated[
        bool, typer.Option("--behind-proxy", help="A reverse proxy encrypts; everybody needs a token.")
    ] = False,
    root_path: Annotated[
        str, typer.Option(metavar="PATH", help="The path below which a proxy has it, and which it takes off: /tune.")
    ] = "",
    host_name: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A name it may be called by. Repeatable.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="What its queue is stored under. Default: this machine's name.")
    ] = None,
    longest: Annotated[str, typer.Option(metavar="4h", help="How long a search may take.")] = "4h",
    allow_python: PythonOption = False,
    on: OnOption = None,
    database: DatabaseOption = None,
) -> None:
    """Serve searches, results and pages over HTTP.

    It serves this machine or, with tokens and TLS, a team. The address that it prints opens the pages with the rights
    of whoever started it; if others can reach the server, the address is printed on a terminal only, because others may
    read logs. Ctrl-C ends it in order: queued searches stay queued, and running ones go on at the next start.

    \b
    Examples:
      autotune serve
      autotune token add ann --role run --expires 90d
      autotune serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
      autotune serve --on tls://head:8786
    """
    try:
        from autotune.service import Config, Limits, Service
        from autotune.service import serve as listen
    except ImportError as error:
        raise SetupError(f"serving takes {error.name}", hint=text.installing("serve")) from None
    limits = Limits(seconds=text.parse_duration(longest, where="--longest"))
    config = Config(
        database, host, port, certificate, key, behind_proxy, root_path.rstrip("/"), tuple(host_name or ()),
        allow_python, limits=limits,
    )  # fmt: skip
    if name is not None:
        config = replace(config, name=name)
    if on is not None:
        cluster.require_distributed()
        address = cluster.Address.parse(on)
        if address.is_open:
            warn(f"{address} is not encrypted: anyone who reaches its port can run programs on every worker")
        config = replace(config, on=str(address))
    else:
        pool.lock_folder()  # checks AUTOTUNE_LOCKS now, because a search would report it too late

    def begun(url: str, service: Service) -> None:
        say(f"serving {service.store.where} at {url}")
        for device in service.machine.devices:
            say(f"  device {device.number}: {device.name} ({device.fingerprint})")
        for line in service.machine.amiss:
            say(f"  {line}")
        if config.is_local or sys.stderr.isatty():
            say(f"as yourself, with every right: {url}/login?token={service.callers.console}")
        else:
            place = text.typed(["--db", service.store.where])
            say(f"sign in with a token: autotune token add NAME --role admin {place}")

    listen(config, begun)
