from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import autotune
from autotune import errors
from autotune.errors import AutotuneError, StudyError, without


def test_a_message_says_where_what_and_what_next() -> None:
    error = StudyError("no such thing", where="launch.1", hint="add it")
    assert str(error) == "launch.1: no such thing; add it"
    assert str(error.at("x.toml")) == "x.toml: launch.1: no such thing; add it"
    assert str(AutotuneError("alone")) == "alone"


def test_a_message_is_a_line_that_can_be_read_whatever_it_quotes() -> None:
    long = "x" * 100_000
    error = AutotuneError(
        f"no choice {long!r} here", where=f"{long}.toml", hint=f"choices: {long}, {'T, ' * 5000}float"
    )
    told = str(error)
    assert len(told) < 4000
    assert ".toml: no choice 'xxx" in told
    assert "xxx' here; choices: xxx" in told
    assert told.endswith("T, float")
    assert long in error.what
    word, path = "y" * 150, "/tmp/" + "z" * 150
    assert str(AutotuneError(f"no size named {word!r}")).endswith("yyy'")
    assert len(str(AutotuneError(f"no size named {word!r}"))) < 110
    assert path in str(AutotuneError(f"is not {path}", where=path, hint=f"autotune check {path}/{word}"))


def test_exit_codes_are_those_of_the_readme() -> None:
    codes = {
        name: kind.exit_code
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, AutotuneError)
    }
    assert codes == {
        "AutotuneError": 1,
        "UsageError": 2,
        "ExpressionError": 2,
        "StudyError": 2,
        "SpaceError": 2,
        "DeviceError": 2,
        "StoreError": 2,
        "SetupError": 3,
        "OutputError": 1,
        "WorkerError": 4,
    }


class NoisyWarning(UserWarning):
    """A warning of a library."""


def test_the_last_of_several_threads_to_leave_sets_back_what_was_before_the_first() -> None:
    before, first, second = list(warnings.filters), without(NoisyWarning), without(NoisyWarning)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    warnings.warn("still", NoisyWarning, stacklevel=1)
    with pytest.warns(UserWarning, match="own"):
        warnings.warn("own", UserWarning, stacklevel=1)
    second.__exit__(None, None, None)
    assert list(warnings.filters) == before
    with pytest.raises(NoisyWarning):  # as pytest has it
        warnings.warn("again", NoisyWarning, stacklevel=1)


def test_a_filter_of_the_programs_own_stays() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoisyWarning)
        before = list(warnings.filters)
        with without(NoisyWarning):
            pass
        assert list(warnings.filters) == before
        with without(NoisyWarning):
            warnings.resetwarnings()
        assert list(warnings.filters) == []


def test_what_a_thread_of_a_program_runs_catches_no_warnings() -> None:
    """Charts are only drawn by a command."""
    package = Path(autotune.__file__).parent
    found = {
        file.name
        for file in package.rglob("*.py")
        if "with" in (text := file.read_text()) and "catch_warnings(" in text
    }
    assert found == {"drawing.py"}
