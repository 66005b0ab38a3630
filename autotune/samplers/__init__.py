"""Choose the next configuration: Optuna samplers over the rows of a space, behind one interface, the `Proposer`.

This is the only room that imports Optuna, except for its databases in exchange/. The names of the samplers need no
import; the proposer, and Optuna with it, is imported when first used, so that a search loads them while its workers
start.

    registry.py    the samplers by name, and their traits
    proposer.py    Proposer: what the other rooms use
    base.py        what all samplers share: an Optuna study as rows of a space, the choice of an untried row
    plain.py       random, grid, and wrappers of Optuna's own samplers
    bayes.py       our own sampler: where to start, what to try next
    surrogate.py   its model of a search
    features.py    a configuration as the model sees it
    gaussian.py    the Gaussian process: prior, fit, predictions, the expected improvement
    transfer.py    what other devices and sizes tell
    importance.py  which parameters matter, after a search
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune import lazily
from autotune.samplers.registry import DEFAULT_SAMPLER, SAMPLERS, entry_of

if TYPE_CHECKING:
    from autotune.samplers.base import quiet_optuna
    from autotune.samplers.importance import importances
    from autotune.samplers.proposer import Proposer
else:
    __getattr__ = lazily(
        __name__,
        {
            "base": "quiet_optuna",
            "importance": "importances",
            "proposer": "Proposer",
        },
    )
