"""Mutated studies: any file gives one clear line and a documented exit code, never a traceback."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from autotune.cli import app
from tests.commands import STUDY
from tests.studies import SOURCE

HOSTILE = (
    '""',
    '"x"',
    "0",
    "-1",
    "1e999",
    "nan",
    "inf",
    "true",
    "[]",
    "[[]]",
    "{}",
    "[1, 'a', 2.5]",
    "1979-05-27",
    "9" * 30,
    "9" * 5000,
    "[" * 200 + "]" * 200,
    "{ a = { b = 1 } }",
    '"\\u0000"',
    '"\\u001b[31m"',
    '"9**9**9"',
    '"N // 0"',
    '["N"]',
    '["WG"]',
    '[[["N"]]]',
    '"{T}"',
    '"{NOPE}"',
    '"../../../etc/passwd"',
    f'"{"n" * 5000}.cl"',
    '"-include x.h"',
    "[0, 0]",
    '"x" * 3',
    "9223372036854775807",
    "-9223372036854775808",
    '["", ""]',
    '"zeros(10**13)"',
    "{ y = 'outer(x, x)' }",
    "{ y = '9**9**9' }",
    "{ y = 'x.T[0] @ x' }",
    "{ y = 'repeat(x, x)' }",
    '"float3"',
    '"float{T}"',
    "{ distribution = 'normal' }",
    "{ low = 1e308, high = -1e308 }",
    "{ seed = -1 }",
    '"' + "(" * 300 + '"',
    '"' + "-" * 3000 + '1"',
    '"saxpy.py:f"',
    "4294967296",
)
LINES = STUDY.strip().splitlines()


@st.composite
def studies(draw: st.DrawFn) -> str:
    """The text of a study with up to three changes of a value, a key or a line."""
    lines = list(LINES)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        name, equals, _ = lines[at].partition(" = ")
        kind = draw(st.sampled_from(("value", "value", "value", "key", "gone", "twice", "text")))
        if kind == "value" and equals:
            lines[at] = f"{name} = {draw(st.sampled_from(HOSTILE))}"
        elif kind == "key" and equals:
            lines[at] = f"{draw(st.sampled_from(('shape', 'local', 'value', 'when', 'data', 'N', 'x' * 3000)))} = 1"
        elif kind == "gone":
            lines[at] = ""
        elif kind == "twice":
            lines.insert(at, lines[draw(st.integers(0, len(lines) - 1))])
        else:
            lines[at] = draw(st.text(max_size=20))
    return "\n".join(lines)


def outcome(text: str) -> tuple[int, str]:
    """Return the exit code of `check --no-run` of that study, and its stderr."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saxpy.toml"
        path.write_bytes(text.encode(errors="replace"))
        (path.parent / "saxpy.cl").write_text(SOURCE)
        result = CliRunner().invoke(app, ["check", str(path), "--no-run"])
    assert result.exception is None or isinstance(result.exception, SystemExit), f"{result.exception!r} of\n{text}"
    return result.exit_code, result.stderr


@settings(
    max_examples=int(os.environ.get("AUTOTUNE_FUZZ", "25")),
    derandomize=True,
    suppress_health_check=list(HealthCheck),
    database=None,
)
@given(studies())
def test_no_study_makes_a_traceback(text: str) -> None:
    code, said = outcome(text)
    assert code in (0, 2), said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == (code != 0), said
    assert all(len(line) < 12_000 for line in errors)


def test_the_study_itself_passes() -> None:
    assert outcome(STUDY)[0] == 0
