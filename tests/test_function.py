"""A reference in Python runs in a process of its own: within its time, and only with files that are hashed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autotune.errors import StudyError, WorkerError
from autotune.pool import Settings
from autotune.pool.caller import Caller
from autotune.pool.data import Setups
from autotune.pool.folder import RunFolder
from autotune.study import Problem
from tests.processes import has_ended


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "author").mkdir()
    (tmp_path / "author" / "helper.py").write_text("TWO = 2\n")
    (tmp_path / "author" / "data.csv").write_text("3\n")
    (tmp_path / "author" / "other.txt").write_text("4\n")
    (tmp_path / "elsewhere.txt").write_text("5\n")
    return tmp_path


def run(folder: Path, body: str, limit_s: float = 60.0, before: str = "") -> Any:
    text = f"import numpy as np\n{before}\ndef f(x, N):\n    {body}\n"
    (folder / "author" / "ref.py").write_text(text)
    given = {"x": np.arange(3.0), "N": 3}
    return Caller(folder, limit_s)(folder / "author" / "ref.py", "f", given)["y"].tolist()


def test_it_gets_what_it_needs_and_its_own_files(folder: Path) -> None:
    assert run(folder, "return {'y': x * N}") == [0, 3, 6]
    read = "import helper\n    return {'y': helper.TWO * x + np.loadtxt('data.csv')}"
    assert run(folder, read) == [3, 5, 7]
    assert run(folder, "open('new', 'w').write('7'); return {'y': float(open('new').read())}") == 7
    assert run(folder, "from numpy import polynomial; import decimal; return {'y': 1}") == 1


@pytest.mark.parametrize(
    "body",
    [
        "return {'y': np.loadtxt('oth' + 'er.txt')}",
        "return {'y': np.loadtxt('../elsewhere.txt')}",
        "import importlib; importlib.import_module('hel' + 'per'); return {'y': 1}",
        "import os; os.open('oth' + 'er.txt', os.O_RDONLY); return {'y': 1}",
        "open('oth' + 'er.txt', 'a+'); return {'y': 1}",
        "open('oth' + 'er.txt', 'a').write(''); return {'y': np.loadtxt('oth' + 'er.txt')}",
        "\n    try: open('oth' + 'er.txt')\n    except OSError: pass\n    return {'y': 1}",
    ],
)
def test_what_no_hash_covers_is_not_read(folder: Path, body: str) -> None:
    with pytest.raises(StudyError, match=r"^ref\.py: the function reads .*; put the file beside it"):
        run(folder, body)


@pytest.mark.slow
def test_it_is_ended_when_it_overruns_with_all_that_it_started(folder: Path) -> None:
    before = "import subprocess, time"
    body = "p = subprocess.Popen(['sleep', '1000']); open('pid', 'w').write(str(p.pid)); time.sleep(1e3)"
    with pytest.raises(StudyError, match=r"^ref\.py: the function took more than 6 s; allow .* --run-limit"):
        run(folder, body, limit_s=6.0, before=before)
    assert has_ended(int((folder / "author" / "pid").read_text()))
    assert not list(folder.glob("reference-*"))


SEARCH = """
import sys
from pathlib import Path
from autotune.pool.caller import Caller
Caller(Path(sys.argv[1]), 600.0)(Path(sys.argv[1]) / "author" / "ref.py", "f", {"N": 3})
"""


def test_it_ends_with_its_search_and_takes_along_all_that_it_started(folder: Path) -> None:
    started = "print(subprocess.Popen(['sleep', '1000'], stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL).pid)"
    text = f"import subprocess, sys, time\ndef f(N):\n    {started}\n    sys.stdout.flush()\n    time.sleep(1e3)\n"
    (folder / "author" / "ref.py").write_text(text)
    command = [sys.executable, "-c", SEARCH, str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as search:
        assert search.stderr is not None
        pid = int(search.stderr.readline())
        search.kill()
    assert has_ended(pid)


def test_it_ends_as_nobody_waits_for_it_any_more(folder: Path) -> None:
    os.mkfifo(folder / "author" / "pid")
    (folder / "author" / "ref.py").write_text(
        "import os, time\ndef f(N):\n    open('pid', 'w').write(str(os.getpid()))\n    time.sleep(1e3)\n"
    )
    caller = Caller(folder, 600.0)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(caller, folder / "author" / "ref.py", "f", {"N": 3})
        pid = int((folder / "author" / "pid").read_text())
        caller.close()
        with pytest.raises(StudyError, match="killed by SIGKILL"):
            waiting.result()
    assert has_ended(pid)
    with pytest.raises(WorkerError, match="closed"):
        caller(folder / "author" / "ref.py", "f", {"N": 3})


def test_what_an_evaluator_runs_ends_with_it(problem: Problem, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    kept = RunFolder()
    setups = Setups(problem, kept, Settings(allow_python=True))
    assert setups._data.result().inputs
    setups.close()
    assert setups._python is not None
    with pytest.raises(WorkerError, match="closed"):
        setups._python(folder / "author" / "helper.py", "f", {})
    kept.remove()


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("raise KeyError('no')", r"^ref\.py:4: the function failed: KeyError: 'no'"),
        ("raise SystemExit(3)", r"^ref\.py:4: the function failed: SystemExit: 3"),
        ("import os; os._exit(3)", r"^ref\.py: the function left no answer \(exit code 3\)"),
        ("import os; os.abort()", r"^ref\.py: the function left no answer \(killed by SIGABRT\)"),
        ("import os; os.kill(os.getpid(), 9)", r"^ref\.py: the function left no answer \(killed by SIGKILL\)"),
        ("return 3", "returned int; return a dict"),
        ("return {'y': [object()]}", "returned no numbers"),
        ("return {'y': [[1], [1, 2]]}", "returned no numbers"),
    ],
)
def test_however_it_ends_one_line_says_so(folder: Path, body: str, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        run(folder, body)


def test_what_it_prints_is_no_data(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(folder, "print('hello'); return {'y': 1}")
    assert capfd.readouterr() == ("", "hello\n")
