"""A program that asks for the best configuration of `matmul` and builds its kernel with it.

If nothing is stored for this device and size, it gets the nearest stored configuration, or the study's default.
`best.match` says which.
"""

import numpy as np
import pyopencl as cl

import autotune

SIZE = {"M": 256, "N": 256, "K": 256}

best = autotune.best("matmul", size=SIZE)
print(f"{best.configuration} ({best.match.value})")

context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
program = cl.Program(context, autotune.Study.load("matmul").text.source).build(list(best.options))
kernel = program.all_kernels()[0]
print(f"built {kernel.function_name} for {np.prod(list(SIZE.values())):,} multiplications")
