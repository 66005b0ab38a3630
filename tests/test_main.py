"""The cold path: what `autotune best` imports, prints and says, and which device it answers for."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import autotune.__main__
import autotune.devices
from autotune import cli, pool
from autotune.errors import SetupError
from autotune.lookup import asking
from autotune.lookup.asking import Asked, parse
from autotune.model import DeviceInfo
from autotune.study import (
    Problem,
    default_choices,
    default_configuration,
    default_size,
    find_study,
    made_of,
    problem_key,
    space_hash,
)
from tests.stored import DEVICE, newer_driver, ok, put_in

pytestmark = pytest.mark.device

ROOT = Path(__file__).parent.parent
TEXT = find_study("matmul")
SIZE = default_size(TEXT)
HEAVY = ("numpy", "optuna", "pyopencl", "sqlalchemy", "typer", "pydantic", "platformdirs", "dataclasses", "inspect")


@pytest.fixture(name="place")
def _place(tmp_path: Path) -> str:
    """Return a database with the bundled matmul measured at its default size on DEVICE."""
    key = problem_key(TEXT, SIZE, default_choices(TEXT), DEVICE.fingerprint)
    problem, first = Problem(TEXT.study, device=DEVICE), default_configuration(TEXT)
    trials = [replace(ok(first, 1000, 1001, 1002), made=made_of(problem, problem.plan(first), first))]
    put_in(tmp_path / "own.db", trials, key=key, environment={"space": space_hash(TEXT)})
    return str(tmp_path / "own.db")


def python(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)


@pytest.mark.untraced
def test_a_stored_best_is_answered_by_the_standard_library(place: str) -> None:
    words = ["autotune", "best", "matmul", "-d", DEVICE.fingerprint, "--format", "json", "--db", place]
    code = (
        f"import sys; sys.argv, own = {words!r}, {{*sys.modules}}\nfrom autotune.__main__ import main\n"
        f"try: main()\nfinally: print([one for one in {HEAVY!r} if one in sys.modules.keys() - own], file=sys.stderr)"
    )
    done = python("-c", code)
    assert done.returncode == 0
    found = json.loads(done.stdout)
    assert (found["match"], found["configuration"]) == ("exact", default_configuration(TEXT))
    assert done.stderr.splitlines()[-1] == "[]"


def test_the_module_runs(place: str) -> None:
    done = python("-m", "autotune", "best", "matmul", "-d", "h200", "--db", place, "--format", "shell")
    assert done.returncode == 0
    assert "TUNED_T=float\n" in done.stdout


def test_nobody_who_wrote_to_the_database_runs_code_or_moves_a_cursor(place: str, tmp_path: Path) -> None:
    """A configuration key that is a command, and names that are escape sequences, under an exact match."""
    pwned = tmp_path / "pwned"
    nasty = "x\x1b[2J\x07\u202e\nwarning: forged"
    stored = json.dumps(default_configuration(TEXT) | {f"A=1;touch {pwned};B": 1})
    connection = sqlite3.connect(place)
    connection.execute("UPDATE trials SET configuration = ?, driver = ?", (stored, nasty))
    connection.execute("UPDATE standings SET driver = ?", (nasty,))
    connection.execute("UPDATE devices SET name = ?, driver = ?", (nasty, nasty))
    connection.commit()
    done = python("-m", "autotune", "best", "matmul", "-d", DEVICE.fingerprint, "--db", place, "--format", "shell")
    assert done.returncode == 0
    assert "a stored configuration is left out, not being of this study: the study has no parameter" in done.stderr
    subprocess.run(["sh", "-euc", f'eval "{done.stdout}"'], check=True)
    assert not pwned.exists()
    connection.execute("UPDATE trials SET configuration = ?", (json.dumps(default_configuration(TEXT)),))
    connection.commit()
    connection.close()
    for words in (["best", "matmul", "-d", DEVICE.fingerprint], ["best", "matmul", "-d", "nvidia"], ["history"]):
        done = python("-m", "autotune", *words, "--db", place)
        assert done.returncode == 0
        assert r"x\x1b[2J\x07\u202e warning: forged" in done.stdout
        assert (done.stdout + done.stderr).replace("\n", "").isprintable()
        assert not [line for line in (done.stdout + done.stderr).splitlines() if line.startswith("warning: forged")]


def test_a_reader_that_left_is_no_error(place: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "autotune", "best", "matmul", "-d", "h200", "--db", place]
    done = subprocess.run(words, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize(
    ("command", "module", "step", "code", "said"),
    [
        ("devices", "autotune.cli", "signal.raise_signal(signal.SIGINT)", 130, "interrupted\n"),
        ("best", "autotune.lookup.asking", "signal.raise_signal(signal.SIGTERM)", 130, "interrupted\n"),
        ("studies", "typer", "signal.raise_signal(signal.SIGHUP)", 130, "interrupted\n"),
        ("history", "typer", "exec('try: signal.raise_signal(2)\\nfinally: raise ValueError')", 130, "interrupted\n"),
        ("search", "numpy", "raise MemoryError", 3, "error: there is no memory left; "),
    ],
)
def test_what_ends_a_command_while_modules_load_is_no_traceback(
    command: str, module: str, step: str, code: int, said: str
) -> None:
    lines = [
        "import signal, sys",
        "from autotune.__main__ import main",
        f"sys.argv = ['autotune', {command!r}]",
        "class End:",
        "    def find_spec(self, name, *rest):",
        f"        if name == {module!r}: {step}",
        "sys.meta_path.insert(0, End())",
        "main()",
    ]
    done = python("-c", "\n".join(lines))
    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == bool(said)


def test_an_interrupt_as_python_ends_changes_nothing() -> None:
    code = (
        "import atexit, os, signal, sys\nfrom autotune.__main__ import main\nsys.argv = ['autotune', '--version']\n"
        "for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):\n"
        "    atexit.register(os.kill, os.getpid(), ending)\nmain()"
    )
    done = python("-c", code)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("threads", "code"), [(0, 2), (1, 2), (0, 0)])
def test_what_is_to_be_done_at_the_end_is_done(threads: int, code: int) -> None:
    words = ["--version"] if code == 0 else ["best", "--nonsense"]
    lines = [
        "import atexit, sys, threading, time",
        "from autotune.__main__ import command",
        f"sys.argv = ['autotune', *{words!r}]",
        "atexit.register(print, 'at the end', file=sys.stderr)",
        "at_work = threading.Event()",
        f"others = [threading.Thread(target=at_work.wait) for _ in range({threads})]",
        "atexit.register(lambda: print([other.is_alive() for other in others], file=sys.stderr))",
        "[other.start() for other in others]",
        "threading.Timer(.1, at_work.set).start() if others else None",
        "command()",
    ]
    done = python("-c", "\n".join(lines))
    assert done.returncode == code
    assert done.stderr.rstrip().endswith(f"{[False] * threads}\nat the end")


def test_help_and_mistakes_are_typers() -> None:
    done = python("-m", "autotune", "best", "--help")
    assert done.returncode == 0
    assert "autotune best sgemm" in done.stdout
    done = python("-m", "autotune", "best", "--colour", "red")
    assert done.returncode == 2
    assert "--colour" in done.stderr


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        ("", Asked()),
        ("matmul", Asked("matmul")),
        ("-d 0 ./x.toml --json", Asked("./x.toml", device="0", format="json")),
        ("--device=h200 --format=toml", Asked(device="h200", format="toml")),
        ("--size M=1 --size N=2,K=3 --choice T=int", Asked(sizes=("M=1", "N=2,K=3"), choices=("T=int",))),
        ("--size=M=1", Asked(sizes=("M=1",))),
        ("--db sqlite:///x.db", Asked(database="sqlite:///x.db")),
        ("--help", None),
        ("-d", None),
        ("-d0", None),
        ("--unknown x", None),
        ("a b", None),
        ("--json --format header", None),
        ("--size ,", None),
        ("--", None),
    ],
)
def test_words(words: str, asked: Asked | None) -> None:
    assert parse(words.split()) == asked


# What is said beside --------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[str, str]:
    asked = parse(words)
    assert asked is not None
    assert asking.run(asked) == code
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_an_exact_match_under_this_driver_is_silent(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, DEVICE)
    assert run(capsys, "matmul", "--db", place, "--format", "defines")[1] == ""
    have(monkeypatch, newer_driver("560"))
    _, said = run(capsys, "matmul", "-d", "0", "--db", place)
    assert "warning: no exact match for matmul on nvidia-h200-132cu-140g; this is: other driver\n" in said
    assert "note: measured with driver 550.1; this device now has 560\n" in said


def test_nothing_stored_says_what_to_type(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = str(tmp_path / "new.db")
    words = ["matmul", "-d", DEVICE.fingerprint, "--size", "M=64", "--choice", "T=int", "--db", place]
    out, said = run(capsys, *words, "--format", "json")
    assert json.loads(out)["match"] == "default"
    command = f"autotune search matmul -d {DEVICE.fingerprint} --size M=64,N=256,K=256 --choice T=int --db {place}"
    assert said.splitlines()[-1] == f"to measure it: {command}"
    assert "warning: " in said


def test_defines_say_which_build_options_belong_to_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "fast.cl").write_text("kernel void fast(global float *y) { y[0] = 1.0f; }\n")
    (tmp_path / "fast.toml").write_text(
        'name = "fast"\nkernel = "fast.cl"\n[parameters.A]\nvalues = [1]\n[[options]]\nflag = "-cl-mad-enable"\n'
        '[arguments.y]\ntype = "float"\nshape = [1]\naccess = "out"\n[[launch]]\nentry = "fast"\nglobal = [1]\n'
        'arguments = ["y"]\n[reference]\nnumpy = { y = "1" }\n'
    )
    words = [str(tmp_path / "fast.toml"), "-d", DEVICE.fingerprint, "--db", str(tmp_path / "x.db"), "--format"]
    out, said = run(capsys, *words, "defines")
    assert out == "-DA=1\n"
    assert "note: measured with these build options besides: -cl-mad-enable" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("nosuch", "error: no study named 'nosuch'"),
        ("matmul --format xml", "error: --format: no format named 'xml'"),
        ("matmul --size Q=1", "error: --size: no size named 'Q'"),
        ("matmul --choice T=half", "error: --choice: T cannot be 'half'"),
        ("matmul -d x-1cu --db :memory:", "keeps nothing"),
    ],
)
def test_a_mistake_is_one_line(capsys: pytest.CaptureFixture[str], words: str, message: str) -> None:
    out, said = run(capsys, *words.split(), code=2)
    assert out == ""
    assert message in said
    assert said.count("\n") == 1


# Which device ---------------------------------------------------------------------------------------------


def have(monkeypatch: pytest.MonkeyPatch, device: DeviceInfo | None) -> None:
    """Let OpenCL have one device, or none."""

    def find(selector: str | None) -> DeviceInfo:
        if device is None:
            raise SetupError("no OpenCL device")
        return device

    monkeypatch.setattr(autotune.devices, "find_device", find)


def answered_for(capsys: pytest.CaptureFixture[str], place: str, *words: str) -> str:
    out, _ = run(capsys, "matmul", "--db", place, "--json", *words)
    device: str = json.loads(out)["device"]
    return device


def test_a_part_of_a_stored_name_or_a_fingerprint_asks_no_opencl(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, None)
    for selector in (DEVICE.fingerprint, "H200", "NVIDIA h2", "132cu"):
        assert answered_for(capsys, place, "-d", selector) == DEVICE.fingerprint
    assert answered_for(capsys, place, "-d", "amd-gfx942-304cu-192g") == "amd-gfx942-304cu-192g"


def test_an_index_or_an_unknown_name_is_this_machines(
    place: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = newer_driver("1")
    here = DeviceInfo(**{name: getattr(here, name) for name in here.__slots__} | {"compute_units": 7})
    have(monkeypatch, here)
    for words in ([], ["-d", "0"], ["-d", "some other card"]):
        assert answered_for(capsys, place, *words) == here.fingerprint


def test_without_any_device_the_only_stored_one_is_meant(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    have(monkeypatch, None)
    out, said = run(capsys, "matmul", "--db", place, "--format", "json")
    assert json.loads(out)["device"] == DEVICE.fingerprint
    assert f"no OpenCL device: answered for {DEVICE.fingerprint}, the only one stored" in said
    _, said = run(capsys, "matmul", "--db", str(tmp_path / "none.db"), code=3)
    assert said == "error: no OpenCL device\n"
    other = newer_driver("1")
    other = DeviceInfo(**{name: getattr(other, name) for name in other.__slots__} | {"compute_units": 7})
    put_in(Path(place), [], device=other)
    _, said = run(capsys, "matmul", "--db", place, code=2)
    assert f"-d {DEVICE.fingerprint}, -d {other.fingerprint}" in said
    _, said = run(capsys, "matmul", "--db", place, "-d", "nvidia", code=2)
    assert "2 stored devices answer 'nvidia'" in said
    arc = DeviceInfo(**{name: getattr(other, name) for name in other.__slots__} | {"name": "Arc", "vendor": "Intel"})
    put_in(Path(place), [], device=arc)
    _, said = run(capsys, "matmul", "--db", place, "-d", "nvidia", code=2)
    assert f"2 stored devices answer 'nvidia'; choose one: -d {DEVICE.fingerprint}, -d {other.fingerprint}\n" in said


@pytest.mark.parametrize("given", ["", " "])
def test_a_device_left_empty_is_not_the_only_stored_one(place: str, given: str) -> None:
    words = ["matmul", "--db", place, "-d", given]
    assert parse(words) is None  # the command reads it, and refuses it
    ended = subprocess.run([sys.executable, "-m", "autotune", "best", *words], capture_output=True, text=True)
    assert ended.returncode == 2
    assert (
        ended.stderr == "error: -d: an empty value is given; give it a value, or leave it out: autotune best --help\n"
    )


def test_a_command_loads_what_it_needs_and_a_short_search_no_scipy(place: str) -> None:
    """A command that reads stored results does not load what searches, and help loads neither."""
    code = f"""import sys
from autotune import cli
for words in (["serve", "--help"], ["history", "--json", "--db", {place!r}], ["search", "--help"]):
    try: cli.run(words)
    except SystemExit: print("loaded", *sys.modules, sep=",")"""
    done = python("-c", code)
    helped, told, search = (set(line.split(",")) for line in done.stdout.splitlines() if line.startswith("loaded,"))
    assert "autotune.cli.search" in search
    assert not {"scipy", "optuna", "autotune.cli.export", "autotune.reports.charts"} & search
    assert "autotune.store.store" in told
    assert not {"numpy", "rich.console", "autotune.study.study", "autotune.tuner", "autotune.service"} & told
    assert not {"sqlalchemy", "autotune.store.store"} & helped


@pytest.mark.parametrize(
    ("typed", "begins"),
    [
        ("search sgemm", True), ("check sgemm", True), ("compare sgemm", True), ("cover sgemm", True),
        ("verify sgemm", True), ("new a.cl", True), ("search sgemm --on=tcp://head:8786", False),
        ("studies --help", False), ("search -h", False),
    ],
)  # fmt: skip
def test_what_runs_or_compiles_kernels_begins_its_prepared_process_first(
    monkeypatch: pytest.MonkeyPatch, typed: str, begins: bool
) -> None:
    assert begun_by(typed, monkeypatch) == ["prepared"] * begins + ["run"]


@pytest.mark.parametrize(
    "typed",
    ["check x --no-run", "compare x --no-search", "cover x --no-search", "export x", "history", "import x", "report"],
)
def test_a_look_up_has_devices_listed_once_it_asks(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    assert begun_by(typed, monkeypatch) == ["listed later", "run"]


@pytest.mark.parametrize("typed", ["devices --json", "studies", "worker --on tcp://head:8786"])
def test_devices_are_listed_by_a_process_that_a_driver_may_take_down(
    monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    assert begun_by(typed, monkeypatch) == ["listed", "run"]


@pytest.mark.parametrize("typed", ["devices --on tcp://head:8786", "worker --help", "new --help", "history --help"])
def test_devices_that_nobody_asks_for_are_not_listed(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    assert begun_by(typed, monkeypatch) == ["run"]


def begun_by(typed: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    begun: list[str] = []
    monkeypatch.setattr(pool, "list_apart", lambda: begun.append("listed"))
    monkeypatch.setattr(pool, "list_when_asked", lambda: begun.append("listed later"))
    monkeypatch.setattr(pool, "prepare_and_list", lambda: begun.append("prepared"))
    monkeypatch.setattr(cli, "run", lambda words: begun.append("run"))
    autotune.__main__._run(typed.split())
    return begun
