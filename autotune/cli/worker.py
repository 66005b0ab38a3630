"""`autotune worker`: devices of this machine serve a cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune import cluster, devices
from autotune.cli.options import DevicesOption
from autotune.cli.output import say, warn
from autotune.devices import require_usable


def worker(
    on: Annotated[str, typer.Option(metavar="ADDRESS", help="The cluster's scheduler, such as tcp://head:8786.")],
    device: DevicesOption = None,
) -> None:
    """Offer this machine's devices to the searches of a cluster.

    Ctrl-C ends it. Anyone who can reach the scheduler can run programs here with your rights: read docs/cluster.md
    first.

    \b
    Examples:
      autotune worker --on tcp://127.0.0.1:8786
      autotune worker --on tls://head:8786 -d all
    """
    address = cluster.Address.parse(on)
    chosen = devices.find_devices(device) if device is not None else [devices.find_device(None)]
    for one in chosen:
        require_usable(one)
    if address.is_open:
        warn(f"{address} is not encrypted: anyone who reaches its port can run programs here; see docs/cluster.md")
    cluster.serve(address, chosen, say)
    raise KeyboardInterrupt  # it was asked to end, by any of the signals
