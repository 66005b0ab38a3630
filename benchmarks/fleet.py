"""Measures a cluster: what it costs, how far one search drives it, and what is left when its parts are killed.

    python benchmarks/fleet.py gpus [-d 0,1] [--trials 100] [--studies element_mult,sgemm]
    python benchmarks/fleet.py cost [--trials 300] [--turns 3] [--save]
    python benchmarks/fleet.py simulate [--recording FILE.npz] [--trials 3000] [--devices 10,100,1000,10000] [--save]
    python benchmarks/fleet.py memory [--trials 100000] [--save]
    python benchmarks/fleet.py kills [--count 50] [--parts worker,device,...] [--save]

`gpus`: on a machine with two GPUs, in turns: one, both in one process, and a cluster worker each on loopback.
`cost`: one worker on loopback beside the same search without a cluster, in turns, with trials of about 20 ms.
`simulate`: the real driver (proposals, database, evaluator) with devices that only answer, from a recorded space.
`memory`: the evaluator alone over many simulated trials.
`kills`: SIGKILL while a trial is running, again and again; asserts that nothing is lost, or recorded twice.
`--save` writes benchmarks/results/fleet-*.json.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))  # for tests/machines.py

from benchmarks.fleet.command import main

if __name__ == "__main__":
    raise SystemExit(main(__doc__))
