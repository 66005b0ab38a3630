"""CPU time of one proposal, including telling its trial, by size of the space and number of trials.

    python benchmarks/proposal_cost.py [--sampler bayes] [--trials 1000] [--save]

One by one, with 200 random trials of another device, and with 16 in flight. `--save` writes results/proposal-cost.json.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Iterator

import numpy as np
from tables import save

from autotune.model import Configuration, Measurement, Outcome, Trial
from autotune.samplers import SAMPLERS, Proposer
from autotune.space import Space

SPACES = {
    18_000: [
        [1, 2, 4, 8, 16],
        [1, 2, 4, 8, 16],
        [8, 16, 24, 32, 48, 64],
        [1, 2, 4, 8, 16],
        [0, 1, 2, 3],
        [1, 2, 3, 4, 6, 8],
    ],
    1_000_000: [[1, 2, 3, 4, 6, 8, 12, 16, 24, 32]] * 6,
}
WINDOWS = (100, 200, 500, 1000, 5000)
WAYS = {"one by one": (False, 1), "with a donor": (True, 1), "16 in flight": (False, 16)}
"""Whether trials of another device are known, and how many trials are in flight."""

COLUMNS = ("configurations", "way", "trials", "mean, ms", "worst, ms")


def measure(configuration: Configuration, rng: np.random.Generator) -> Trial:
    """A made-up device: a bowl in the logarithms, with some ruggedness and noise; a few fail."""
    logs = np.log2(1 + np.array([float(value) for value in configuration.values()]))
    time_ns = 1e6 * np.exp(0.1 * np.square(logs - 3).sum() + 0.1 * np.sin(7 * logs).sum() + 0.01 * rng.normal())
    if rng.random() < 0.03:
        return Trial(configuration, Outcome.LAUNCH_ERROR)
    return Trial(configuration, Outcome.OK, measurement=Measurement((round(time_ns),)))


def spent_ms(space: Space, sampler: str, trials: int, *, transfer: bool, in_flight: int) -> list[float]:
    """Return the CPU milliseconds of each proposal of a search."""
    rng = np.random.default_rng(0)
    other = [measure(space.configuration(row), rng) for row in space.sample(rng, 200).tolist()]
    began = time.process_time()
    proposer = Proposer(space, sampler, 0, [other] if transfer else [])
    spent = [(time.process_time() - began) * 1000]  # the cost of donors counts with the first proposal
    flying: deque[Trial] = deque()
    for _ in range(trials):
        began = time.process_time()
        configuration = proposer.ask()
        assert configuration is not None
        spent[-1] += (time.process_time() - began) * 1000
        flying.append(measure(configuration, rng))
        began = time.process_time()
        if len(flying) == in_flight:
            proposer.tell(flying.popleft())
        spent[-1] += (time.process_time() - began) * 1000
        spent.append(0.0)
    return spent[:-1]


def rows(sampler: str, trials: int) -> Iterator[tuple[str, ...]]:
    """Yield mean and worst per window of trials, for each space and way."""
    for size, lists in SPACES.items():
        space = Space.build({f"p{column}": values for column, values in enumerate(lists)}, [])
        assert len(space) == size
        for way, (transfer, in_flight) in WAYS.items():
            spent = spent_ms(space, sampler, trials, transfer=transfer, in_flight=in_flight)
            ends = [window for window in WINDOWS if window < trials] + [trials]
            for before, end in zip([0, *ends[:-1]], ends, strict=True):
                part = spent[before:end]
                yield f"{size:,}", way, f"{before + 1}-{end}", f"{np.mean(part):.1f}", f"{np.max(part):.0f}"


def main() -> None:
    """Print a row for each window as it is known."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampler", choices=list(SAMPLERS), default="bayes")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    found = []
    for row in rows(options.sampler, options.trials):
        found.append(row)
        print("".join(f"{cell:>14}" for cell in row), flush=True)
    if options.save:
        save(
            "proposal-cost",
            question="How much CPU time does a proposal take, including the report of a trial?",
            command="python benchmarks/proposal_cost.py " + " ".join(sys.argv[1:]),
            columns=COLUMNS,
            rows=found,
            asked="at most 10 ms at 18,000 configurations, 15 at 10^6",
            note="The worst is a fit of the hyperparameters: there are twelve in the first 200 trials, then one in "
            "every 50.",
        )


if __name__ == "__main__":
    main()
