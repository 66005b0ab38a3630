"""Devices: which there are, and one of them as a session that builds and launches. One file is one backend."""

from autotune.devices.backend import (
    ArgumentError,
    Backend,
    BackendError,
    BuildError,
    Event,
    Kernel,
    KernelLimits,
    Memory,
    Program,
    Session,
    Traits,
)
from autotune.devices import (
    load_backend,
    diagnose,
    environment,
    find_device,
    find_devices,
    list_devices,
    open_session,
    require_usable,
    traits,
)

__all__ = [
    "ArgumentError",
    "Backend",
    "BackendError",
    "BuildError",
    "Event",
    "Kernel",
    "KernelLimits",
    "Memory",
    "Program",
    "Session",
    "Traits",
    "load_backend",
    "diagnose",
    "environment",
    "find_device",
    "find_devices",
    "list_devices",
    "open_session",
    "require_usable",
    "traits",
]
