"""The parts of a reference in Python, found without running it."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.errors import StudyError
from autotune.study import imports


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text("import numpy\nfrom pkg.inner import f\n")
    (tmp_path / "pkg").mkdir()
    for name, text in (("__init__", ""), ("inner", "from . import beside\nfrom .beside import g\n"), ("beside", "")):
        (tmp_path / "pkg" / f"{name}.py").write_text(text)
    (tmp_path / "table.csv").write_text("1,2\n")
    (tmp_path / "unused.py").write_text("")
    return tmp_path


def found(folder: Path, text: str) -> set[str]:
    (folder / "ref.py").write_text(text)
    return set(imports.files_of(folder / "ref.py"))


def test_imports_are_followed_wherever_they_stand(folder: Path) -> None:
    files = {"ref.py", "helper.py", "pkg/__init__.py", "pkg/inner.py", "pkg/beside.py"}
    assert found(folder, "import numpy as np\ndef f():\n    import helper\n") == files
    assert found(folder, "import pkg.beside\n") == {"ref.py", "pkg/__init__.py", "pkg/beside.py"}
    assert found(folder, "from pkg import *\nimport ref\n") == {"ref.py", "pkg/__init__.py"}


def test_a_file_that_is_named_is_part_of_it(folder: Path) -> None:
    assert found(folder, "import numpy as np\nx = np.loadtxt('table.csv')\ny = '../x'\nz = 'no'\n") == {
        "ref.py",
        "table.csv",
    }


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(:\n", r"ref\.py:1: is not Python"),
        ("x = 1\0\n", r"ref\.py(:1)?: is not Python"),
        (f"x = {'(' * 500}1{')' * 500}\n", r"ref\.py(:1)?: is not Python"),
        (f"x = {'-' * 100_000}1\n", r"ref\.py(:1)?: is not Python"),
    ],
)
def test_what_is_no_python_is_told(folder: Path, text: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        found(folder, text)


def test_more_than_can_be_hashed_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "MAX_BYTES", 20)
    with pytest.raises(StudyError, match="larger than 64 MiB"):
        found(folder, "import helper\n")
