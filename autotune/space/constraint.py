"""Constraint: what a study asks of a configuration, and why."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.expression import Expression


@dataclass(frozen=True)
class Constraint:
    """What must hold for a configuration to be valid, and the reason, for people."""

    require: Expression
    reason: str
