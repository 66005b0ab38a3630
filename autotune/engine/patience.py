"""When a run makes way for others: while no best is known, which would bound it, and something else is ready."""

from __future__ import annotations


class Patience:
    """How long a run goes on while others are ready: little at first, twice as long after each that made way.

    A kernel that never ends would hold them up for a minute; what is merely slow gets its time. Threads share it:
    each method is atomic.
    """

    def __init__(self, first_s: float) -> None:
        self.seconds = first_s

    def lengthen(self, ran_s: float) -> None:
        """Hear that a run made way after this time."""
        self.seconds = max(self.seconds, 2 * ran_s)
