"""A kernel and its study in one file: a search, verified against NumPy, that prints the best configuration."""

import sys

import autotune

SOURCE = """
kernel void scale(global const float *x, global float *y, float factor, int N)
{
    for (int i = get_global_id(0) * WPT; i < min((int)(get_global_id(0) + 1) * WPT, N); ++i)
        y[i] = factor * x[i];
}
"""

study = autotune.Study(
    name="scale",
    source=SOURCE,
    sizes={"N": 1 << 16},
    parameters={"WG": {"values": [32, 64, 128, 256]}, "WPT": {"values": [1, 2, 4, 8]}},
    arguments={
        "x": {"type": "float", "shape": ["N"], "access": "in"},
        "y": {"type": "float", "shape": ["N"], "access": "out"},
        "factor": {"type": "float", "value": 2.5},
    },
    launch=[
        {
            "entry": "scale",
            "global": ["round_up(ceil_div(N, WPT), WG)"],
            "local": ["WG"],
            "arguments": ["x", "y", "factor", "N"],
        }
    ],
    reference=lambda x, factor, N: {"y": factor * x},
)

trials = int(sys.argv[1]) if len(sys.argv) > 1 else 16
result = autotune.search(study, trials=trials)
if result.best is None:
    sys.exit("no configuration passed")
print(f"{result.best.configuration} takes {result.best.time_ns / 1e3:.1f} us")
