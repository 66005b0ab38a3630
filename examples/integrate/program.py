"""A program that uses PyOpenCL to build and launch its kernel with the best stored configuration.

python program.py
"""

from pathlib import Path

import numpy as np
import pyopencl as cl

import autotune

HERE = Path(__file__).parent

best = autotune.best(str(HERE / "scale.toml"))
wg, wpt = (int(best.configuration[name]) for name in ("WG", "WPT"))

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, (HERE / "scale.cl").read_text()).build(list(best.options))
kernel = cl.Kernel(program, "scale")

x = np.arange(best.size["N"], dtype=np.float32)
y = np.empty_like(x)
flags = cl.mem_flags
given = cl.Buffer(context, flags.READ_ONLY | flags.COPY_HOST_PTR, hostbuf=x)
result = cl.Buffer(context, flags.WRITE_ONLY, x.nbytes)
groups = -(-x.size // (wg * wpt))
kernel(queue, (groups * wg,), (wg,), np.int32(x.size), np.float32(2), given, result)
cl.enqueue_copy(queue, y, result)
assert (y == 2 * x).all()
print(f"right with WG={wg} WPT={wpt} ({best.match.value})")
