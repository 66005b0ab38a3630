"""The result of a search, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap
from typing import Any

from autotune import text
from autotune.bench import undeclared
from autotune.cli.options import command
from autotune.cli.output import facts, first_of, warn
from autotune.identity import Value
from autotune.model import BUSY_CORES, Outcome, Trial
from autotune.ranking import confidence
from autotune.reports import result_json
from autotune.study import Problem, replaced_names
from autotune.tuner import Result

_RATED = 10
"""From this many new trials on, a rate is shown; with fewer, start and end of a search take longer than the trials."""


def warn_of_throttling(throttled: str, which: str = "the best") -> None:
    """Warn on stderr if the best was timed on a device that something slowed down."""
    if throttled == BUSY_CORES:
        warn(
            f"{which} was timed while other programs used the cores, or a container's CPU quota was used up; it is "
            "faster otherwise. End them, or give the container whole cores, and search again: that times the finalists "
            "anew"
        )
    elif throttled:
        warn(
            f"{which} was timed while the device was throttled ({throttled}): let it cool, check its power supply, and "
            "search again, which times the finalists anew"
        )


def warn_of_unverified(best: Trial | None, of: str = "") -> None:
    """Warn on stderr of outputs that the reference says nothing of; `of` says where, if there are several."""
    if best is not None and best.unverified:
        warn(f"{of}{best.unverified}")


def warn_of_unsteady(problem: Problem, trial: Trial | None) -> None:
    """Warn on stderr if the reference is a configuration of the kernel and gives another result when run again."""
    own = problem.study.reference.configuration
    if trial is not None and trial.outcome is Outcome.WRONG_RESULT and trial.configuration == own:
        warn(
            "the reference is a configuration of the kernel, and gave another result when it ran again: compare only "
            'what does not depend on the order of work-items, as [check] found = "sort(OUTPUT)", or fix a race'
        )


def hint_of_build(problem: Problem, log: str) -> str:
    """The hint for a kernel that does not build for a reason in its study; "" for other errors.

    It uses a size as a macro, or a macro of the study replaces a name of the kernel's own.
    """
    name = undeclared(log)
    if name in problem.size:
        return f'{name} is a size, not a macro: [defines] {name} = "{name}" makes it one'
    if replaced := replaced_names(problem.study):
        name = replaced[0].partition(".")[2]
        return f"{replaced[0]}: -D{name} replaces what the kernel itself calls {name}: rename one of them"
    return ""


def print_result(result: Result, study: str, database: str | None, on: str) -> None:
    """Print the best, how it compares, what failed, where the time went, and what to type next (a search with `on`)."""
    warn_of_unsteady(result.problem, result.default)
    told = result_json(result)
    again = _command("search", result, study, database) + on
    facts([*told_rows(told), *what_next(told, again, next_command(result, study, database))])


def told_rows(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return a search's result from `result_json` as names and values; an older server sends fewer of them."""
    counted = text.count(told["trials"], "new trial")
    counted += f" and {told['reused']:,} stored" if told.get("reused") else ""
    rows = [("search", f"{counted} in {text.duration(told['elapsed_s'])}; ended: {text.line(str(told['reason']))}")]
    if (best := told.get("best")) is not None:
        rows += _best_rows(told, best)
    return [*rows, *_failure_rows(told), ("time spent", _usage_text(told.get("usage_s") or {}))]


def what_next(told: Mapping[str, Any], again: str, best: str) -> list[tuple[str, str]]:
    """Return how long a longer search, by the command `again`, would take, and the command that prints the best."""
    rows = [("longer", _longer(told, again))] if "valid_configurations" in told else []
    return [*rows, ("next", best if told.get("best") is not None else "")]


def _best_rows(told: Mapping[str, Any], best: Mapping[str, Any]) -> list[tuple[str, str]]:
    tied = [*map(text.pairs, told.get("ties") or ())]
    more = f"\nand {len(tied) - 3} more" if len(tied) > 3 else ""
    return [
        ("best", text.pairs(best["configuration"])),
        ("time", timing_text(best)),
        ("rate", rates_text(best)),
        ("host", enqueuing_text(best)),
        ("default", text.line(str(told.get("against_default") or ""))),
        ("noise", "" if told.get("ranked", True) else _noise(told["noise"], best)),
        ("tie", "as fast within the intervals: " + "\n".join(tied[:3]) + more if tied else ""),
    ]


def timing_text(told: Mapping[str, Any]) -> str:
    """Median, interval, runs, cache, from `trial_json`: `1.234 ms (1.230 ms to 1.240 ms, 32 runs, warm cache)`."""
    runs = told["runs"]
    low, high = told["interval_ns"]
    cache = f", {text.line(str(told['cache']))} cache" if told.get("cache") else ""
    verified = f", verified in {text.count(told['verified_runs'], 'run')}" if told.get("verified_runs") else ""
    return (
        f"{text.time(told['time_ns'])} (median; {confidence(runs)} % interval {text.time(low)} to {text.time(high)}; "
        f"{text.count(runs, 'run')}{cache}){verified}"
    )


def rates_text(told: Mapping[str, Any]) -> str:
    """`1750 GFLOPS, 12.3 GB/s`, as far as the study gives the amounts, from `trial_json`."""
    rates = (("gflops", "GFLOPS"), ("gbytes_per_s", "GB/s"))
    return ", ".join(f"{text.number(told[name])} {unit}" for name, unit in rates if told.get(name))


def enqueuing_text(told: Mapping[str, Any]) -> str:
    """Say that a host could not keep the device busy, if enqueuing a run took longer than the run."""
    host_ns = told.get("enqueue_run_ns")
    if not host_ns or host_ns <= told["time_ns"]:
        return ""
    return f"Python took {text.time(host_ns)} to enqueue a run: a program that enqueues no faster sees that time"


def _noise(noise: float, best: Mapping[str, Any]) -> str:
    wide = text.share(noise, 1)
    what, cure = "the machine was too noisy", "End other programs here"
    if best.get("at_power_limit"):
        what, cure = "the device, at its power limit, varied its clock too much", "Fix its clock below that"
    return (
        f"{what} to rank the fastest: the interval of the winner's time is {wide} of it wide. {cure}, and search "
        "again: the stored finalists are timed anew"
    )


_RACE = (
    "a kernel that is right at one time and wrong at another has a race, reads memory that nothing wrote, or writes to "
    "its inputs. Other configurations may do so too, more rarely, even the best. Fix the kernel"
)


def _failure_rows(told: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = []
    for outcome, failed in (told.get("failures") or {}).items():
        example = failed.get("example")
        reason = " ".join(str(example["reason"]).split())[:300] if example else ""
        shown = f"; e.g. {text.pairs(example['configuration'])}: {reason}" if example else ""
        rows.append((outcome, text.line(f"{failed['count']} x{shown}")))
        if example and example.get("unsteady"):
            rows.append(("race", _RACE))
    return [*rows, ("wrong with", "\n".join(starmap(_wrong_with, (told.get("wrong_with") or {}).items())))]


def _wrong_with(name: str, values: Sequence[Value]) -> str:
    return text.line(
        f"{name}={first_of(values)}: every wrong result, and none that passed. If it decides what is computed, it "
        f"is a choice: [choices] {name} = [...], not [parameters.{name}]; else leave the values out, or fix the kernel"
    )


def _usage_text(usage: Mapping[str, float]) -> str:
    """Where the wall time of the device workers went, and the share of it, without finalists, in which kernels ran."""
    steps = {name: usage.get(name, 0.0) for name in ("build", "verify", "time", "finalists", "idle")}
    whole = sum(steps.values())
    parts = [f"{name} {text.duration(s)} ({text.share(s, whole)})" for name, s in steps.items() if s > 0]
    busy, trials_s = usage.get("device", 0.0), whole - steps["finalists"]
    parts += [f"device busy {text.share(busy, trials_s)} before the finalists"] if busy else []
    ahead = usage.get("built_ahead", 0.0)
    parts += [f"built ahead {text.duration(ahead)}"] if ahead else []
    return ", ".join(parts)


def _longer(told: Mapping[str, Any], again: str) -> str:
    """How long a longer search would take, and the command that continues from here."""
    space, tried = told["valid_configurations"], told["trials"] + told["reused"]
    if tried >= space:
        wrong = told["reused_wrong"]
        apart = f"; only --fresh tries the stored wrong results ({wrong:,}) again" if wrong else ""
        return f"nothing left: all {space:,} valid configurations are tried{apart}"
    said = f"{tried:,} of {space:,} valid configurations are tried"
    if told["trials"] >= _RATED:
        rate = told["trials"] / told["elapsed_s"]
        said += f", {text.number(60 * rate, 2)} a minute: all would take {text.duration((space - tried) / rate)}"
    return f"{said}\n{again} --timeout 5m"


def next_command(result: Result, study: str, database: str | None) -> str:
    """The command that prints the best as `-D` options; below it, if its answer may be another, the reason."""
    problem = result.problem
    fixed = any(len(problem.values[name]) < len(one.values) for name, one in problem.study.parameters.items())
    return printing(_command("best", result, study, database), fixed)


def printing(best: str, fixed: bool) -> str:
    """Return a command that looks a best up so that it prints `-D` options; below it what values it answers of."""
    return f"{best} --format defines" + "\nwhich considers all values: what --fix leaves out may be faster" * fixed


def _command(name: str, result: Result, study: str, database: str | None) -> str:
    problem = result.problem
    chosen = problem.study.chosen(problem.choices)
    size = problem.size if problem.size != problem.study.sizes else {}
    return command(name, study, problem.device, size, chosen, database)
