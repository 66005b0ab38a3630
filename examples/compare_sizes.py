"""Which configuration wins at which size: a short search for each, then a table.

Give it a number of trials, then sizes: `python compare_sizes.py 8 256 1024 4096`.
"""

import sys

import autotune

trials = int(sys.argv[1]) if len(sys.argv) > 1 else 8
for x in map(int, sys.argv[2:] or (1 << 8, 1 << 10, 1 << 12)):
    best = autotune.search("product_sum", size={"X": x, "Y": 256}, trials=trials).best
    if best is not None:
        print(f"{x:7} {best.time_ns / 1e3:10.1f} us  {dict(best.configuration)}")
