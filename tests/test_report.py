"""Build logs: where NVIDIA's messages point."""

from __future__ import annotations

import pytest

from autotune.bench.report import first_error, located

SOURCE = """#line 1 "own.cl"
int a;
#line 1 "included.cl"
int b;
int c;
#line 3 "own.cl"
int d;"""


def test_a_line_of_the_whole_source_is_given_as_file_and_line() -> None:
    log = "\n".join(f"<kernel>:{line}:5: error: no" for line in (2, 4, 5, 7))
    places = [line.partition(":5:")[0] for line in located(log, SOURCE).splitlines()]
    assert places == ["own.cl:1", "included.cl:1", "included.cl:2", "own.cl:3"]
    assert located("<kernel>:2:1: error", "int a;\nint b;") == "<kernel>:2:1: error"


def test_the_first_error_is_found_below_warnings() -> None:
    assert first_error("a.cl:1: warning: so\na.cl:2: error: no\na.cl:3: error: not") == "a.cl:2: error: no"
    assert first_error("") == ""
    assert (
        first_error("Error(s) while linking:\nCannot find symbol op\nmore")
        == "Error(s) while linking: Cannot find symbol op"
    )
    assert first_error("error: a.cl:2:3 <Spelling=/lib/opencl-c.h:1:24>: no") == "error: a.cl:2:3: no"


@pytest.mark.parametrize("part", ["x", " <Spelling=/", "/tempfile_", "error a:"])
def test_a_log_that_is_hostile_costs_no_time(part: str) -> None:
    log = part * (2_000_000 // len(part))  # where each place is looked at from each, hours
    assert first_error(log) == log.strip()
