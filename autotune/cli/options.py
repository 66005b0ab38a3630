"""Options that several commands share, and functions that parse their texts for the rooms below.

Modules that only some commands need are imported inside the functions: help, and commands that only read, need few.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from autotune import text as words
from autotune.bench import BUILD_S, FIRST_S
from autotune.cli.output import first_of, say, warn
from autotune.errors import DeviceError, SetupError, UsageError
from autotune.samplers import SAMPLERS
from autotune.store import shown
from autotune.text import is_value, parse_duration, parse_size, require_known, split_items

if TYPE_CHECKING:
    from autotune.model import DeviceInfo, Value
    from autotune.pool import Settings
    from autotune.study import Problem, Study

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Name of a study, or path of its TOML file.")]


def _device(default: str, several: str = "") -> Any:
    text = f"Index, part of a name, or fingerprint{several}. Default: {default}."
    return typer.Option("--device", "-d", metavar="DEVICE", help=text)


DeviceOption = Annotated[str | None, _device("the best here")]
DevicesOption = Annotated[str | None, _device("the best", "; several: 0,1 or all")]
StoredDeviceOption = Annotated[str | None, _device("all")]
TheirDeviceOption = Annotated[str | None, _device("as the file calls it")]


def _not_empty(texts: list[str] | None) -> list[str] | None:
    """Refuse `--size ,`, as from a script with unset variables: it does not mean the default size."""
    if not all(text.strip(", ") for text in texts or ()):
        raise UsageError("no size given", where="--size", hint="write --size M=1024,N=512")
    return texts


def _size(default: str) -> Any:
    text = f"Problem size; a plain number sets every size. Repeatable. Default: {default}."
    return typer.Option("--size", metavar="M=1024,N=512", help=text, callback=_not_empty)


SizeOption = Annotated[list[str] | None, _size("the study's")]
StoredSizeOption = Annotated[list[str] | None, _size("all")]
TheirSizeOption = Annotated[list[str] | None, _size("the file's, else the study's")]
ChoiceOption = Annotated[
    list[str] | None,
    typer.Option("--choice", metavar="T=float", help="A choice of the study, such as the element type. Repeatable."),
]
DatabaseOption = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="PATH|URL",
        help="Database: a path or an SQLAlchemy URL. Default: $AUTOTUNE_DB, else autotune.db in your data folder.",
    ),
]
ServerOption = Annotated[
    str | None,
    typer.Option("--server", metavar="URL", help="Ask this autotune server instead, with $AUTOTUNE_TOKEN."),
]
OnOption = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="Scheduler of a cluster, such as tcp://head:8786: see docs/cluster.md."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
FixOption = Annotated[
    list[str] | None,
    typer.Option("--fix", metavar="NAME=V[,V]", help="Keep only these values of a parameter. Repeatable."),
]


def _known_sampler(name: str) -> str:
    require_known("sampler", [name], SAMPLERS, where="--sampler")  # whether it is installed is checked when it runs
    return name


SamplerOption = Annotated[
    str, typer.Option("--sampler", metavar="NAME", help=f"One of {', '.join(SAMPLERS)}.", callback=_known_sampler)
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", min=0, max=2**32 - 1, metavar="S", help="Same seed and same results: same proposals."),
]
RunLimitOption = Annotated[
    str,
    typer.Option(metavar="1m", help="Longest run while no best is known, and longest run of a reference in Python."),
]
RUN_LIMIT, BUILD_LIMIT = f"{FIRST_S:g}s", f"{BUILD_S:g}s"
PythonOption = Annotated[
    bool, typer.Option("--allow-python", help="Allow the study's Python to run: its reference, its data.")
]


def settings_of(run_limit: str, allow_python: bool, build_limit: str = BUILD_LIMIT) -> Settings:
    """Return what `--run-limit`, `--allow-python` and `--build-limit` ask of an evaluator. Raises UsageError."""
    from autotune.bench import Limits
    from autotune.pool import Settings

    build_s = parse_duration(build_limit, where="--build-limit")
    limits = Limits(build_s=build_s, first_s=parse_duration(run_limit, where="--run-limit"))
    return Settings(limits=limits, allow_python=allow_python)


def load_study(name: str) -> Study:
    """Return the study of that name or path; warn on stderr if it hides a bundled one. Raises StudyError."""
    from autotune.study import Study, find_study

    text = find_study(name)
    if text.shadows is not None:
        warn(f"{text.file} is used, not the bundled study of the same name")
    return Study.from_text(text)


def assignments(texts: Sequence[str] | None, option: str) -> dict[str, list[str]]:
    """Return the values of each name of `A=1,2,B=3` texts.

    A word without `=` is one more value of the name before it. A name that comes again gets more values.
    """
    found: dict[str, list[str]] = {}
    for text in texts or ():
        last: list[str] | None = None
        for word in split_items(text, option):
            name, equals, value = word.partition("=")
            if equals and name and value:
                last = found.setdefault(name.strip(), [])
                last.append(value.strip())
            elif not equals and last:
                last.append(word)
            else:
                raise UsageError(f"cannot read {word!r}", where=option, hint=f"write {option} NAME=VALUE")
    return found


def assigned(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return the one value of each name of `A=1,B=3` texts. Raises UsageError if a name has several."""
    found = assignments(texts, option)
    for name, values in found.items():
        if len(values) != 1:
            hint = f"write {option} {name}={values[0]}"
            raise UsageError(f"{name} is given {len(values)} values", where=option, hint=hint)
    return {name: value for name, (value,) in found.items()}


def parse_fix(texts: Sequence[str] | None, study: Study) -> dict[str, list[Value]]:
    """Return the values to keep of each parameter: `TS=16,32` or `TS=16,WPT=4`. Raises UsageError."""
    given = assignments(texts, "--fix").items()
    return {name: [_value(study, name, value, "--fix") for value in values] for name, values in given}


def parse_configuration(
    texts: Sequence[str] | None, study: Study, rest: Mapping[str, Value], option: str
) -> dict[str, Value]:
    """Return the configuration `rest` with the values in the texts: `TS=16,WPT=4`. Raises UsageError."""
    given = assigned(texts, option).items()
    return {**rest, **{name: _value(study, name, value, option) for name, value in given}}


def device_to_read(selector: str | None, database: str | None) -> DeviceInfo:
    """Return the device whose stored results are read: one here, else a stored one, as last described.

    Raises DeviceError, SetupError, StoreError.
    """
    from autotune.devices import find_device
    from autotune.lookup import device_meant, stored_device

    try:
        return find_device(selector)
    except (DeviceError, SetupError):
        meant = device_meant(selector, database)
        info = meant.info or stored_device(meant.fingerprint, database)
        if info is None:  # written like a fingerprint, but nothing is known of it
            raise
    for note in meant.notes:
        say(note)
    return info


def warn_of_idle(problem: Problem) -> None:
    """Say which parameters nothing uses, and where the study's default had to be replaced."""
    from autotune.study import effects

    if unused := problem.study.unused:
        names = first_of(unused)
        whose = f"parameters {names}" if unused[1:] else f"parameter {names}"
        warn(f"nothing uses the {whose}: neither the kernel nor a launch, argument, define or option")
    for line in effects(problem):
        warn(line)
    if problem.moved:
        moved = ", ".join(f"{name}={value} instead of {stated}" for name, (stated, value) in problem.moved.items())
        fixed = any(stated not in problem.values[name] for name, (stated, _) in problem.moved.items())
        why = "left out by --fix" if fixed else "not valid here"
        say(f"the study's default is {why}; the nearest valid one stands in: {moved}")


def _value(study: Study, name: str, text: str, option: str) -> Value:
    """Return a value of a parameter by its text. Raises UsageError with the known names, or values."""
    hint = f"parameters of {study.name}: {', '.join(study.parameters)}"
    require_known("parameter", [name], study.parameters, where=option, hint=hint)
    values = study.parameters[name].values
    for value in values:
        if is_value(text, value):
            return value
    raise UsageError(f"{name} cannot be {text!r}", where=option, hint=f"it can be {', '.join(map(str, values))}")


def parse_sizes(texts: Sequence[str] | None, study: Study) -> list[dict[str, int]]:
    """Return the sizes that `--sizes` lists, without repeats, or the study's default size if it is not given.

    Given several times it lists more; but `--size M=64 --size N=32` is one size, as with every other command. Items are
    separated by `;`, or by `,` if none sets a name: a plain number (every size of the study), the name of a size list
    of the study, or `M=1600,N=1600,K=1007` (the rest at their defaults).
    """
    if not texts:
        return [dict(study.sizes)]
    text = ("," if all(re.fullmatch(r"\s*\w+\s*=[^;,]*", text) for text in texts) else ";").join(texts)
    found: list[dict[str, int]] = []
    for group in (part.strip() for part in text.split(";")):
        for item in [group] if "=" in group else [part.strip() for part in group.split(",")]:
            if not item:
                raise UsageError(f"{text!r} has an empty item", where="--sizes", hint="write --sizes 1024,2048")
            found.extend(_sizes(item, study))
    return [size for place, size in enumerate(found) if size not in found[:place]]


def _sizes(item: str, study: Study) -> list[dict[str, int]]:
    if "=" in item or item[0] in "-0123456789":
        for name in study.sizes:
            same = [part for part in item.replace(" ", "").split(",") if part.startswith(f"{name}=")]
            if len(same) > 1:
                hint = f"put a semicolon between sizes: --sizes '{';'.join(same)}'"
                raise UsageError(f"{name} is given twice for one size", where="--sizes", hint=hint)
        try:
            return [parse_size(item, study.sizes)]
        except UsageError as error:
            error.where = "--sizes"
            raise
    known, size = ", ".join(study.size_lists) or "none", words.pairs(study.sizes, ",")
    hint = f"lists of {study.name}: {known}; or write numbers, or {size}"
    require_known("list of sizes", [item], study.size_lists, where="--sizes", hint=hint)
    return [{**study.sizes, **size} for size in study.size_lists[item]]


def command(
    name: str,
    study: str,
    device: DeviceInfo | None,
    size: Mapping[str, int],
    choices: Mapping[str, Value],
    database: str | None,
) -> str:
    """The start of a command line that asks about this problem, ready for more options."""
    from autotune.devices import selector_of

    named = None if device is None else selector_of(device)
    place = None if database is None else shown(database)
    return words.command(name, study, device=named, size=size, choices=choices, database=place)


def kept(typed: Mapping[str, Sequence[str] | str | bool | None], defaults: Mapping[str, str] | None = None) -> str:
    """The options, ` --fix WG=64`, that the next command needs as this one did, without those at their defaults."""
    given = list[str]()
    for option, value in typed.items():
        if value is True:
            given.append(option)
        elif value and value != (defaults or {}).get(option):
            given += [word for one in ([value] if isinstance(value, str) else value) for word in (option, one)]
    return " " + words.typed(given) if given else ""


def percent(told: str, option: str, example: str) -> float:
    """The share in `5%` or `5`. Raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?%?", told.strip())
    if found is None:
        raise UsageError(f"{told!r} is not a percentage", where=option, hint=f"write {option} {example}")
    return float(found[1]) / 100
