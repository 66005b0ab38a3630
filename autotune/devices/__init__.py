"""Lists devices, and opens one as a session that builds and launches. Each backend is one file."""

from autotune.devices.backend import (
    ArgumentError,
    Backend,
    BackendError,
    Batch,
    BuildError,
    Event,
    Kernel,
    KernelArgument,
    KernelLimits,
    Memory,
    Program,
    Session,
    Traits,
)
from autotune.devices.guest import Given, GivenImage, Guest, Run, Step
from autotune.devices.leftover import locked_folder, try_lock
from autotune.devices.select import (
    attach,
    choose,
    diagnose,
    environment,
    find_device,
    find_devices,
    list_bundled,
    list_by,
    list_devices,
    load_backend,
    open_session,
    prepare,
    require_own_drivers,
    require_usable,
    selector_of,
    traits,
)
from autotune.devices.sensors import Reading
from autotune.devices.sensors import prepare as prepare_sensors
from autotune.devices.vendors import faulty

__all__ = [
    "ArgumentError", "Backend", "BackendError", "Batch", "BuildError", "Event", "Given", "GivenImage", "Guest",
    "Kernel", "KernelArgument", "KernelLimits", "Memory", "Program", "Reading", "Run", "Session", "Step", "Traits",
]  # fmt: skip
"""The names that authors of a backend need: type checkers let other packages import only these."""
