"""Choosing the next configuration: Optuna samplers over the rows of a space, behind one door, `Proposer`.

This is the only room that imports Optuna. Nothing on the cold path of `autotune best` imports this room.
"""

from autotune.samplers.proposer import Proposer
from autotune.samplers.registry import DEFAULT_SAMPLER, SAMPLERS

__all__ = ["DEFAULT_SAMPLER", "SAMPLERS", "Proposer"]
