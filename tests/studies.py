"""A small study for many tests: y = alpha * x + y, with everything that a table can hold."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from autotune.model import Value
from autotune.study import Study

SOURCE = """
#ifndef WPT
#define WPT 1
#endif
#ifndef T
#define T float
#endif
kernel void saxpy(const int N, const float alpha, global const T *x, global T *y)
{
    const int first = get_global_id(0) * WPT;
    for (int i = first; i < min(first + WPT, N); ++i)
        y[i] = alpha * x[i] + y[i];
}
"""

TABLE: dict[str, Any] = {
    "name": "saxpy",
    "kernel": "saxpy.cl",
    "sizes": {"N": 1000},
    "size_lists": {"ladder": [{"N": 100}, {"N": 1000}]},
    "choices": {"T": ["float", "double"]},
    "parameters": {
        "WPT": {"values": [1, 2, 4, 8]},
        "WG": {"values": [32, 64, 128, 256], "default": 64},
        "FAST": {"values": [0, 1]},
    },
    "constraints": [{"require": "WPT * WG <= 512", "reason": "a work-group covers at most 512 elements"}],
    "defines": {"SPAN": "WPT * WG"},
    "options": [{"flag": "-cl-fast-relaxed-math", "when": "FAST == 1"}],
    "arguments": {
        "alpha": {"type": "float", "value": "2.5"},
        "x": {"type": "T", "shape": ["N"], "access": "in"},
        "y": {"type": "T", "shape": ["N"], "access": "inout"},
    },
    "launch": [
        {
            "entry": "saxpy",
            "global": ["round_up(ceil_div(N, WPT), WG)"],
            "local": ["WG"],
            "arguments": ["N", "alpha", "x", "y"],
        }
    ],
    "tolerance": {"relative": 1e-6, "absolute": 1e-6},
    "work": {"flops": "2 * N", "bytes": "12 * N"},
}


TOML = """
name = "saxpy"
kernel = "saxpy.cl"
constraints = [{ require = "WPT * WG <= 512", reason = "a work-group covers at most 512 elements" }]
options = [{ flag = "-cl-fast-relaxed-math", when = "FAST == 1" }]
[sizes]
N = 1000
[choices]
T = ["float", "double"]
[parameters]
WPT = { values = [1, 2, 4, 8] }
WG = { values = [32, 64, 128, 256], default = 64 }
FAST = { values = [0, 1] }
[arguments]
alpha = { type = "float", value = "2.5" }
x = { type = "T", shape = ["N"], access = "in" }
y = { type = "T", shape = ["N"], access = "inout" }
[[launch]]
entry = "saxpy"
global = ["round_up(ceil_div(N, WPT), WG)"]
local = ["WG"]
arguments = ["N", "alpha", "x", "y"]
[reference]
numpy = { y = "alpha * x + y" }
"""
"""The same study as a file, without size lists, tolerance and work."""


def table(**changes: Any) -> dict[str, Any]:
    """Return a copy of the table with a NumPy reference; `changes` replace whole tables."""
    return {**deepcopy(TABLE), "reference": {"numpy": {"y": "alpha * x + y"}}, **changes}


def at(wpt: int, wg: int = 64, fast: int = 0) -> dict[str, Value]:
    """Return a configuration of the study."""
    return {"WPT": wpt, "WG": wg, "FAST": fast}


def study(**changes: Any) -> Study:
    """Return the study built in Python; `source=` replaces its kernel."""
    return Study(**{"source": SOURCE, **table(**changes)})
