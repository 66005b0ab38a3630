"""The samplers by name. A new one needs a class and a row here; tests/test_samplers.py then tests it.

Optuna is imported only when a sampler is made: names need no import.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from autotune.errors import SetupError
from autotune.model import Trial
from autotune.text import require_known

if TYPE_CHECKING:
    from autotune.samplers.base import RowSampler
    from autotune.space import Space

Donors = Sequence[Sequence[Trial]]
"""Trials of the same kernel on other devices or at other sizes, one sequence for each."""


@dataclass(frozen=True)
class SamplerEntry:
    """One way to search: the class of a sampler, and its file here.

    `has_model`: it learns from donors, and estimates the gain of further trials. `learns`: its proposals improve
    as more trials end. `needs`: a package that is not installed with this one.
    """

    file: str
    name: str
    has_model: bool = False
    learns: bool = True
    needs: str = ""

    @property
    def is_here(self) -> bool:
        """Whether the package that it needs is installed."""
        return not self.needs or find_spec(self.needs) is not None

    def make(self, space: Space, seed: int, donors: Donors) -> RowSampler:
        """Make the sampler for a space and a seed. Raises SetupError if the package that it needs does not load."""
        if self.needs:  # now, not in the middle of a search
            try:
                import_module(self.needs)
            except Exception as error:
                said = " ".join(str(error).split())
                raise SetupError(f"{self.needs} does not load: {said}", hint=f"pip install {self.needs}") from None
        made: RowSampler = getattr(import_module(f"autotune.samplers.{self.file}"), self.name)(space, seed, donors)
        return made


SAMPLERS: dict[str, SamplerEntry] = {
    "bayes": SamplerEntry("bayes", "BayesSampler", has_model=True),
    "tpe": SamplerEntry("plain", "TPE"),
    "random": SamplerEntry("plain", "RandomSampler", learns=False),
    "grid": SamplerEntry("plain", "GridSampler", learns=False),
    "gp": SamplerEntry("plain", "GP", needs="torch"),
}

DEFAULT_SAMPLER = "bayes"


def entry_of(name: str, where: str = "") -> SamplerEntry:
    """Return the sampler with a name. Raises UsageError; SetupError if its package is missing; `where`: for these."""
    require_known("sampler", [name], SAMPLERS, where=where)
    entry = SAMPLERS[name]
    if not entry.is_here:
        raise SetupError(f"{name} takes {entry.needs}", where=where, hint=f"pip install {entry.needs}")
    return entry
