"""A kernel that is known to be good: if it fails too, the machine is at fault and not the configuration.

Otherwise a missing linker, a full disk, a cache that cannot be written or a broken driver would be recorded as a
failure of the current trial.
"""

from __future__ import annotations

import numpy as np

from autotune.bench.messages import Sound
from autotune.devices import BackendError, Session

PROBE = "probe"
"""The phase in which a worker builds and runs that kernel."""

_ITEMS = 64

_SOURCE = """
kernel void probe(global uint *out) { out[get_global_id(0)] = SALT + (uint)get_global_id(0); }
"""


def probe(session: Session, salt: int) -> Sound:
    """Build, launch and check the kernel with this salt. A broken driver may end the process instead."""
    try:
        found, out = np.zeros(_ITEMS, np.uint32), session.allocate(4 * _ITEMS)
        if session.traits.checks_on_device:
            kernel = session.build(_SOURCE, [f"-DSALT={salt}u"]).kernel("probe")
            session.set_arguments(kernel, [out])
            event = session.launch(kernel, (_ITEMS,), (_ITEMS,))
            if session.traits.builds_at_launch and not session.wait_until_running(event):
                return Sound("it did not compile at its first launch")
        else:
            session.write(out, salt + np.arange(_ITEMS, dtype=np.uint32))
        session.read(out, found)
        session.busy_ns()
    except BackendError as error:
        return Sound(str(error), error.detail)
    wrong = found != salt + np.arange(_ITEMS, dtype=np.uint32)
    if wrong.any():
        return Sound(f"{int(wrong.sum())} of {_ITEMS} values that it wrote are wrong")
    return Sound()
