"""The rows of the table, as JSON and as Markdown."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

HEAD = "| kernel | size | rate | of limit | ratio to | error | searched | configuration |"
RULE = "| --- | --- | --- | --- | --- | --- | --- | --- |"


@dataclass(frozen=True)
class Row:
    """A study or a peer at one size. Lists hold a value per seed, in the order of seeds; NaN if nothing was found.

    The configuration and the error are those of the seed with the median rate.
    """

    kernel: str
    size: str
    unit: str
    rates: list[float]
    limit: str = ""  # "fma" or "read"; empty: none applies
    shares: list[float] = field(default_factory=list)
    ratios: Mapping[str, list[float]] = field(default_factory=dict)
    error: float | None = None
    configuration: Mapping[str, int | float | str] | None = None
    searched: str = ""
    verdicts: list[str] = field(default_factory=list)

    @property
    def beyond_limit(self) -> bool:
        """True if a share of the limit exceeds 100 %."""
        return any(share > 1 for share in self.shares)

    def markdown(self) -> str:
        """One line of the table."""
        ratios = ", ".join(f"{name} {_spread(values)}" for name, values in self.ratios.items())
        configuration = " ".join(f"{name}={value}" for name, value in (self.configuration or {}).items())
        cells = (
            self.kernel,
            self.size,
            f"{_spread(self.rates)} {self.unit}",
            self._share(),
            "; ".join([ratios, *self.verdicts] if ratios else self.verdicts),
            "" if self.error is None else f"{self.error:.2g}",
            self.searched,
            f"`{configuration}`" if configuration else "",
        )
        return "| " + " | ".join(cells) + " |"

    def _share(self) -> str:
        if not self.shares:
            return ""
        text = f"{_spread([100 * share for share in self.shares])} % {self.limit}"
        return f"{text}: MORE THAN THE LIMIT, to be explained" if self.beyond_limit else text


def _spread(values: Sequence[float]) -> str:
    """The median and, if seeds differ, the range."""
    found = [value for value in values if not math.isnan(value)]
    if not found:
        return "nothing"
    middle, low, high = (f"{value:.3g}" for value in (statistics.median(found), min(found), max(found)))
    return middle if low == high else f"{middle} ({low} to {high})"


@dataclass
class Report:
    """A run's device, limits and rows, written after every row."""

    device: str
    driver: str
    command: str
    date: str
    limits: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def markdown(self) -> str:
        """The section of the page: what ran where, the limits, the table."""
        lines = [f"{self.device}, driver {self.driver}, {self.date}: `{self.command}`", ""]
        lines += [f"- {limit}" for limit in self.limits]
        lines += [f"- FAILURE: {failure}" for failure in self.failures]
        return "\n".join([*lines, "", HEAD, RULE, *(row.markdown() for row in self.rows), ""])

    def write(self, json_path: Path | None, markdown_path: Path | None) -> None:
        """Write what there is."""
        if json_path:
            json_path.write_text(json.dumps(asdict(self), indent=1))
        if markdown_path:
            markdown_path.write_text(self.markdown())

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read a run's JSON back."""
        table: dict[str, Any] = json.loads(path.read_text())
        return cls(**{**table, "rows": [Row(**row) for row in table["rows"]]})
