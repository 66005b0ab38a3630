from __future__ import annotations

from autotune import errors
from autotune.errors import AutotuneError, StudyError


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
