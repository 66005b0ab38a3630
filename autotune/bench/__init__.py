"""Beside the device, in a worker: from a plan to its report. `serve` is what the worker runs.

What builds and runs is imported when first used: the search needs none of it.
"""

from typing import TYPE_CHECKING

from autotune import lazily
from autotune.bench.arena import GUARD
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
from autotune.bench.report import Fault, Report, first_error, is_too_large, undeclared
from autotune.bench.timing import BUILD_S, FIRST_S, VERIFIED_S, Limits, Rules, verifying_s

if TYPE_CHECKING:
    from autotune.bench.levels import SAMPLES, TOGETHER, is_settled
    from autotune.bench.prepare import Compiled, compile_plan
    from autotune.bench.serving import serve
else:
    __getattr__ = lazily(
        __name__,
        {"levels": "SAMPLES TOGETHER is_settled", "prepare": "Compiled compile_plan", "serving": "serve"},
    )
