"""CPU time of one proposal, told trial included, by size of the space and number of trials.

python benchmarks/proposal_cost.py [--sampler bayes] [--trials 1000] [--in-flight 16] [--transfer]
"""

from __future__ import annotations

import argparse
import time
from collections import deque

import numpy as np

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


def measure(configuration: Configuration, rng: np.random.Generator) -> Trial:
    """A made-up device: a bowl in the logarithms, with some ruggedness and noise; a few fail."""
    logs = np.log2(1 + np.array([float(value) for value in configuration.values()]))
    time_ns = 1e6 * np.exp(0.1 * np.square(logs - 3).sum() + 0.1 * np.sin(7 * logs).sum() + 0.01 * rng.normal())
    if rng.random() < 0.03:
        return Trial(configuration, Outcome.LAUNCH_ERROR)
    return Trial(configuration, Outcome.OK, measurement=Measurement((round(time_ns),)))


def main() -> None:
    """Print mean and worst CPU milliseconds per window of trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sampler", choices=list(SAMPLERS), default="bayes")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--in-flight", type=int, default=1)
    parser.add_argument("--transfer", action="store_true", help="with 200 random trials of another device")
    options = parser.parse_args()
    print(f"{'configurations':>14}{'trials':>12}{'mean ms':>9}{'worst ms':>9}")
    for size, lists in SPACES.items():
        space = Space.build({f"p{column}": values for column, values in enumerate(lists)}, [])
        assert len(space) == size
        rng = np.random.default_rng(0)
        other = [measure(space.configuration(row), rng) for row in space.sample(rng, 200).tolist()]
        began = time.process_time()
        proposer = Proposer(space, options.sampler, 0, [("other", other)] if options.transfer else [])
        spent = [(time.process_time() - began) * 1000]  # what donors cost counts with the first proposal
        flying: deque[Trial] = deque()
        for _ in range(options.trials):
            began = time.process_time()
            configuration = proposer.ask()
            assert configuration is not None
            spent[-1] += (time.process_time() - began) * 1000
            flying.append(measure(configuration, rng))
            began = time.process_time()
            if len(flying) == options.in_flight:
                proposer.tell(flying.popleft())
            spent[-1] += (time.process_time() - began) * 1000
            spent.append(0.0)
        before = 0
        for end in [w for w in WINDOWS if w < options.trials] + [options.trials]:
            part = spent[before:end]
            print(f"{size:>14,}{before + 1:>6}-{end:<5}{np.mean(part):>9.1f}{np.max(part):>9.1f}", flush=True)
            before = end


if __name__ == "__main__":
    main()
