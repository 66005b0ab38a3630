"""Choosing the next configuration: Optuna samplers over the rows of a space, behind one door, the `Proposer`.

This is the only room that imports Optuna, but for its databases in exchange/. The names of the samplers cost nothing;
the proposer is imported when it is first asked for, and Optuna with it, so that a search loads them while its workers
start.

    registry.py    the samplers by name, and their traits
    proposer.py    Proposer: what the other rooms use
    base.py        what all samplers share: an Optuna study as rows of a space, the picking of an untried one
    plain.py       random, grid, and one that asks a sampler of Optuna's
    bayes.py       the own sampler: where to start, what to try next
    surrogate.py   its model of a search
    features.py    what the model sees of a configuration
    gaussian.py    the Gaussian process: prior, fit, predictions, the expected improvement
    transfer.py    what other devices and sizes say
    importance.py  which parameters matter, once a search is done
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
