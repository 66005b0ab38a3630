"""The search: a Request goes in, a Result comes out. Nothing here prints, handles signals or waits for ever.

    request.py   Request and Budget
    start.py     run: opens store and evaluator, and recalls what is stored
    loop.py      Search: keeps the evaluator busy, and a ledger of every attempt
    recall.py    which stored trials count
    finale.py    times the fastest again; which one is fastest, which ones tie with it
    measure.py   measures given configurations in turns
    several.py   searches several sizes in one run
    result.py    Progress and Result
    replay.py    searches recorded trials, without a device
    notebook.py  how a notebook shows a result

Start with `run(Request(...))`.
"""

from autotune.tuner.finale import fastest
from autotune.tuner.measure import measure
from autotune.tuner.recall import imported_best, ours, recall
from autotune.tuner.replay import ReplayEvaluator
from autotune.tuner.request import DEFAULT_SECONDS, GAIN_TRIALS, Budget, Request
from autotune.tuner.result import Progress, ProgressCallback, Result, confidence_of, standing
from autotune.tuner.several import Turn, require_enough, run_sizes
from autotune.tuner.start import afforded, run
