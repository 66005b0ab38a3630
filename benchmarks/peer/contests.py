"""The kernels for the race against Kernel Tuner: what both tuners get, and how Kernel Tuner gets it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Configuration = Mapping[str, Any]
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True)
class Contest:
    """A study, its default size, and the parameters that stay at one value by kind of device.

    Kernel Tuner launches one kernel: `launched` work-items of a size, divided by `divisors`, in groups of `threads`.
    `expected` computes the output.
    """

    study: str
    size: int
    sizes: str
    output: str
    expected: Callable[[Arrays], NDArray[Any]]
    launched: Callable[[int], int]
    divisors: Sequence[str]
    threads: Callable[[Configuration], int]
    work: Callable[[int], float]
    fixed: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def fix(self, kind: str) -> dict[str, list[Any]]:
        """Return the parameters that stay at one value."""
        values = {**self.fixed.get("", {}), **self.fixed.get(kind, {})}
        return {name: [value] for name, value in values.items()}

    def problem(self, device: str | None, size: int | None, *, whole: bool = False) -> Any:
        """Return the problem both tuners work on: part of the space, or the `whole`."""
        from autotune.devices import find_device
        from autotune.study import Problem, Study

        info = find_device(device)
        sizes = dict.fromkeys(self.sizes, size or self.size)
        return Problem(Study.load(self.study), sizes, None, info, fix={} if whole else self.fix(info.kind))


def _attractions(inputs: Arrays) -> NDArray[Any]:
    """Return the accelerations of all bodies by all, shape (N, 4), as `nbody.cl` defines them."""
    position = inputs["position"].astype(np.float64)
    force = np.zeros_like(position)
    for other in position:
        apart = other - position
        square = (apart[:, :3] ** 2).sum(axis=1) + 0.01
        force += apart * (square**-1.5)[:, None]
    return force


CONTESTS = {
    # For sgemm: one kernel per configuration, and a product of values that Kernel Tuner can enumerate in a second.
    "sgemm": Contest(
        study="sgemm",
        size=4096,
        sizes="MNK",
        output="C",
        expected=lambda inputs: inputs["A"].astype(np.float64) @ inputs["B"].astype(np.float64),
        launched=lambda size: size * size,
        divisors=("TILE_M", "TILE_N"),
        threads=lambda one: one["TILE_M"] // one["WPT_M"] * (one["TILE_N"] // one["WPT_N"]),
        work=lambda size: 2 * size**3,
        fixed={
            "": {
                "COPY_A": "REGISTERS",
                "COPY_B": "REGISTERS",
                "SPLIT_K": 1,
                "VECTOR_B": 4,
                "METHOD": "FMA",
            },
            "gpu": {"VECTOR_N": 4, "FMA_WIDTH": 1, "STAGES": 2, "VECTOR_A": 4},
            "cpu": {"VECTOR_N": 8, "FMA_WIDTH": 8, "STAGES": 1, "VECTOR_A": 1},
        },
    ),
    "nbody": Contest(
        study=str(Path(__file__).parent / "nbody.toml"),
        size=2048,
        sizes="N",
        output="force",
        expected=_attractions,
        launched=lambda size: size,
        divisors=("GROUP", "ITEMS"),
        threads=lambda one: int(one["GROUP"]),
        work=lambda size: 20 * size**2,
    ),
}
