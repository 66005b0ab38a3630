"""A program that calls `matmul` with the best stored configuration, and searches for one if none is stored.

The first run searches for as many seconds as its argument says (5 by default). Later runs find the result and the built
kernel that the first run stored.
"""

import sys

import numpy as np
import pyopencl as cl
import pyopencl.array as cla

import autotune

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
matmul = autotune.tuned("matmul", M=192, N=256, K=128, device=queue, search=float(sys.argv[1]) if sys.argv[1:] else 5)
print(f"{matmul!r}: {matmul.configuration}")

random = np.random.default_rng(1)
a = cla.to_device(queue, random.random((192, 128), dtype=np.float32))
b = cla.to_device(queue, random.random((128, 256), dtype=np.float32))
c = cla.empty(queue, (192, 256), np.float32)
matmul(queue, A=a, B=b, C=c)
print(f"largest error {np.abs(c.get() - a.get() @ b.get()).max():.1e}")
