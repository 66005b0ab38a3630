"""What a search found, as a person and as a program reads it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import starmap

from autotune import text
from autotune.bench import undeclared
from autotune.cli.options import command
from autotune.cli.output import MOST_VALUES, facts, warn
from autotune.identity import Value
from autotune.model import BUSY_CORES, Outcome, Trial
from autotune.ranking import confidence, median_interval
from autotune.study import Problem
from autotune.tuner import Result


def warn_of_throttling(throttled: str, which: str = "the best") -> None:
    """Say on stderr that the times of the best were taken on a device that something slowed down, if anything did."""
    if throttled == BUSY_CORES:
        warn(
            f"{which} was timed while other programs had the cores, or a container's quota of them was used up, and "
            "takes less otherwise: end them, or give it whole cores, and search again, which times the finalists anew"
        )
    elif throttled:
        warn(
            f"{which} was timed while the device was throttled ({throttled}): let it cool, see to its power, and "
            "search again, which times the finalists anew"
        )


def warn_of_unverified(best: Trial | None, of: str = "") -> None:
    """Say on stderr of which outputs the reference tells nothing, if of any; `of` says where, of several."""
    if best is not None and best.unverified:
        warn(f"{of}{best.unverified}")


def warn_of_unsteady(problem: Problem, trial: Trial | None) -> None:
    """Say on stderr that the reference is not what it was a run before, where it is a configuration of the kernel."""
    own = problem.study.reference.configuration
    if trial is not None and trial.outcome is Outcome.WRONG_RESULT and trial.configuration == own:
        warn(
            "the configuration that is the reference gives another result when it runs again: compare what does not "
            'depend on the order of work-items, as [check] found = "sort(OUTPUT)", or mend a race'
        )


def hint_of_undefined(problem: Problem, log: str) -> str:
    """What to write where a kernel that does not build takes a size of its study for a macro; "" where it does not."""
    name = undeclared(log)
    return f'{name} is a size, no macro: [defines] {name} = "{name}" makes it one' if name in problem.size else ""


def print_result(result: Result, study: str, database: str | None, on: str) -> None:
    """Print the best, how it compares, what failed, where the time went, and what to type next (a search with `on`)."""
    warn_of_unsteady(result.problem, result.default)
    counted = text.count(result.trials, "new trial") + (f" and {result.reused:,} stored" if result.reused else "")
    rows = [("search", f"{counted} in {text.duration(result.elapsed_s)}; ended: {result.reason}")]
    if result.best is not None:
        rows += _best_rows(result, result.best)
    rows += _failure_rows(result)
    rows += [("time spent", usage_text(result)), ("longer", _longer(result, study, database, on))]
    if result.best is not None:
        rows.append(("next", next_command(result, study, database)))
    facts(rows)


def _best_rows(result: Result, best: Trial) -> list[tuple[str, str]]:
    tied = [text.pairs(trial.configuration) for trial in result.ties]
    more = f"\nand {len(tied) - 3} more" if len(tied) > 3 else ""
    return [
        ("best", text.pairs(best.configuration)),
        ("time", timing_text(best)),
        ("rate", rates_text(result.problem, best)),
        ("default", result.against_default),
        ("noise", "" if result.is_ranked else _noise(result)),
        ("tie", "as fast within the intervals: " + "\n".join(tied[:3]) + more if tied else ""),
    ]


def timing_text(trial: Trial) -> str:
    """Median, its interval, number of runs, cache: `1.234 ms (1.230 ms to 1.240 ms, 32 runs, warm cache)`."""
    measurement = trial.latest
    low, high = median_interval(measurement.samples_ns)
    runs = len(measurement.samples_ns)
    return (
        f"{text.time(measurement.median_ns)} (median; "
        f"{confidence(runs)} % interval {text.time(low)} to {text.time(high)}; "
        f"{text.count(runs, 'run')}, {measurement.cache} cache)"
        + (f", verified in {text.count(trial.verified_runs, 'run')}" if trial.verified_runs else "")
    )


def rates_text(problem: Problem, trial: Trial) -> str:
    """`1750 GFLOPS, 12.3 GB/s`, what the study tells of it."""
    flops = text.rate(problem.flops(trial.configuration), trial.time_ns, "GFLOPS")
    moved = text.rate(problem.bytes(trial.configuration), trial.time_ns, "GB/s")
    return ", ".join(part for part in (flops, moved) if part)


def _noise(result: Result) -> str:
    wide = text.share(result.noise, 1)
    return (
        f"the machine was too noisy to rank the fastest: the interval of the winner's time is {wide} of it wide. End "
        "what else runs here, and search again: the finalists of what is stored are timed anew"
    )


_RACE = (
    "what is right at one time and wrong at another has a race, or reads what nothing wrote: the other configurations "
    "may too, more rarely, the best among them. Mend the kernel"
)


def _failure_rows(result: Result) -> list[tuple[str, str]]:
    rows = []
    for outcome, count in result.failures.items():
        example = result.examples.get(outcome)
        reason = " ".join(example.reason.split())[:300] if example else ""
        shown = f"; e.g. {text.pairs(example.configuration)}: {reason}" if example else ""
        rows.append((outcome.value, f"{count} x{shown}"))
        if example and example.unsteady:
            rows.append(("race", _RACE))
    return [*rows, ("wrong with", "\n".join(starmap(_wrong_with, result.wrong_with.items())))]


def _wrong_with(name: str, values: Sequence[Value]) -> str:
    left = len(values) - MOST_VALUES
    shown = ", ".join(map(str, values[:MOST_VALUES])) + f" and {left} more" * (left > 0)
    return (
        f"{name}={shown}: all of them, nothing that passed. If it decides what is computed, it "
        f"is a choice: [choices] {name} = [...], not [parameters.{name}]; else leave the values out, or mend the kernel"
    )


def usage_text(result: Result) -> str:
    """Where the wall time of the device workers went, and the share in which kernels executed."""
    steps = {name: result.usage.get(name, 0.0) for name in ("build", "verify", "time", "idle")}
    whole = sum(steps.values())
    parts = [f"{name} {text.duration(s)} ({text.share(s, whole)})" for name, s in steps.items() if s > 0]
    busy = result.usage.get("device", 0.0)
    parts += [f"device busy {text.share(busy, whole)}"] if busy else []
    ahead = result.usage.get("built_ahead", 0.0)
    parts += [f"built ahead {text.duration(ahead)}"] if ahead else []
    return ", ".join(parts)


def _longer(result: Result, study: str, database: str | None, on: str) -> str:
    """What searching longer would take, and the command that goes on from here."""
    space, tried = len(result.problem.space), result.trials + result.reused
    if tried >= space:
        wrong = result.reused_wrong
        apart = f"; stored wrong results ({wrong:,}) only --fresh tries again" if wrong else ""
        return f"nothing left: all {space:,} valid configurations are tried{apart}"
    said = f"{tried:,} of {space:,} valid configurations are tried"
    if result.trials:
        rate = result.trials / result.elapsed_s
        said += f", {text.number(60 * rate, 2)} a minute: all would take {text.duration((space - tried) / rate)}"
    return f"{said}\n{_command('search', result, study, database)}{on} --timeout 5m"


def next_command(result: Result, study: str, database: str | None) -> str:
    """The command that prints the winner as `-D` options; below it, where that is not sure, why."""
    problem = result.problem
    fixed = any(len(problem.values[name]) < len(one.values) for name, one in problem.study.parameters.items())
    beyond = "\nwhich answers of all values: what --fix leaves out may be faster" if fixed else ""
    return _command("best", result, study, database) + " --format defines" + beyond


def _command(name: str, result: Result, study: str, database: str | None) -> str:
    problem = result.problem
    chosen = problem.study.chosen(problem.choices)
    size = problem.size if problem.size != problem.study.sizes else {}
    return command(name, study, problem.device, size, chosen, database)
