"""What a worker process does on its device: from a plan to its report. The worker runs `serve`.

The names below are imported when first used: the search needs few of them, a command line only the limits.
"""

from typing import TYPE_CHECKING

from autotune import lazily

if TYPE_CHECKING:
    from autotune.bench.arena import GUARD
    from autotune.bench.levels import SAMPLES, TOGETHER, are_apart, is_settled
    from autotune.bench.messages import (
        DOING,
        EndToEnd,
        Inspect,
        Inspected,
        Job,
        Keep,
        Kept,
        Onward,
        Phase,
        Probe,
        Ready,
        Retime,
        Setup,
        Sound,
        Turn,
        Use,
        Visit,
        Visited,
    )
    from autotune.bench.prepare import Compiled, compile_plan
    from autotune.bench.report import Fault, Report, first_error, is_too_large, undeclared
    from autotune.bench.serving import serve
    from autotune.bench.timing import BUILD_S, FIRST_S, VERIFIED_S, Limits, Rules, verifying_s
else:
    __getattr__ = lazily(
        __name__,
        {
            "arena": "GUARD",
            "levels": "SAMPLES TOGETHER are_apart is_settled",
            "messages": "DOING EndToEnd Inspect Inspected Job Keep Kept Onward Phase Probe Ready Retime Setup Sound "
            "Turn Use Visit Visited",
            "prepare": "Compiled compile_plan",
            "report": "Fault Report first_error is_too_large undeclared",
            "serving": "serve",
            "timing": "BUILD_S FIRST_S VERIFIED_S Limits Rules verifying_s",
        },
    )
