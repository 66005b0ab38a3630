"""The eight studies on this device: repeated searches, the default beside an independent clock, the picks together.

python -m benchmarks.trust.device [STUDY ...] [--searches 10] [--trials 60] [--in-c] [--save]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from benchmarks.tables import model, save, saved

HERE = Path(__file__).parent
STUDIES = sorted(path.stem for path in HERE.glob("*.toml"))
LOOPS = 12  # processes
COLUMNS = (
    "study", "default us", "spread of default", "to 400 queued runs", "pick in loops, us", "spread of pick",
    "worst loss", "within 2 %", "seconds",
)  # fmt: skip

_QUESTION = "Does a search give the same time again, the time that a program sees, and a pick that holds?"
_NOTE = (
    "Spread: largest over smallest time of all searches, each with new processes and an empty database. Loss: of each "
    f"pick against the best of the picks, timed together in loops of 400 queued runs; the mean over {LOOPS} processes "
    "counts, each with a context of its own. If launches are shorter than the time to enqueue them (the reduction and, "
    "on some hosts, Jacobi), such a loop takes as long as the host."
)
_QUESTION_IN_C = "And where C enqueues, without the events that pyopencl asks for with each launch?"
_NOTE_IN_C = (
    "As above, but with loops written in C. Without an event, launches of all configurations are shorter by the same "
    "time."
)


def call(*words: str, text: str = "") -> Any:
    """Run a module of this checkout and return the JSON that it prints."""
    done = subprocess.run([sys.executable, "-m", *words], input=text, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def judge(study: str, searches: int, trials: int, options: Sequence[str]) -> list[str]:
    """Return the row of one study; `options` are for the loops."""
    path = str(HERE / f"{study}.toml")
    found, began = [], time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(searches):
            database = f"{folder}/{number}.db"
            words = ("--trials", str(trials), "--seed", str(number), "--db", database, "--json")
            found.append(call("autotune", "search", path, *words))
            print(f"{study} {number}: {_told(found[-1])}", file=sys.stderr, flush=True)
    seconds = (time.monotonic() - began) / searches
    defaults = [one["default"]["time_ns"] for one in found]
    picks = {json.dumps(one["best"]["configuration"], sort_keys=True): one["best"]["configuration"] for one in found}
    queued, *of_picks = in_loops(path, [found[0]["default"]["configuration"], *picks.values()], options)
    by_pick = dict(zip(picks, of_picks, strict=True))
    losses = [by_pick[json.dumps(one["best"]["configuration"], sort_keys=True)] / min(of_picks) - 1 for one in found]
    best = [one["best"]["time_ns"] for one in found]
    return [
        study,
        f"{median(defaults) / 1e3:.2f}",
        f"{max(defaults) / min(defaults) - 1:.2%}",
        f"{median(defaults) / queued - 1:+.2%}",
        f"{min(of_picks) / 1e3:.2f}",
        f"{max(best) / min(best) - 1:.2%}",
        f"{max(losses):.2%}",
        f"{sum(loss <= 0.02 for loss in losses)} of {searches}",
        f"{seconds:.1f}",
    ]


def in_loops(path: str, configurations: Sequence[Any], options: Sequence[str]) -> list[float]:
    """Return the time of a run of each in loops of queued runs: the mean over processes of the median over rounds."""
    text = json.dumps(configurations)
    found = [call("benchmarks.trust.loop", path, *options, text=text) for _ in range(LOOPS)]
    return [mean(median(times) for times in of_one) for of_one in zip(*found, strict=True)]


def _told(found: Any) -> str:
    """What a search says of the default and of its pick, each with its interval and its number of samples."""
    said = []
    for name in ("default", "best"):
        low, high = (ns / 1e3 for ns in found[name]["interval_ns"])
        said.append(f"{name} {found[name]['time_ns'] / 1e3:.2f} us ({low:.2f} to {high:.2f}, {found[name]['runs']})")
    return ", ".join(said)


def main() -> None:
    """Print a row for each study as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("studies", nargs="*", default=STUDIES)
    parser.add_argument("--searches", type=int, default=10)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--in-c", action="store_true", help="the loops are C's, without events")
    parser.add_argument("--save", action="store_true")
    options = parser.parse_args()
    print(" | ".join(COLUMNS), flush=True)
    in_c = ("--in-c",) if options.in_c else ()
    words = ("--searches", str(options.searches), "--trials", str(options.trials), *in_c)
    command = " ".join(("python -m benchmarks.trust.device", *words))
    name = f"trust-{'c-' if in_c else ''}{model()}"
    rows = {row[0]: row for row in saved(name, command)} if options.save else {}
    for study in options.studies:
        rows[study] = judge(study, options.searches, options.trials, in_c)
        print(" | ".join(rows[study]), flush=True)
        if options.save:  # after each study, so that the next call can continue after an interruption
            save(
                name,
                question=_QUESTION_IN_C if in_c else _QUESTION,
                command=command,
                columns=COLUMNS,
                rows=[rows[known] for known in sorted(rows)],
                asked="loss 2 %" if in_c else "spread 1.5 %, within 3 % of the loop, loss 2 %",
                note=_NOTE_IN_C if in_c else _NOTE,
            )


if __name__ == "__main__":
    main()
