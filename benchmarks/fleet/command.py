"""The command line: the parts of the benchmark, and which of their rows are kept."""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import tables
from benchmarks.fleet import cost, gpus, kills, simulate
from benchmarks.recording import Recording


def main(about: str) -> int:
    """Run the part that was typed; return the exit code."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="part", required=True)
    for name in ("gpus", "cost", "simulate", "memory", "kills"):
        part = parts.add_parser(name)
        part.add_argument("--save", action="store_true")
        part.add_argument(
            "--trials", type=int, default={"gpus": 100, "simulate": 3000, "memory": 100000}.get(name, 300)
        )
        if name == "gpus":
            part.add_argument("-d", "--devices", default="0,1")
            part.add_argument("--studies", default="element_mult,sgemm")
        if name == "cost":
            part.add_argument("--turns", type=int, default=3)
        if name == "simulate":
            part.add_argument("--recording", type=Path)
            part.add_argument("--devices", default="10,100,1000,10000")
            part.add_argument("--samplers", default="random,bayes")
        if name == "kills":
            part.add_argument("--count", type=int, default=50)
            part.add_argument("--parts", default=",".join(kills.PARTS))
            part.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    return {"gpus": _gpus, "cost": _cost, "simulate": _simulate, "memory": _memory, "kills": _kills}[options.part](
        options
    )


def _print(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    for row in (columns, *rows):
        print("  ".join(f"{cell!s:>14}" for cell in row), flush=True)


Rows = Sequence[Sequence[object]]


def _keep(
    options: argparse.Namespace, name: str, question: str, columns: Sequence[str], rows: Rows, **more: str
) -> int:
    _print(columns, rows)
    if options.save:
        command = "python benchmarks/fleet.py " + " ".join(sys.argv[1:])
        tables.save(f"fleet-{name}", question=question, command=command, columns=columns, rows=rows, **more)
    return 0


def _gpus(options: argparse.Namespace) -> int:
    columns = ("study", "devices", "trials", "s", "trials/s", "x one GPU")
    rows = gpus.compare(options.studies.split(","), options.devices.split(","), options.trials)
    return _keep(
        options, "gpus", "What do two GPUs give, in one process and as two workers of a cluster?", columns, rows
    )


def _cost(options: argparse.Namespace) -> int:
    local, clustered = cost.compare(options.trials, options.turns)
    ratio = statistics.median(there / here for here, there in zip(local, clustered, strict=True))
    rows = [(f"{a:.1f}", f"{b:.1f}", f"{b / a:.0%}") for a, b in zip(local, clustered, strict=True)]
    return _keep(
        options, "cost", "What does the cluster cost, with one worker on loopback, trials of about 20 ms?",
        ("local, trials/s", "cluster, trials/s", "share"), [*rows, ("", "median", f"{ratio:.0%}")], asked="95 %",
    )  # fmt: skip


def _simulate(options: argparse.Namespace) -> int:
    recording = Recording.load(options.recording) if options.recording else simulate.space_of(20000)
    rows = []
    for sampler in options.samplers.split(","):
        for trial_s in (0.057, 1.0):
            for devices in map(int, options.devices.split(",")):
                row = simulate.simulate(recording, devices, trial_s, options.trials, sampler)
                rows.append(row)
                print(row, flush=True)
    columns = ("sampler", "devices", "s a trial", "trials", "trials/s", "CPU ms a trial", "devices busy, %")
    return _keep(options, "simulated", "How many devices can one search keep busy?", columns, rows,
                 asked="300 trials a second")  # fmt: skip


def _memory(options: argparse.Namespace) -> int:
    rows = [(count, f"{mib:.0f}") for count, mib in simulate.memory(options.trials)]
    return _keep(options, "memory", "Does the evaluator's memory grow with the trials?", ("trials", "MiB"), rows)


def _kills(options: argparse.Namespace) -> int:
    rows = kills.run(options.parts.split(","), options.count, options.seed)
    columns = ("killed", "times", "while a trial ran", "trials", "lost", "twice", "ended right", "amiss")
    _keep(options, "kills", "What is lost if a part of the cluster is killed while a trial runs?", columns, rows)
    return int(any(row[-1] for row in rows))
