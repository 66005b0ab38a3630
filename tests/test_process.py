"""Commands with a stdout that is full, closed, no longer read or ASCII only, and such a stderr: no traceback."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.device

ROOT = Path(__file__).parent.parent
COMMANDS = [
    "best sgemm -d nvidia-h200-132cu-140g",
    "best --help",
    "--help",
    "studies",
    "devices",
    "history --json",
    "check matmul --no-run",
    "compare element_mult --by UNROLL --no-search",
]


def shell(tmp_path: Path, line: str, **environment: str) -> tuple[int, bytes, str]:
    """Run a line in which a leading `autotune` is the command; return its exit code, stdout and stderr."""
    line = re.sub("^autotune ", f"'{sys.executable}' -m autotune ", line)
    surroundings = os.environ | {"PYTHONPATH": str(ROOT), "AUTOTUNE_DB": str(tmp_path / "a.db")} | environment
    done = subprocess.run(["sh", "-c", line], cwd=tmp_path, env=surroundings, capture_output=True)
    return done.returncode, done.stdout, done.stderr.decode()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_device_is_one_line(tmp_path: Path, command: str) -> None:
    code, _, said = shell(tmp_path, f"autotune {command} > /dev/full")
    assert said.splitlines()[-1] == "error: stdout: cannot be written: No space left on device"
    assert code == 1
    assert "Traceback" not in said


@pytest.mark.parametrize("command", [COMMANDS[0], "check matmul --no-run"])
def test_a_closed_stdout_is_one_line(tmp_path: Path, command: str) -> None:
    code, _, said = shell(tmp_path, f"autotune {command} >&-")
    assert said.splitlines()[-1] == "error: stdout: cannot be written: Bad file descriptor"
    assert code == 1


@pytest.mark.parametrize("command", [COMMANDS[0], "check matmul --no-run"])
def test_a_reader_that_left_is_told_nothing(command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "autotune", *command.split()]
    done = subprocess.run(words, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode == 1
    assert "error" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("ending", ["2>&-", "2>/dev/full", ">&- 2>&- <&-"])
@pytest.mark.parametrize("command", ["best nosuch", "check nosuch"])
def test_the_exit_code_stays_where_nobody_can_be_told(tmp_path: Path, command: str, ending: str) -> None:
    assert shell(tmp_path, f"autotune {command} {ending}") == (2, b"", "")


def test_what_is_opened_does_not_take_the_place_of_a_closed_stream(tmp_path: Path) -> None:
    """Otherwise a driver that writes to descriptor 2 would write into the database."""
    code = (
        "import os; from autotune.__main__ import prepare_streams; prepare_streams(); f = open('data', 'wb'); "
        "os.write(2, b'noise'); f.close(); print(os.path.getsize('data'))"
    )
    assert shell(tmp_path, f"'{sys.executable}' -c \"{code}\" 2>&- <&-") == (0, b"0\n", "")


@pytest.mark.parametrize("settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0"}])
def test_what_an_encoding_lacks_is_escaped(tmp_path: Path, settings: dict[str, str]) -> None:
    study = (ROOT / "studies" / "element_mult.toml").read_text()
    study = study.replace("element_mult.cl", str(ROOT / "kernels" / "element_mult.cl"))
    (tmp_path / "own.toml").write_text(study.replace('about = "', 'about = "µ \U0001f600 ', 1), encoding="utf-8")
    for command in ("check ./own.toml --no-run", "best ./own.toml -d x-1cu", "best ./ümlaut.toml -d x-1cu"):
        code, out, said = shell(tmp_path, f"autotune {command}", **settings, PYTHONUTF8="0")
        assert code in (0, 2), said
        assert "Traceback" not in said
        if "check" in command:
            assert rb"\u00b5 \ud83d\ude00" in out


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    store = (
        "from autotune.store import Store; Store.export_lines = lambda self: ['{}'] * 10**4; "
        "from autotune.__main__ import main; main()"
    )
    code, _, said = shell(tmp_path, f"'{sys.executable}' -c \"{store}\" export /dev/full")
    assert (code, said) == (2, "error: /dev/full: cannot be written: No space left on device\n")
