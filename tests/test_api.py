"""The Python API as the README shows it, on PoCL."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from inspect import signature
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import tuner
from autotune.api.asked import told_as_arguments
from autotune.devices import find_device
from autotune.errors import AutotuneError, DeviceError, UsageError
from autotune.pool.lock import DeviceLock
from autotune.study import Problem
from autotune.tuner import Budget, Progress, Request
from tests.studies import study, table

pytestmark = pytest.mark.device


def test_a_study_and_a_server_say_what_they_are() -> None:
    assert repr(study()) == "<study saxpy, which tunes WPT, WG, FAST>"
    assert repr(autotune.connect("http://127.0.0.1:1/tune/")) == "<server http://127.0.0.1:1/tune>"


def test_search_then_best(tmp_path: Path) -> None:
    database = str(tmp_path / "a.db")
    fix = {"FAST": [0], "WG": 64}
    result = autotune.search(study(), size={"N": 500}, trials=3, seconds=math.inf, seed=1, fix=fix, database=database)
    assert result.best is not None
    assert (result.trials, result.reason) == (3, "3 trials done"), "endless seconds are no limit"
    found = autotune.best(study(), size={"N": 500}, database=database)
    assert found.match == "exact"
    assert dict(found.configuration) == dict(result.best.configuration)
    other = autotune.best(study(), size={"N": 600}, database=database)
    assert other.match == "nearest size"


def test_nothing_stored_gives_the_default_and_says_so(tmp_path: Path) -> None:
    found = autotune.best(study(), database=tmp_path / "a.db")
    assert found.match == "default"
    assert found.database == str(tmp_path / "a.db")
    assert dict(found.configuration) == {"WPT": 1, "WG": 64, "FAST": 0}


@pytest.mark.parametrize("arguments", [{"sampler": "nope"}, {"device": "no such device"}, {"size": {"Q": 1}}])
def test_bad_input_is_one_error(tmp_path: Path, arguments: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        autotune.search(study(), trials=1, database=str(tmp_path / "a.db"), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("ask", [autotune.best, autotune.search, autotune.tuned])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"size": 20000}, 'size: 20000 is not a mapping of names to sizes; write size={"N": 1024}'),
        ({"size": "N=20000"}, "size: 'N=20000' is not a mapping of names to sizes"),
        ({"size": {1: 2}}, "size: 1 is not a name of a size"),
        ({"size": {"N": 20000.0}}, "N: 20000.0 is not a whole number of at least 1; write N=1024"),
        ({"size": {"N": 2**31}}, "N: 2147483648 is not a whole number from 1 to 2147483647; write N=1024"),
        ({"size": {"N": np.float64(2)}}, "N: np.float64(2.0) is not a whole number"),
        ({"size": {"N": True}}, "N: True is not a whole number"),
        ({"size": {"T": "int"}}, "write T=1024; a choice is choices={\"T\": 'int'}"),
        ({"size": {"N": np.array([[1], [2]])}}, "is not a whole number"),
        ({"choices": "T=float"}, "choices: 'T=float' is not a mapping of names to values"),
        ({"choices": {1: 2}}, 'choices: 1 is not a name of a choice; write choices={"T": "float"}'),
        ({"choices": {"T": 5}}, "choices: T cannot be 5; it can be float, double"),
        ({"device": 0}, '0 is not a selector of a device; write device="0"'),
        ({"device": [0]}, "[0] is not a selector of a device"),
        ({"database": 3}, 'database: 3 is not a path or a URL of a database; write database="tuned.db"'),
        ({"database": b"x.db"}, "database: b'x.db' is not a path or a URL of a database"),
    ],
)
def test_sizes_and_devices_that_are_none_are_one_line(
    tmp_path: Path, ask: Callable[..., object], arguments: dict[str, object], said: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        ask(study(), **{"database": tmp_path / "a.db", **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("ask", [autotune.best, autotune.search, autotune.tuned])
@pytest.mark.parametrize("given", [None, {"name": "own"}, 3])
def test_what_is_no_study_is_one_line(ask: Callable[..., object], given: Any) -> None:
    with pytest.raises(UsageError, match=rf"^study: {given!r} is neither a name nor a path of a study; give "):
        ask(given)


def test_a_choice_of_a_study_without_any_is_told_so(tmp_path: Path) -> None:
    typed = {name: {**entry, "type": "float"} for name, entry in table()["arguments"].items()}
    own = study(arguments=typed, choices={})
    with pytest.raises(UsageError, match=r"no choice named 'U'; known: none$"):
        autotune.best(own, choices={"U": 1}, database=tmp_path / "a.db")


@pytest.mark.filterwarnings("ignore:nothing is stored")
def test_whole_numbers_of_numpy_are_sizes_choices_and_values_and_say_how_to_search(tmp_path: Path) -> None:
    database, own = str(tmp_path / "a.db"), study(choices={"T": ["float"], "V": [1, 2]})
    result = autotune.search(
        own,
        size={"N": np.int64(5000)},
        choices={"V": np.int64(2)},
        trials=np.int64(1),
        seed=np.uint32(7),
        seconds=np.float32(60),
        run_limit=np.int64(9),
        fresh=np.True_,
        fix={"WG": np.int64(128), "WPT": np.array([1, 2])},
        start=[{"WPT": np.int64(2)}],
        database=database,
    )
    assert len(result.trials()) == 1
    found = autotune.best(own, size={"N": np.uint16(5000)}, choices={"V": np.int8(2)}, database=database)
    assert (found.match, found.size, type(found.size["N"])) == ("exact", {"N": 5000}, int)
    assert (found.choices["V"], found.configuration["WG"]) == (2, 128)
    tuned = autotune.tuned(own, N=np.array(5000), choices={"V": np.int64(2)}, database=database)
    assert tuned.match == "exact"


@pytest.mark.parametrize("trials", [0, -1, "x", 1.5, True])
def test_trials_are_a_whole_number(tmp_path: Path, trials: object) -> None:
    with pytest.raises(UsageError, match=r"trials: .* is not a whole number of at least 1"):
        autotune.search(study(), trials=trials, database=str(tmp_path / "a.db"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"seed": -1}, "seed: -1 is not a whole number from 0 to 4294967295; write seed=1"),
        ({"seed": "x"}, "seed: 'x' is not a whole number from 0"),
        ({"seed": 1.5}, "seed: 1.5 is not a whole number from 0"),
        ({"fix": ["WG"]}, "fix: ['WG'] is not a mapping of names to values; write fix={"),
        ({"fix": {"WG": None}}, "fix: 'WG': None is not a value to keep"),
        ({"fix": {"WG": []}}, "fix: 'WG': [] is not a value to keep"),
        ({"fix": {1: 64}}, "fix: 1: 64 is not a value to keep"),
        ({"start": 3}, 'start: 3 is not a list of configurations; write start=[{"WG": 64}]'),
        ({"start": {"WG": 64}}, "start: {'WG': 64} is not a list of configurations"),
        ({"start": ["WG"]}, "start: ['WG'] is not a list of configurations"),
        ({"start": [{1: 64}]}, "start: [{1: 64}] is not a list of configurations"),
        ({"sampler": None}, 'sampler: None is not a name of a sampler; write sampler="bayes"'),
        ({"fresh": None}, "fresh: None is neither True nor False; write fresh=True to turn it on"),
        ({"cold": 2}, "cold: 2 is neither True nor False"),
        ({"retry_failed": "yes"}, "retry_failed: 'yes' is neither True nor False"),
        ({"allow_python": "no"}, "allow_python: 'no' is neither True nor False"),
        ({"run_limit": "1"}, "run_limit: '1' is not a number of seconds above 0; write run_limit=300"),
        ({"build_limit": 0}, "build_limit: 0 is not a number of seconds above 0"),
        ({"run_limit": math.inf}, "run_limit: inf is not a number of seconds above 0"),
        ({"on": 3}, "on: 3 is not an address of a cluster; write on="),
        ({"on_progress": 3}, "on_progress: 3 is not a function; write on_progress=print"),
        ({"budget": 3, "trials": None}, "budget: 3 is not a budget; write budget=autotune.Budget(trials=100)"),
        ({"budget": Budget(seconds=9.0)}, "budget: sets when to stop, and so do trials= and seconds=; leave trials="),
        ({"budget": Budget(trials="x"), "trials": None}, "trials: 'x' is not a whole number of at least 1"),
        ({"budget": Budget(until_stale=0), "trials": None}, "until_stale: 0 is not a whole number of at least 1"),
        ({"budget": Budget(least_gain=1), "trials": None}, "least_gain: 1 is not a share between 0 and 1"),
        (
            {"budget": Budget(least_gain=0.1), "trials": None, "sampler": "random"},
            "least_gain: random cannot estimate the gain; leave sampler= out",
        ),
    ],
)
def test_how_to_search_is_looked_at_before_it_begins(tmp_path: Path, arguments: dict[str, object], said: str) -> None:
    with pytest.raises(UsageError, match=re.escape(said)) as caught:
        autotune.search(study(), **{"trials": 1, "database": tmp_path / "a.db", **arguments})
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "a.db").exists()


def test_a_bare_value_is_fixed_like_a_list_of_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="WG cannot be 33"):
        autotune.search(study(), trials=1, fix={"WG": 33}, database=str(tmp_path / "a.db"))


def test_a_search_that_another_begins_is_refused_where_it_would_wait_for_itself(tmp_path: Path) -> None:
    database, told = tmp_path / "a.db", []

    def begin_another(_: object) -> None:
        if told:  # once is enough: each begins a process
            return
        with pytest.raises(
            UsageError, match=r"is in use by the search whose on_progress starts this one: neither"
        ) as e:
            autotune.search(study(), trials=1, database=database)
        told.append(str(e.value))

    autotune.search(study(), trials=1, database=database, on_progress=begin_another)
    assert told
    autotune.search(study(), trials=1, database=database)  # one after another, as before


def test_who_waits_for_another_search_is_told_so_and_may_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOTUNE_LOCKS", str(tmp_path))
    problem, stop, told = Problem(study(), device=find_device(None)), Event(), list[Progress]()

    def leave(progress: Progress) -> None:
        told.append(progress)
        stop.set()

    request = Request(problem, database=str(tmp_path / "a.db"), budget=Budget(trials=3))
    with ExitStack() as held:
        held.callback(DeviceLock(problem.device).release)
        assert tuner.run(request, stop, on_progress=leave).reason == "interrupted"
    assert str(told[0]) == "waiting for another search to leave the device: 0 of 3 trials"
    assert "is in use by another search" in capsys.readouterr().err


def children() -> set[int]:
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


@pytest.mark.parametrize(
    "arguments",
    [{"device": "no such device"}, {"study": "no such study"}, {"size": {"Q": 1}}, {"fix": {"Q": 1}}],
    ids=str,
)
def test_a_search_that_does_not_begin_leaves_no_process(tmp_path: Path, arguments: dict[str, Any]) -> None:
    before = children()
    with pytest.raises(AutotuneError):
        autotune.search(**{"study": study(), "database": tmp_path / "a.db", **arguments})
    assert children() <= before


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        autotune.nope  # type: ignore[attr-defined]  # noqa: B018


def test_a_budget_is_there_before_anything_else_was_asked_for() -> None:
    code = "import autotune; print(autotune.Budget(trials=100).trials)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "100\n"


TYPES = {"Best", "Match", "Progress", "Result", "TunedKernel"}


def test_a_program_can_name_the_types_of_what_it_is_given() -> None:
    """Type checkers take no name of a room's door for one that a program may import."""
    assert set(autotune.__all__) >= TYPES
    found = {name: getattr(autotune, name) for name in TYPES}
    told = {signature(one).return_annotation for one in (autotune.best, autotune.search, autotune.tuned)}
    assert told == {"Best", "Result", "TunedKernel"}
    assert all(isinstance(one, type) for one in found.values())


def test_the_api_is_listed_without_being_imported() -> None:
    code = (
        "import sys; before = set(sys.modules); import autotune; print(*dir(autotune)); print(autotune.__version__); "
        "print(*(set(sys.modules) - before - {'autotune', 'typing', 're', 'functools', 'collections'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, version, loaded = done.stdout.splitlines()
    assert set(autotune.__all__) <= set(names.split())
    assert {"search", "best", "tuned", "connect", "Budget", "Study", "AutotuneError", "__version__"} == set(
        autotune.__all__
    ) - TYPES
    assert version.count(".") == 2
    assert not [
        name for name in loaded.split() if name.startswith("autotune.") or name in ("numpy", "importlib.metadata")
    ]


@pytest.mark.parametrize("given", ["", "/tmp"])
def test_a_database_that_is_none_is_told_of_as_an_argument(given: str) -> None:
    for ask in (autotune.best, autotune.tuned, partial(autotune.search, trials=1)):
        with pytest.raises(AutotuneError) as raised:
            ask(database=given)
        assert "--db" not in str(raised.value)
        assert "database" in str(raised.value)


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("give a smaller --size", "give a smaller size="),
        ("allow it more with --run-limit 10m", "allow it more with run_limit=600"),
        ("allow it with --allow-python", "allow it with allow_python=True"),
        ("choose one: -d nvidia-h100-1cu, -d 0:1", 'choose one: device="nvidia-h100-1cu", device="0:1"'),
        ("autotune search -d 0 --size 4 measures it", "autotune search -d 0 --size 4 measures it"),
    ],
)
def test_hints_name_arguments_and_leave_commands(hint: str, said: str) -> None:
    with pytest.raises(UsageError) as raised, told_as_arguments():
        raise UsageError("no", hint=hint)
    assert raised.value.hint == said


def test_a_device_and_a_cluster_that_are_none_are_told_of_as_arguments() -> None:
    for ask in (autotune.best, autotune.tuned, autotune.search):
        with pytest.raises(DeviceError, match="no device 'nope'; choose with device=: 0 "):
            ask(device="nope")
    with pytest.raises(UsageError, match=r"^on: '' is not an address of a scheduler; write on=tcp://HOST:8786"):
        autotune.search(on="")
