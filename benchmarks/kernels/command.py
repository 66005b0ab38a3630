"""The command line of benchmarks/kernels.py: options, the order of a run, exit codes."""

from __future__ import annotations

import argparse
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from autotune.devices import find_device
from autotune.errors import AutotuneError, UsageError
from autotune.model import DeviceInfo

from . import limits, precision
from .limits import Limit
from .queued import QueuedSession
from .report import HEAD, RULE, Report
from .studies import STUDIES, Bench, rows
from .targets import LIMITS


def parse(description: str, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the options."""
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=layout)
    parser.add_argument("--device", help="index or part of the name; default: the best one")
    parser.add_argument("--studies", default=",".join(STUDIES), help="default: %(default)s")
    parser.add_argument("--sizes", default="", help="for all studies asked for: 4096, or a number per name with x")
    parser.add_argument("--trials", type=int, default=200, help="per search (default: %(default)s)")
    parser.add_argument("--seeds", default="1..5", help="1..5 or 1,7 (default: %(default)s)")
    parser.add_argument("--clblast-tuning", type=Path, metavar="DIR", help="results of clblast_tuner_xgemm here")
    parser.add_argument("--json", type=Path, metavar="OUT")
    parser.add_argument("--markdown", type=Path, metavar="OUT")
    parser.add_argument("--accuracy", action="store_true", help="sgemm's errors beside cuBLAS's, and no times")
    parser.add_argument("--join", type=Path, nargs="+", metavar="JSON", help="print the tables of earlier runs")
    return parser.parse_args(arguments)


def parse_seeds(text: str) -> list[int]:
    """Return the seeds of `1..5` or `1,7`."""
    first, dots, last = text.partition("..")
    try:
        found = list(range(int(first), int(last) + 1)) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        found = []
    if not found:
        raise UsageError(f"{text!r} names no seeds", where="--seeds", hint="write 1..5 or 1,7")
    return found


def parse_studies(text: str) -> list[str]:
    """Return the names of the studies."""
    names = text.split(",")
    if alien := [name for name in names if name not in STUDIES]:
        raise UsageError(f"no study {alien[0]!r} here", where="--studies", hint=f"there are {', '.join(STUDIES)}")
    return names


def main(description: str, arguments: Sequence[str] | None = None) -> int:
    """Run, print, write; return the exit code."""
    options = parse(description, arguments)
    try:
        if options.join:
            return join(options.join, options.markdown)
        return run(options)
    except AutotuneError as error:
        print(f"kernels.py: {error}", file=sys.stderr)
        return error.exit_code


def join(paths: Sequence[Path], markdown: Path | None) -> int:
    """Print the tables of earlier runs, one after the other."""
    text = "\n".join(Report.read(path).markdown() for path in paths)
    print(text)
    if markdown:
        markdown.write_text(text)
    return 0


def run(options: argparse.Namespace) -> int:
    """Measure what the options ask for."""
    say = _timed_lines(time.monotonic())
    names, seeds = parse_studies(options.studies), parse_seeds(options.seeds)
    sizes = [size for size in options.sizes.split(",") if size]
    device = find_device(options.device)
    session = QueuedSession(device)
    if options.accuracy:
        errors = precision.measure(session, say)
        print(precision.markdown(errors))
        precision.write(errors, options.json, options.markdown)
        return 0
    found = limits.measure(session)
    report = _start(device, found)
    for line in (*report.limits, *report.failures, HEAD, RULE):
        print(line, flush=True)
    report.write(options.json, options.markdown)
    bench = Bench(device, session, found, seeds, options.trials, options.clblast_tuning, say)
    for name in names:
        for row in rows(bench, name, sizes):
            report.rows.append(row)
            if row.beyond_limit:
                report.failures.append(f"{row.kernel} at {row.size} is beyond the {row.limit} limit")
            print(row.markdown(), flush=True)
            report.write(options.json, options.markdown)
    for failure in report.failures:
        say(f"FAILURE: {failure}")
    say("done")
    return 1 if report.failures else 0


def _timed_lines(began: float) -> Callable[[str], None]:
    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:4.0f} s] {line}", file=sys.stderr, flush=True)

    return say


def _start(device: DeviceInfo, found: Mapping[str, Limit]) -> Report:
    """A report with the limits, and with the limits that are too low."""
    short = [
        f"the {name} limit reaches {found[name].rate:.4g}, not {least:g} {found[name].unit}"
        for name, least in LIMITS.items()
        if "h200" in device.fingerprint and found[name].rate < least
    ]
    return Report(
        device=device.name,
        driver=f"{device.driver}, {platform.system()}",
        command=shlex.join(["python", "benchmarks/kernels.py", *sys.argv[1:]]),
        date=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        limits=[f"{limit.name}: {limit.rate:.4g} {limit.unit} ({limit.shape})" for limit in found.values()],
        failures=short,
    )
