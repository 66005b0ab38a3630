"""The Python API as the README shows it, on PoCL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import autotune
from autotune.errors import UsageError
from tests.studies import study

pytestmark = pytest.mark.device


def test_search_then_best(tmp_path: Path) -> None:
    database = str(tmp_path / "a.db")
    result = autotune.search(study(), size={"N": 500}, trials=3, seed=1, fix={"FAST": [0], "WG": 64}, database=database)
    assert result.best is not None
    assert result.trials == 3
    found = autotune.best(study(), size={"N": 500}, database=database)
    assert found.match == "exact"
    assert dict(found.configuration) == dict(result.best.configuration)
    other = autotune.best(study(), size={"N": 600}, database=database)
    assert other.match == "nearest size"


def test_nothing_stored_gives_the_default_and_says_so(tmp_path: Path) -> None:
    found = autotune.best(study(), database=str(tmp_path / "a.db"))
    assert found.match == "default"
    assert dict(found.configuration) == {"WPT": 1, "WG": 64, "FAST": 0}


@pytest.mark.parametrize("arguments", [{"sampler": "nope"}, {"device": "no such device"}, {"size": {"Q": 1}}])
def test_bad_input_is_one_error(tmp_path: Path, arguments: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        autotune.search(study(), trials=1, database=str(tmp_path / "a.db"), **arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize("trials", [0, -1, "x", 1.5, True])
def test_trials_are_a_whole_number(tmp_path: Path, trials: object) -> None:
    with pytest.raises(UsageError, match=r"trials: .* is no whole number of at least 1"):
        autotune.search(study(), trials=trials, database=str(tmp_path / "a.db"))  # type: ignore[arg-type]


def test_a_bare_value_is_fixed_like_a_list_of_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="WG cannot be 33"):
        autotune.search(study(), trials=1, fix={"WG": 33}, database=str(tmp_path / "a.db"))


def test_other_names_are_no_attributes() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        autotune.nope  # noqa: B018


def test_the_api_is_listed_without_being_imported() -> None:
    code = (
        "import sys; before = set(sys.modules); import autotune; print(*dir(autotune)); print(autotune.__version__); "
        "print(*(set(sys.modules) - before - {'autotune', 'typing', 're', 'functools', 'collections'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    names, version, loaded = done.stdout.splitlines()
    assert set(autotune.__all__) <= set(names.split())
    assert {"search", "best", "tuned", "connect", "Study", "AutotuneError", "__version__"} == set(autotune.__all__)
    assert version.count(".") == 2
    assert not [
        name for name in loaded.split() if name.startswith("autotune.") or name in ("numpy", "importlib.metadata")
    ]
