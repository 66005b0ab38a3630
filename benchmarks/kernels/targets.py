"""What the kernels must reach, and what they should reach, as data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

SEEDS_SHARE = 0.8
"""A target is reached if this share of the seeds reaches it: 4 of 5."""

SQUARES = ("1024", "2048", "4096", "8192")
ODD = ("1600x1600x1007",)


@dataclass(frozen=True)
class Target:
    """A row of `kind` at one of `sizes` (None: any) reaches `least` times `of`; without `must` it is only a wish."""

    kind: str
    of: str  # a peer's first word, "limit", "step before", "sgemm" or "naive"
    least: float
    must: bool
    sizes: tuple[str, ...] | None = None
    device: str = "gpu"


TARGETS = (
    Target("sgemm", "cuBLAS", 0.93, True, SQUARES),
    Target("sgemm", "cuBLAS", 0.85, True, ODD),
    Target("sgemm", "cuBLAS", 1.0, False, SQUARES + ODD),
    Target("sgemm", "CLBlast", 1.0, True, SQUARES + ODD),
    Target("sgemm-tensor", "cuBLAS", 1.35, True, SQUARES[1:]),
    Target("sgemm-tensor", "cuBLAS", 1.9, False, SQUARES[1:]),
    Target("product_sum", "limit", 0.90, True),
    Target("product_sum", "limit", 0.97, False),
    Target("element_mult", "limit", 0.90, True),
    Target("element_mult", "limit", 0.97, False),
    Target("matmul TILED", "step before", 1.0, True, ("2048", "4096")),
    Target("matmul WPT", "step before", 1.0, True, ("2048", "4096")),
    Target("matmul WPT", "sgemm", 0.5, False, ("2048", "4096")),
    Target("sgemm", "naive", 5.0, True, ("512",), "cpu"),
)

LIMITS = {"fma": 64.0, "read": 4500.0}
"""What the limit kernels must reach on an H200: TFLOPS, GB/s."""


def verdicts(kind: str, size: str, device: str, measured: Mapping[str, Sequence[float]]) -> list[str]:
    """Say of each target that applies to a row whether it is reached; `measured` has a value per seed.

    A seed whose search found nothing has NaN, which reaches nothing.
    """
    return [
        _verdict(target, measured[target.of])
        for target in TARGETS
        if target.kind == kind and target.device == device and (target.sizes is None or size in target.sizes)
        and target.of in measured
    ]  # fmt: skip


def _verdict(target: Target, values: Sequence[float]) -> str:
    good = sum(value >= target.least for value in values)
    done = "reached" if good >= math.ceil(SEEDS_SHARE * len(values)) else "missed"
    wish = "" if target.must else " (wish)"
    return f"{target.least:g} x {target.of}{wish}: {done}, {good} of {len(values)} seeds"
