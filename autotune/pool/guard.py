"""Entry point of the process that guards an author's Python: `python -m autotune.pool.guard REQUEST PARENT`.

Processes that the function starts, such as a process pool, would outlive a search that is killed or interrupted. So
this process leads a session of its own, lets a child call the function (alone.py), waits, and kills the whole group
when the search ends.
"""

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from autotune.pool.worker import die_with


def main(request: Path, parent: int) -> None:
    """Let a child do what a request says, and end with its exit code or signal."""
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    die_with(parent, signal.SIGTERM)
    own = os.getpid()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        die_with(own)
        from autotune.pool import alone

        alone.main(request)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code < 0:  # die by the same signal, so that the caller sees it; one core dump is enough
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # the action of SIGKILL (mostly: memory is short) cannot be set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(own, -code)
    os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
