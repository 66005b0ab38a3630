"""The bundled kernels beside the device's limits and beside others' products, in one run on one device.

    python benchmarks/kernels.py [--device D] [--studies sgemm,product_sum] [--sizes 1024,1600x1600x1007]
                                 [--trials 200] [--seeds 1..5] [--json OUT] [--markdown OUT]
    python benchmarks/kernels.py --accuracy [--device D] [--json OUT] [--markdown OUT]
    python benchmarks/kernels.py --join PART1.json PART2.json [--markdown OUT]

Limits come first: multiply-add, read and copy, by kernels of this benchmark. Then each study is searched once per
seed, as `autotune search` does, from an empty database, and the winners are timed again in turns with their peers
and the limit, all of them queued in batches: cuBLAS through PyTorch in fp32 without TF32, CLBlast, NumPy's BLAS;
whichever is not installed is left out and said. Rows go to stdout as they come, and to the files after each.
Ratios are medians over the rounds (2: twice as fast); a share is that of the limit, which counts as first measured
or, where it did better there, as measured beside the contenders. What seeds give is shown as median and range,
and for each target how many seeds reach it. `--clblast-tuning DIR` takes what `clblast_tuner_xgemm` left in a
folder, run on this device.
`--accuracy` multiplies random, badly scaled and cancelling matrices of many depths by every method of `sgemm`, and
tables how much larger the errors are than cuBLAS's.

Exit code 1: a rate beyond a limit, which is to be explained, or limit kernels that fall short on an H200.
"""

from kernels.command import main

if __name__ == "__main__":
    raise SystemExit(main(__doc__))
