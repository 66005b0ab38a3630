"""The bundled kernels beside the device's limits and beside other products, in one run on one device.

    python benchmarks/kernels.py [--device D] [--studies sgemm,product_sum] [--sizes 1024,1600x1600x1007]
                                 [--trials 200] [--seeds 1..5] [--json OUT] [--markdown OUT]
    python benchmarks/kernels.py --accuracy [--device D] [--json OUT] [--markdown OUT]
    python benchmarks/kernels.py --join PART1.json PART2.json [--markdown OUT]

Limits come first: multiply-add, read and copy, by kernels of this benchmark. Then each study is searched once per seed,
as `autotune search` does, from an empty database. The winners are timed again in turns with their peers and the limit,
all queued in batches. Peers are cuBLAS through PyTorch in fp32 without TF32, CLBlast, NumPy's BLAS; one that is not
installed is left out, with a message. Rows go to stdout as they come, and to the files after each.
Ratios are medians over the rounds (2: twice as fast). A share is that of the limit, as first measured or, if it did
better there, as measured beside the contenders. Results over seeds are shown as median and range, and for each target
how many seeds reach it. `--clblast-tuning DIR` takes the files that `clblast_tuner_xgemm` wrote into a folder when run
on this device.
`--accuracy` multiplies random, badly scaled and cancelling matrices of many depths by every method of `sgemm`, and
shows in tables how much larger the errors are than cuBLAS's.

Exit code 1: a rate above a limit, which must be explained, or limit kernels that are too slow on an H200.
"""

from kernels.command import main

if __name__ == "__main__":
    raise SystemExit(main(__doc__))
