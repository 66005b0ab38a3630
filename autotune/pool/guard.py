"""Entry point of the process that answers for an author's Python: `python -m autotune.pool.guard REQUEST PARENT`.

What a function starts, a pool of processes say, would outlive a search that is killed or interrupted. So this process,
the first of a session of its own, has a child call the function (alone.py), waits, and takes all along as the search
ends.
"""

import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from autotune.pool.worker import die_with


def main(request: Path, parent: int) -> None:
    """Have a child do what a request says, and end as it does."""
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
    if code < 0:  # the caller is to see by what; one dump of it is enough
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with suppress(OSError):  # SIGKILL, for want of memory as a rule, has no other way
            signal.signal(-code, signal.SIG_DFL)
        os.kill(own, -code)
    os._exit(code)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
