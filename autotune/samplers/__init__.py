"""Choosing the next configuration: Optuna samplers over the rows of a space, behind one door, `proposer.Proposer`.

This is the only room that imports Optuna. Nothing on the cold path of `autotune best` imports this room, and the
package itself is light: a search imports the proposer, and with it Optuna, while its workers start.
"""

from autotune.samplers.registry import DEFAULT_SAMPLER, SAMPLERS

__all__ = ["DEFAULT_SAMPLER", "SAMPLERS"]
