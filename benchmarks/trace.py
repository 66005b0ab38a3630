"""One trial, and one look-up, traced through the package: functions, files, and which call which across files.

    python benchmarks/trace.py [--list] [--json] [--traced 20]

Three paths: the search's thread from one proposal to the next, with the default sampler's model in use; a device's
worker from one job to the next; and the whole of `autotune best --format json` of a stored result. It counts what runs
of this package on a PoCL device: distinct functions (comprehensions and the like belong to their function; calls of a
module during its import are left out), distinct files, and distinct pairs of a function and a function in another file
that it calls, ignoring libraries in between. No two trials are the same (a model is fitted anew, a machine is busy). So
what three in four of the passing trials go through counts. `--list` names it: the functions in the order of their first
calls, each below its caller.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from multiprocessing import Pipe
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import autotune
from autotune import tuner
from autotune.__main__ import main as command
from autotune.bench import messages, serve
from autotune.bench.timing import Limits, Rules
from autotune.devices import list_devices
from autotune.model import DeviceInfo, Outcome
from autotune.pool import DeviceEvaluator, Settings, data
from autotune.samplers import surrogate  # noqa: F401  (a search would import it, which takes long while traced)
from autotune.study import Problem, Study
from autotune.tuner import Budget, Request

STUDY, SIZE = "matmul", 32
UNTRACED = 7
"""Trials before the first that counts: from there on the default sampler's model proposes."""

TRACED = 12
"""How many trials of a path count by default."""

ROOT = str(Path(autotune.__file__).parent)
Function = tuple[str, str]
"""File and qualified name."""

RULES = Rules(trial_s=0.02)
"""How long a trial is timed does not matter for its path."""

T = TypeVar("T")

BEFORE = {"search thread": (104, 25, 70), "device worker": (81, 12, 52), "best --format json": (71, 14, 48)}
"""Version 0.1, counted in the same way (its look-up with some class bodies)."""


class Calls:
    """The calls of one stretch. `functions` has their depth in the order of their first calls."""

    def __init__(self) -> None:
        self.functions: dict[Function, int] = {}
        self.crossings: set[tuple[Function, Function]] = set()

    @property
    def figures(self) -> tuple[int, int, int]:
        """Functions, files and crossings."""
        return len(self.functions), len({file for file, _ in self.functions}), len(self.crossings)


class Trace:
    """A profile function that records the calls of its thread; each call of the function `mark` begins a stretch."""

    def __init__(self, mark: str = "") -> None:
        self._mark = mark
        self.stretches = [Calls()]

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        called = _function(frame)
        if event != "call" or called is None or _is_import(frame.f_back):
            return
        if called[1] == self._mark:
            self.stretches.append(Calls())
        calls = self.stretches[-1]
        if called not in calls.functions:
            calls.functions[called] = _depth(frame)
        caller = frame.f_back
        while caller is not None and _function(caller) is None:
            caller = caller.f_back
        if caller is not None and (calling := _function(caller)) is not None and calling[0] != called[0]:
            calls.crossings.add((calling, called))

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Trace this thread."""
        sys.setprofile(self)
        try:
            yield
        finally:
            sys.setprofile(None)

    def typical(self, skip: int) -> Calls:
        """Return what three in four stretches have, without the first `skip` and the last, which is cut off."""
        found, typical = self.stretches[skip:-1], Calls()
        kept = _in_most([calls.functions for calls in found])
        for function, depth in chain.from_iterable(calls.functions.items() for calls in reversed(found)):
            if function in kept:
                typical.functions.setdefault(function, depth)
        typical.crossings = _in_most([calls.crossings for calls in found])
        return typical


def _depth(frame: FrameType | None) -> int:
    depth = 0
    while frame is not None:
        depth += _function(frame) is not None
        frame = frame.f_back
    return depth


def _in_most(found: Sequence[Collection[T]]) -> set[T]:
    counts = Counter(chain.from_iterable(found))
    return {one for one, count in counts.items() if 4 * count >= 3 * len(found)}


def _is_import(caller: FrameType | None) -> bool:
    """Return whether a module of the package makes this call during its import."""
    code = None if caller is None else caller.f_code
    return code is not None and code.co_name == "<module>" and code.co_filename.startswith(ROOT)


def _function(frame: FrameType) -> Function | None:
    code = frame.f_code
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")  # no class body, no module
    inside = code.co_filename.startswith(ROOT) and is_function
    return (code.co_filename.removeprefix(ROOT + "/"), code.co_qualname) if inside else None


class Brief(DeviceEvaluator):
    """Times finalists only briefly: they are not part of a trial."""

    def retime(self, configurations: Sequence[Any], budget_s: float = 1.0, stop: threading.Event | None = None) -> Any:
        """Time them, at the end of a search."""
        return super().retime(configurations, min(budget_s, 0.2), stop)


def trace_search(problem: Problem, database: str, traced: int) -> Calls:
    """Trace a trial that the sampler's model proposed, in the thread that searches."""
    trace = Trace("Proposer.ask")
    request = Request(problem, database=database, seed=1, budget=Budget(trials=UNTRACED + traced))
    with Brief(problem, [problem.device], Settings(RULES, builders=0, stops_slow=False)) as evaluator, trace.on():
        tuner.run(request, evaluator=evaluator)
    return trace.typical(skip=UNTRACED)


def trace_worker(problem: Problem, folder: Path, traced: int) -> Calls:
    """Trace a trial in a device's worker, which is a thread here."""
    setup = data.compute(problem, folder, RULES, Limits())
    ours, theirs = Pipe()
    trace = Trace("Bench.run")

    def work() -> None:
        with trace.on():
            serve("device", theirs)

    worker = threading.Thread(target=work, daemon=True)  # an error here ends everything
    worker.start()
    for message in (problem.device, setup):
        ours.send(message)
        _answer(ours)
    for row in range(2 + traced):
        ours.send(messages.Job(problem.plan(problem.space.configuration(row))))
        answer = _answer(ours)
        if answer.outcome is not Outcome.OK:
            raise SystemExit(f"{answer.outcome}: {answer.reason}")
    ours.close()
    worker.join()
    return trace.typical(skip=2)


def _answer(connection: Any) -> Any:
    while isinstance(answer := connection.recv(), messages.Phase | messages.Turn):
        pass
    return answer


def trace_best(device: DeviceInfo, database: str) -> Calls:
    """Trace a look-up that finds what the search has stored."""
    trace, words = Trace(), ["best", STUDY, "--size", str(SIZE), "--db", database, "-d", device.fingerprint]
    before, streams = sys.argv, (sys.stdin, sys.stdout, sys.stderr)
    kept = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)  # the command opens its streams anew
    try:
        os.dup2(nowhere, 1), os.dup2(nowhere, 2)
        sys.argv = ["autotune", *words, "--format", "json"]
        with contextlib.suppress(SystemExit), trace.on():
            command()
    finally:
        sys.argv, (sys.stdin, sys.stdout, sys.stderr) = before, streams
        os.dup2(kept[0], 1), os.dup2(kept[1], 2)
        for descriptor in (*kept, nowhere):
            os.close(descriptor)
    return trace.stretches[0]


def trace_all(traced: int) -> dict[str, Calls]:
    """Trace the three paths."""
    device = next(info for info in list_devices() if info.kind == "cpu")
    # The variant that compiles fast: the path is the same for all.
    fix = {"VARIANT": ["NAIVE"]}
    problem = Problem(Study.load(STUDY), dict.fromkeys("MNK", SIZE), None, device, fix=fix)
    with tempfile.TemporaryDirectory() as folder:
        database = f"{folder}/trace.db"
        search, worker = trace_search(problem, database, traced), trace_worker(problem, Path(folder), traced)
        paths = (search, worker, trace_best(device, database))
    return dict(zip(BEFORE, paths, strict=True))


def main() -> None:
    """Print the figures, and what was asked for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--list", action="store_true", help="name the functions and crossings")
    parser.add_argument("--json", action="store_true", help="write results/trace.json for docs/benchmarks.md")
    parser.add_argument("--traced", type=int, default=TRACED, metavar="N", help="trials of a path that count")
    options = parser.parse_args()
    found = trace_all(options.traced)
    columns = ("path", "functions / files / crossings", "version 0.1", "asked")
    asked = {"search thread": (70, 16, 47), "device worker": (54, 8, 35), "best --format json": (36, 7, 24)}
    rows = [(path, *map(_text, (calls.figures, BEFORE[path], asked[path]))) for path, calls in found.items()]
    for row in (columns, *rows):
        print("  ".join(f"{cell:<30}" for cell in row).rstrip())
    for path, calls in found.items() if options.list else ():
        top = min(calls.functions.values())
        way = (f"{'  ' * (1 + depth - top)}{file} {name}" for (file, name), depth in calls.functions.items())
        across = (f"  {' '.join(calling)} -> {' '.join(called)}" for calling, called in sorted(calls.crossings))
        print(f"\n{path}", *way, *across, sep="\n")
    if options.json:
        from tables import save

        question = "How much of the package does one trial, and one look-up, pass through?"
        about = (
            "Distinct functions, distinct files, and calls from one file to another, which at least three in four of"
        )
        about += f" {options.traced} trials go through. PoCL, {STUDY} {SIZE}."
        save("trace", question=question, command="python benchmarks/trace.py", columns=columns, rows=rows, note=about)


def _text(figures: tuple[int, int, int]) -> str:
    return " / ".join(map(str, figures))


if __name__ == "__main__":
    main()
