"""Building spaces: autotune beside Kernel Tuner's and pyATF's builders, in one run.

    python benchmarks/space.py [DEFINITIONS] [--limit SECONDS] [--repeats N] [--json OUT]

Each build runs in a new process; time and memory are those of the build, without imports. DEFINITIONS is a
`spaces.json` of recorded spaces: objects with `parameters` and `constraints`. If the recording `<name>.npz` is beside
it, the space must have exactly its configurations. Peers come with the extra `[bench]`; one that is not installed is
left out. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import math
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

TOOLS = {"autotune": "autotune", "autotune, listed": "autotune", "Kernel Tuner": "kernel_tuner", "pyATF": "pyatf"}
MEMORY_LIMIT = 8 * 2**30
MAX_DIGESTED = 1_000_000

Problem = dict[str, Any]


# --- the spaces ---------------------------------------------------------------------------------------


def own_problems() -> dict[str, Problem]:
    """CLBlast's Xgemm with its large set of values, and three spaces of 10^9 combinations with 10^5 valid ones."""
    powers = [2**exponent for exponent in range(10)]
    nine = {name: list(range(1, 11)) for name in "abcdefghi"}
    every = " * ".join(nine)
    return {
        "CLBlast Xgemm, large set": {
            "parameters": {
                "MWG": [16, 32, 64, 128],
                "NWG": [16, 32, 64, 128],
                "KWG": [16, 32],
                **{name: [8, 16, 32] for name in ("MDIMC", "NDIMC", "MDIMA", "NDIMB")},
                "KWI": [2],
                "VWM": [1, 2, 4, 8],
                "VWN": [1, 2, 4, 8],
                **{name: [0, 1] for name in ("STRM", "STRN", "SA", "SB")},
            },
            "constraints": [
                "KWG % KWI == 0",
                "MWG % (MDIMC * VWM) == 0",
                "NWG % (NDIMC * VWN) == 0",
                "MWG % (MDIMA * VWM) == 0",
                "NWG % (NDIMB * VWN) == 0",
                "KWG % ((MDIMC * NDIMC) / MDIMA) == 0",
                "KWG % ((MDIMC * NDIMC) / NDIMB) == 0",
            ],
        },
        "10^9: tiles, threads, vectors": {
            "parameters": dict.fromkeys(("TM", "TN", "TK", "WM", "WN", "VM", "VN", "STAGES", "SPLIT"), powers),
            "constraints": [
                "TM % (WM * VM) == 0",
                "TN % (WN * VN) == 0",
                "VM <= 8 and VN <= 8",
                "WM * WN >= 32 and WM * WN <= 1024",
                "4 * (TM + TN) * TK * STAGES <= 48 * 1024",
                "STAGES <= 4",
                "SPLIT * TK <= 64",
                "TM * TN / (WM * WN) >= 16 and TM * TN / (WM * WN) <= 64",
            ],
        },
        "10^9: one bound over all": {"parameters": nine, "constraints": [f"{every} <= 140"]},
        "10^9: one remainder over all": {"parameters": nine, "constraints": [f"({every}) % 9973 < 2"]},
    }


def recorded_problems(path: Path) -> dict[str, Problem]:
    """The distinct spaces of a file of definitions; equal spaces only once."""
    distinct: dict[str, Problem] = {}
    for name, definition in json.loads(path.read_text()).items():
        problem = {key: definition[key] for key in ("parameters", "constraints")}
        if not any(same(problem, kept) for kept in distinct.values()):
            recording = path.with_name(f"{name}.npz")
            distinct[name] = problem | {"recording": str(recording) if recording.exists() else None}
    return distinct


def same(one: Problem, other: Problem) -> bool:
    """Whether two definitions are the same space."""
    return bool(one["parameters"] == other["parameters"] and one["constraints"] == other["constraints"])


def combinations(problem: Problem) -> int:
    """The number of configurations before constraints."""
    return math.prod(len(values) for values in problem["parameters"].values())


# --- the builders: problem -> (number of valid configurations, a way to list them) ------------------------

Built = tuple[int, Callable[[], Iterable[Sequence[Any]]]]


def build_autotune(problem: Problem) -> Built:
    """Build autotune's decision diagram."""
    from autotune.expression import Expression
    from autotune.space import Constraint, Space

    constraints = [Constraint(Expression.parse(text), "") for text in problem["constraints"]]
    space = Space.build(problem["parameters"], constraints)

    def listed() -> Iterable[Sequence[Any]]:
        return ([v[i] for v, i in zip(space.values, row, strict=True)] for row in space.indices().tolist())

    return len(space), listed


def build_and_list(problem: Problem) -> Built:
    """Build the same, with the table of all valid configurations that the peers hold."""
    from autotune.expression import Expression
    from autotune.space import Constraint, Space

    space = Space.build(problem["parameters"], [Constraint(Expression.parse(t), "") for t in problem["constraints"]])
    columns = [np.array(v)[c] for v, c in zip(space.values, space.indices().T, strict=True)]
    return len(space), lambda: zip(*[column.tolist() for column in columns], strict=True)


def build_kernel_tuner(problem: Problem) -> Built:
    """Run Kernel Tuner's constraint solver, with its defaults."""
    from kernel_tuner.searchspace import Searchspace

    space = Searchspace(problem["parameters"], list(problem["constraints"]), max_threads=2**31)
    return space.size, lambda: space.list


def build_pyatf(problem: Problem) -> Built:
    """Build pyATF's chain of trees; each constraint belongs to the last of its parameters, as pyATF requires."""
    from pyatf import TP, Set
    from pyatf.search_space import SearchSpace

    names = list(problem["parameters"])
    texts: dict[str, list[str]] = {name: [] for name in names}
    used: dict[str, set[str]] = {name: {name} for name in names}
    for text in problem["constraints"]:
        scope = set(compile(text, "constraint", "eval").co_names)
        last = max(scope, key=names.index)
        texts[last].append(f"({text})")
        used[last] |= scope
    parameters = []
    for name, values in problem["parameters"].items():
        source = f"lambda {', '.join(sorted(used[name]))}: {' and '.join(texts[name])}"
        # pyATF takes Python functions; the texts are this file's and the user's own definitions.
        parameters.append(TP(name, Set(*values), eval(source) if texts[name] else None))
    space = SearchSpace(*parameters, enable_1d_access=True, verbosity=0)
    size = space.constrained_size
    return size, lambda: ([space.get_configuration(i)[name] for name in names] for i in range(size))


BUILDERS = {
    "autotune": build_autotune,
    "autotune, listed": build_and_list,
    "Kernel Tuner": build_kernel_tuner,
    "pyATF": build_pyatf,
}


# --- one build in a process of its own ----------------------------------------------------------------------


def digest(configurations: Iterable[Sequence[Any]]) -> str:
    """One number for a set of configurations, independent of their order."""
    total = 0
    for configuration in configurations:
        text = repr([int(value) if value == int(value) else float(value) for value in configuration])
        total += int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
    return f"{total % 2**64:016x}"


def memory() -> int:
    """The most memory that this process has held so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(tool: str) -> None:
    """Build the problem on standard input; print time and memory as JSON."""
    problem = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))
    BUILDERS[tool]({"parameters": {"x": [1, 2]}, "constraints": ["x < 2"]})  # imports and first use
    before, begin = memory(), time.perf_counter()
    try:
        valid, listed = BUILDERS[tool](problem)
    except MemoryError:
        print(json.dumps({"failure": "out of memory"}))
        return
    seconds, peak = time.perf_counter() - begin, memory() - before
    found = digest(listed()) if valid <= MAX_DIGESTED else None
    print(json.dumps({"seconds": seconds, "peak_mb": peak / 1e6, "valid": valid, "digest": found}))


def build_apart(tool: str, problem: Problem, limit: float) -> dict[str, Any]:
    """Time and memory of one build, in a new process; a failure if it ends without an answer."""
    command = [sys.executable, __file__, "--build", tool]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONWARNINGS": "ignore"}
    try:
        done = subprocess.run(
            command, input=json.dumps(problem), capture_output=True, text=True, timeout=limit, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"failure": f"> {limit:g} s"}
    if done.returncode:
        return {"failure": "out of memory" if "MemoryError" in done.stderr else done.stderr.strip().splitlines()[-1]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def repeated(tool: str, problem: Problem, limit: float, repeats: int) -> dict[str, Any]:
    """The median of several builds; only one build if it takes long."""
    runs = [build_apart(tool, problem, limit)]
    while len(runs) < repeats and runs[0].get("seconds", limit) < 5:
        runs.append(build_apart(tool, problem, limit))
    if "failure" in runs[0]:
        return runs[0]
    medians = {key: statistics.median(run[key] for run in runs) for key in ("seconds", "peak_mb")}
    return runs[0] | medians


def recorded_digest(problem: Problem) -> tuple[int, str] | None:
    """The number and digest of the recorded configurations, or None without a recording."""
    if not problem.get("recording"):
        return None
    with np.load(problem["recording"]) as arrays:
        columns = [arrays["parameters"].tolist().index(name) for name in problem["parameters"]]
        configurations = arrays["configs"][:, columns].tolist()
    return len(configurations), digest(configurations)


# --- the table ----------------------------------------------------------------------------------------------


def agreement(results: dict[str, dict[str, Any]], recorded: tuple[int, str] | None) -> str:
    """Whether all tools that answered found the same configurations."""
    answers = {(run["valid"], run["digest"]) for run in results.values() if "valid" in run}
    if recorded:
        answers.add(recorded)
    who = [name for name, run in results.items() if "valid" in run] + (["recording"] if recorded else [])
    return f"{'same' if len(answers) == 1 else 'DIFFERENT'} ({len(who)})"


def cell(run: dict[str, Any]) -> str:
    """Time and memory of one build."""
    if "failure" in run:
        return str(run["failure"])
    return f"{run['seconds']:.3f} s, {run['peak_mb']:.0f} MB"


def main() -> int:
    """Build every space with every tool and print the table; return 1 if two tools differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("definitions", nargs="?", type=Path, help="a spaces.json of recorded spaces")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for one build")
    parser.add_argument("--repeats", type=int, default=3, help="fresh processes per build; the median counts")
    parser.add_argument("--json", type=Path, dest="out", help="write the figures there")
    parser.add_argument("--build", choices=BUILDERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.build:
        measure(arguments.build)
        return 0
    problems = own_problems() | (recorded_problems(arguments.definitions) if arguments.definitions else {})
    tools = [tool for tool, module in TOOLS.items() if importlib.util.find_spec(module)]
    versions = {tool: version(tool) for tool in tools}
    print(f"{time.strftime('%Y-%m-%d')}, Python {platform.python_version()}, {os.cpu_count()} CPU cores; {versions}\n")
    print("| space | combinations | valid | " + " | ".join(tools) + " | configurations |")
    print("| --- | ---: | ---: |" + " ---: |" * len(tools) + " --- |")
    figures, differ = {}, False
    for name, problem in problems.items():
        results = {tool: repeated(tool, problem, arguments.limit, arguments.repeats) for tool in tools}
        agreed = agreement(results, recorded_digest(problem))
        differ |= agreed.startswith("DIFFERENT")
        valid = results["autotune"].get("valid", "?")
        cells = " | ".join(cell(results[tool]) for tool in tools)
        print(f"| {name} | {combinations(problem):,} | {valid:,} | {cells} | {agreed} |", flush=True)
        figures[name] = {"combinations": combinations(problem), "results": results, "agreement": agreed}
    if arguments.out:
        arguments.out.write_text(json.dumps({"versions": versions, "spaces": figures}, indent=1) + "\n")
    return int(differ)


def version(tool: str) -> str:
    """The installed version of a tool."""
    from importlib import metadata

    try:
        return metadata.version(TOOLS[tool])
    except metadata.PackageNotFoundError:
        return "this checkout"


if __name__ == "__main__":
    sys.exit(main())
