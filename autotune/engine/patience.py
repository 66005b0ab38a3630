"""How long a run may take while no best is known: as little as will do, since others wait."""

from __future__ import annotations

from autotune.engine.report import Limits


class Patience:
    """The limit of a verified run; a short one where no best is known and other configurations wait.

    A kernel that never ends would hold them up for a minute. What overruns the short limit is to be tried again after
    them, and each time doubles it: what is merely slow gets its time. Threads share it; each method is atomic.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._short_s = limits.floor_s

    def limit_s(self, best_ns: float | None, *, others_wait: bool) -> float:
        """Return the seconds that a run may take now."""
        limit = self._limits.run_s(best_ns)
        return min(limit, self._short_s) if best_ns is None and others_wait else limit

    def tries_again(self, limit_s: float, best_ns: float | None) -> bool:
        """Say whether what overran that limit, given when this was the best, is to be tried again."""
        again = best_ns is None and limit_s < self._limits.first_s
        if again:
            self._short_s = max(self._short_s, 2 * limit_s)
        return again
