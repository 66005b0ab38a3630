"""Build logs: where messages point if they do not follow a `#line`."""

from __future__ import annotations

import pytest

from autotune.bench.report import Report, first_error, located, undeclared
from autotune.model import Outcome
from autotune.pool.blame import may_be_the_machines

SOURCE = """#line 1 "own.cl"
int a;
#line 1 "included.cl"
int b;
int c;
#line 3 "own.cl"
int d;"""


@pytest.mark.parametrize("given", ["<kernel>", "input.cl"])
def test_a_line_of_the_whole_source_is_given_as_file_and_line(given: str) -> None:
    log = "\n".join(f"{given}:{line}:5: error: no" for line in (2, 4, 5, 7))
    places = [line.partition(":5:")[0] for line in located(log, SOURCE).splitlines()]
    assert places == ["own.cl:1", "included.cl:1", "included.cl:2", "own.cl:3"]
    assert located(f"{given}:2:1: error", "int a;\nint b;") == f"{given}:2:1: error"
    assert located("input.cl:1: error", '#line 1 "input.cl"\nint a;') == "input.cl:1: error"


def test_the_first_error_is_found_below_warnings() -> None:
    assert first_error("a.cl:1: warning: so\na.cl:2: error: no\na.cl:3: error: not") == "a.cl:2: error: no"
    assert first_error("") == ""
    assert first_error("Compilation failed\nUnrecognized build options: -x") == "Unrecognized build options: -x"
    assert (
        first_error("Error(s) while linking:\nCannot find symbol op\nmore")
        == "Error(s) while linking: Cannot find symbol op"
    )
    assert first_error("a.cl:5:2: error: \n    5 | #error") == "a.cl:5:2: error:"
    assert first_error("error: a.cl:2:3 <Spelling=/lib/opencl-c.h:1:24>: no") == "error: a.cl:2:3: no"


@pytest.mark.parametrize("part", ["a", "x:", "error ", ":1:", "/tempfile_", " <Spelling=/"])
def test_a_line_of_a_log_may_be_as_long_as_it_likes(part: str) -> None:
    """In time linear in its length: trying each place again would take hours."""
    log = part * 2**18
    assert first_error(log) == log.strip()
    assert may_be_the_machines(Report(Outcome.COMPILE_ERROR, build_log=log))


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("k.cl:2:16: error: use of undeclared identifier 'B'\nk.cl:3:1: error: use of undeclared identifier 'C'", "B"),
        ('k.cl(2): error: identifier "B" is undefined', "B"),
        ("k.cl:2:16: error: expected ';' after expression", ""),
        ("", ""),
    ],
)
def test_the_first_name_without_a_meaning(log: str, name: str) -> None:
    assert undeclared(log) == name
