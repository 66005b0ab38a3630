"""A user's program for type checkers: `mypy` checks it as strictly as the package. Nothing runs it."""

from __future__ import annotations

import numpy as np

import autotune
from autotune.study.buffers import Buffer

n = np.int64(64)
kernel = autotune.tuned("sgemm", M=n, size={"N": n}, choices={"TENSOR_CORES": "OFF"})
extents: list[tuple[int, ...]] = [one.allocate for one in kernel.arguments.values() if isinstance(one, Buffer)]
values: list[object] = [one.value for one in kernel.arguments.values() if not isinstance(one, Buffer)]
matches: bool = autotune.best("sgemm", size={"M": n}, choices={"V": np.int8(1)}).match == "exact"
result: autotune.Result = autotune.search(
    size={"M": 64, "N": n},
    trials=n,
    seed=np.uint32(1),
    fix={"WG": n, "WPT": [1, np.int64(2)]},
    start=[{"WG": n}],
    on_progress=print,
)
