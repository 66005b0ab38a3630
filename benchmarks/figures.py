"""Figures from the curves of searches: per space, means over spaces and kernels, and the choice that follows from them.

    python benchmarks/figures.py choose A.json B.json ...

`choose` takes reports of `search.py` over the same spaces and seeds, one per candidate. For each family of kernels in
turn it takes the candidate that is best on the other families, and shows its result on the family left out, beside that
of the first candidate.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Curves = NDArray[np.float64]  # optimum / best so far after 1, 2, ... evaluations, one row per seed

MARKS = (25, 50, 100, 200)
WITHIN = 1.05
TENTH = 0.1


def family(space: str) -> str:
    """The kind of kernel of a space: `ktt_pnpoly__RTX_3090` and `pnpoly_bench__K20` are both `pnpoly`."""
    return space.partition("__")[0].removeprefix("ktt_").partition("_")[0]


def evaluations(curves: Curves) -> NDArray[np.float64]:
    """Evaluations to come within 5 % of the optimum, per seed; infinite if not within the budget."""
    near = curves >= 1 / WITHIN
    return np.where(near.any(axis=1), near.argmax(axis=1) + 1.0, np.inf)


def figures(curves: Curves, cpu_ms: list[float]) -> dict[str, Any]:
    """The figures of one sampler on one space, over seeds, as in baselines.json."""
    needed = evaluations(curves)
    middle = float(np.median(needed))
    reached = {mark: curves[:, min(mark, curves.shape[1]) - 1] for mark in MARKS}
    return {
        "seeds": len(curves),
        "budget": curves.shape[1],
        "at": {str(mark): round(float(np.median(values)), 4) for mark, values in reached.items()},
        "evaluations_to_5pct": middle if np.isfinite(middle) else None,
        "reached": round(float(np.isfinite(needed).mean()), 3),
        "cpu_ms": round(float(np.mean(cpu_ms)), 2),
        "by_seed": {
            **{str(mark): [round(float(value), 4) for value in values] for mark, values in reached.items()},
            "to_5pct": [int(count) if np.isfinite(count) else None for count in needed],
        },
    }


def aggregate(by_space: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means over spaces and over families of kernels, and the worst tenth of all runs.

    Means are geometric, of medians over seeds; a goal that was not reached counts as the whole budget.
    """
    spaces = sorted(by_space)
    at = {mark: np.log([max(by_space[name]["at"][mark], 1e-3) for name in spaces]) for mark in map(str, MARKS)}
    needed = np.log([by_space[name]["evaluations_to_5pct"] or by_space[name]["budget"] for name in spaces])
    runs = {mark: np.concatenate([by_space[name]["by_seed"][mark] for name in spaces]) for mark in at}
    counts = np.concatenate([_counts(by_space[name]) for name in spaces])
    return {
        "at": {mark: round(float(np.exp(values.mean())), 4) for mark, values in at.items()},
        "evaluations_to_5pct": round(float(np.exp(needed.mean())), 1),
        "by_kernel": {mark: round(float(np.exp(_by_family(spaces, values))), 4) for mark, values in at.items()},
        "by_kernel_to_5pct": round(float(np.exp(_by_family(spaces, needed))), 1),
        "worst_tenth": {mark: round(float(np.quantile(values, TENTH)), 4) for mark, values in runs.items()},
        "worst_tenth_to_5pct": round(float(np.quantile(counts, 1 - TENTH)), 1),
        "cpu_ms": round(float(np.mean([by_space[name]["cpu_ms"] for name in spaces])), 2),
    }


def _counts(found: dict[str, Any]) -> NDArray[np.float64]:
    """Evaluations to 5 % of each run on a space; the whole budget if it did not get there."""
    return np.array([count or found["budget"] for count in found["by_seed"]["to_5pct"]], dtype=np.float64)


def _by_family(spaces: list[str], values: NDArray[np.float64]) -> float:
    kinds = np.array([family(name) for name in spaces])
    return float(np.mean([values[kinds == kind].mean() for kind in sorted(set(kinds))]))


def print_table(results: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Three lines for each sampler: over spaces, over kernels, the worst tenth of the runs."""
    marks = [str(mark) for mark in MARKS]
    print(f"{'sampler':<28}{'':<14}" + "".join(f"{mark:>8}" for mark in marks) + f"{'to 5 %':>9}{'CPU ms':>8}")
    for name, by_space in results.items():
        total = aggregate(by_space)
        print(_line(name, "over spaces", total["at"], total["evaluations_to_5pct"]) + f"{total['cpu_ms']:>8.2f}")
        print(_line("", "over kernels", total["by_kernel"], total["by_kernel_to_5pct"]))
        print(_line("", "worst tenth", total["worst_tenth"], total["worst_tenth_to_5pct"]))


TABLE = (
    "sampler",
    "spaces",
    "seeds",
    *map(str, MARKS),
    "to 5 %",
    "kernels: to 5 %",
    "worst tenth: 100",
    "to 5 %",
    "CPU, ms",
)


def table_rows(results: dict[str, dict[str, dict[str, Any]]]) -> list[list[Any]]:
    """Return a row of `TABLE` for each sampler."""
    rows = []
    for name, by_space in results.items():
        total, first = aggregate(by_space), next(iter(by_space.values()))
        at = [f"{total['at'][str(mark)]:.3f}" if mark <= first["budget"] else "" for mark in MARKS]
        means = [total["evaluations_to_5pct"], total["by_kernel_to_5pct"]]
        worst = [f"{total['worst_tenth']['100']:.3f}", total["worst_tenth_to_5pct"]]
        rows.append([name, len(by_space), first["seeds"], *at, *means, *worst, total["cpu_ms"]])
    return rows


def _line(name: str, what: str, at: dict[str, float], needed: float) -> str:
    return f"{name:<28}{what:<14}" + "".join(f"{value:>8.3f}" for value in at.values()) + f"{needed:>9.1f}"


def losses(cold: dict[str, dict[str, Any]], transfer: dict[str, dict[str, Any]], margin: float = 0.01) -> list[str]:
    """Spaces where a paired bootstrap over seeds shows (95 %) a loss of median at 100 beyond the margin."""
    rng = np.random.default_rng(0)
    found = []
    for space in sorted(set(cold) & set(transfer)):
        pair = np.array([cold[space]["by_seed"]["100"], transfer[space]["by_seed"]["100"]])
        drawn = pair[:, rng.integers(pair.shape[1], size=(2000, pair.shape[1]))]
        lost = np.median(drawn[0], axis=1) - np.median(drawn[1], axis=1)
        if np.quantile(lost, 0.05) > margin:
            found.append(f"{space} ({np.median(pair[0]) - np.median(pair[1]):.3f})")
    return found


def late(cold: dict[str, dict[str, Any]], transfer: dict[str, dict[str, Any]], margin: float = 5.0) -> list[str]:
    """Spaces where the median run with transfer needs more evaluations to 5 % than cold, beyond the margin."""
    found = []
    for name in transfer:
        before, after = (float(np.median(_counts(by_space[name]))) for by_space in (cold, transfer))
        if after > before + margin:
            found.append(f"{name} ({before:g} -> {after:g})")
    return found


def choose(candidates: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Leave each family out in turn: show the choice by the others, and its result on the one left out.

    The measure is the mean logarithm of evaluations to 5 %, over runs, then spaces, then families.
    """
    first = next(iter(candidates))
    spaces = sorted(set.intersection(*(set(by_space) for by_space in candidates.values())))
    costs = {
        name: np.array([np.log(_counts(by_space[space])).mean() for space in spaces])
        for name, by_space in candidates.items()
    }
    kinds = np.array([family(space) for space in spaces])
    left_out = []
    print(f"{'left out':<16}{'chosen by the others':<40}{'evaluations':>12}{'first candidate':>16}")
    for kind in sorted(set(kinds)):
        rest = kinds != kind
        others = [space for space, kept in zip(spaces, rest, strict=True) if kept]
        best = min(candidates, key=lambda name: _by_family(others, costs[name][rest]))
        pair = [costs[name][~rest].mean() for name in (best, first)]
        left_out.append(pair[0] - pair[1])
        print(f"{kind:<16}{best:<40}{np.exp(pair[0]):>12.1f}{np.exp(pair[1]):>16.1f}")
    print(f"on what was left out, against {first}: x {np.exp(np.mean(left_out)):.3f} evaluations")
    for name, cost in costs.items():
        low, high = _interval(spaces, candidates[name], candidates[first])
        ratio = np.exp(_by_family(spaces, cost - costs[first]))
        print(f"{name:<40}{np.exp(_by_family(spaces, cost)):>8.1f}   x {ratio:.3f} [{low:.3f}, {high:.3f}]")


def _interval(spaces: list[str], one: dict[str, Any], other: dict[str, Any]) -> tuple[float, float]:
    """90 % interval of the ratio of evaluations, by a bootstrap over spaces within families and over seeds."""
    rng = np.random.default_rng(0)
    difference = np.array([np.log(_counts(one[space])) - np.log(_counts(other[space])) for space in spaces])
    kinds = np.array([family(space) for space in spaces])
    groups = [np.flatnonzero(kinds == kind) for kind in sorted(set(kinds))]
    drawn = []
    for _ in range(2000):
        seeds = rng.integers(difference.shape[1], size=difference.shape[1])
        drawn.append(np.mean([difference[rng.choice(group, len(group))][:, seeds].mean() for group in groups]))
    low, high = np.exp(np.quantile(drawn, [0.05, 0.95]))
    return float(low), float(high)


def main() -> None:
    """Parse the command line, read the reports, choose."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["choose"])
    parser.add_argument("reports", type=Path, nargs="+", metavar="OUT.json")
    options = parser.parse_args()
    candidates = {}
    for path in options.reports:
        report = json.loads(path.read_text())
        report.pop("aggregate")
        candidates |= {f"{path.stem} {variant}": by_space for variant, by_space in report.items()}
    choose(candidates)


if __name__ == "__main__":
    main()
