"""A best in each format: golden files, and a reader of the format reads the same values."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import StudyError
from autotune.lookup import Best, Launched, Match
from autotune.lookup.formats import FORMATS, render

GOLDEN = Path(__file__).parent / "golden"

EXACT = Best(
    study="sgemm",
    configuration={"TILE_M": 128, "VARIANT": "TILED", "SCALE": 0.5},
    match=Match.EXACT,
    notes=("a tie: one other configuration is as fast within the interval",),
    device="nvidia-h200-132cu-140g",
    size={"M": 4096, "N": 4096, "K": 1007},
    choices={"T": "float"},
    time_ns=3_412_500.5,
    interval_ns=(3_410_000.0, 3_415_001.0),
    runs=300,
    measured_on="nvidia-h200-132cu-140g",
    device_name="NVIDIA H200",
    measured_size={"M": 4096, "N": 4096, "K": 1007},
    driver="550.54.15",
    measured="2026-11-21T08:04:41.635672+00:00",
    ties=1,
    trials=100,
    database="/home/me/.local/share/autotune/autotune.db",
    options=("-DT=float", "-DTILE_M=128", "-DVARIANT=TILED", "-DSCALE=0.5", "-DTILE_BYTES=512", "-cl-mad-enable"),
    flops=2.0 * 4096 * 4096 * 1007,
    launches=(Launched("sgemm", (256, 64), (16, 8)), Launched("sum", (4096,), None, (64,))),
)
DEFAULT = Best(
    study="my-blur.2",
    configuration={"WG": 64},
    match=Match.DEFAULT,
    notes=("nothing is stored that could answer: */ this is the study's default configuration",),
    device="amd-epyc-2cu",
    size={"N": 7},
    choices={},
    options=("-DWG=64",),
)
NEAREST = EXACT._replace(
    match=Match.NEAREST_SIZE, notes=("measured at M=N=4096 K=1007, asked for M=N=K=64",), flops=None, ties=0,
    size={"M": 64, "N": 64, "K": 64}, launches=(Launched("sgemm", (16, 8), (16, 8)),),
)  # fmt: skip
CASES = {"exact": EXACT, "default": DEFAULT, "nearest": NEAREST}


def test_an_option_without_a_value_defines_1_as_for_the_compiler() -> None:
    best = DEFAULT._replace(options=("-DWG=64", "-DFAST", "-DEMPTY="))
    assert best.defines == {"WG": "64", "FAST": "1", "EMPTY": ""}
    assert re.search(r"^#define FAST +1$", render(best, "header"), re.MULTILINE)
    assert re.search(r"^#define EMPTY +$", render(best, "header"), re.MULTILINE)
    assert "TUNED_FAST=1\n" in render(best, "shell")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("case", CASES)
def test_golden(case: str, format: str) -> None:
    """To accept a changed format: run `python -m tests.test_formats`, then read the difference."""
    assert render(CASES[case], format) == (GOLDEN / f"best-{case}.{format}").read_text(encoding="utf-8")


@pytest.mark.parametrize("format", FORMATS)
def test_a_format_shows_every_choice_and_parameter_and_asks_for_what_else_it_shows(format: str) -> None:
    text = render(EXACT, format)
    for name, value in {**EXACT.choices, **EXACT.configuration}.items():
        options = tuple(one.replace(f"-D{name}={value}", f"-D{name}=9") for one in EXACT.options)
        field = "choices" if name in EXACT.choices else "configuration"
        other = EXACT._replace(**{field: {**getattr(EXACT, field), name: 9}}, options=options)
        assert render(other, format) != text, name
    whole = render(EXACT._replace(flops=None, launches=()), format) != text
    assert FORMATS[format] is whole, "whether it shows a rate or launches"


values = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(st.characters(codec="utf-8"))
configurations = st.dictionaries(st.from_regex(r"[A-Z][A-Z0-9_]{0,8}", fullmatch=True), values, min_size=1, max_size=4)


@given(configurations)
def test_json_and_toml_give_the_values_back(configuration: dict[str, int | float | str]) -> None:
    best = EXACT._replace(configuration=configuration)
    assert json.loads(render(best, "json"))["configuration"] == configuration
    assert tomllib.loads(render(best, "toml"))["configuration"] == configuration


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"))))
def test_defines_are_safe_in_a_shell(texts: list[str]) -> None:
    options = tuple(f"-DX{number}={text}" for number, text in enumerate(texts))
    assert tuple(shlex.split(render(EXACT._replace(options=options), "defines"))) == options


def test_a_define_with_parameters_is_none_of_a_shells() -> None:
    best = EXACT._replace(options=(*EXACT.options, "-DAT(r,i)=((r)*n+(i))"))
    assert re.search(r"^#define AT\(r,i\) +\(\(r\)\*n\+\(i\)\)$", render(best, "header"), re.MULTILINE)
    script = render(best, "shell") + "eval \"printf '%s\\n' $AUTOTUNE_OPTIONS\""
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert tuple(done.stdout.splitlines()) == best.options


def test_a_shell_evaluates_what_shell_prints() -> None:
    nasty = "a 'b' \"c\" $(exit 3) `x` \\ ; #"
    best = EXACT._replace(configuration={"TILE": 16, "NASTY": nasty})
    script = render(best, "shell") + 'printf "%s|%s|%s" "$TUNED_T" "$TUNED_TILE" "$TUNED_NASTY"'
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert done.stdout == f"float|16|{nasty}"


def test_a_table_tells_models_of_one_name_apart() -> None:
    other = EXACT._replace(measured_on="nvidia-h200-132cu-70g")
    assert "on NVIDIA H200 (nvidia-h200-132cu-70g), driver" in render(other, "table")


def test_a_table_says_of_how_many_trials() -> None:
    assert "best of 1 trial\n" in render(EXACT._replace(trials=1), "table")
    assert "best of 1,200 trials\n" in render(EXACT._replace(trials=1200), "table")


def test_a_header_holds_every_define() -> None:
    text = render(EXACT, "header")
    defines = dict(re.findall(r"^#define (\w+) +(\S+)$", text, re.MULTILINE))
    assert defines == {"T": "float", "TILE_M": "128", "VARIANT": "TILED", "SCALE": "0.5", "TILE_BYTES": "512"}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc: apt-get install gcc")
@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (['#include "a.h"', '#include "a.h"', '#include "same.h"'], ""),
        (['#include "a.h"', "#undef TILE_M", '#include "other.h"'], ""),
        (['#include "a.h"', "#undef TILE_M", '#include "same.h"'], ""),
        (['#include "a.h"', '#include "other.h"'], "redefined"),
    ],
)
def test_of_two_sizes_headers_none_goes_unheard(tmp_path: Path, lines: list[str], said: str) -> None:
    (tmp_path / "a.h").write_text(render(EXACT, "header"))
    (tmp_path / "same.h").write_text(render(EXACT._replace(size={"M": 8, "N": 8, "K": 8}), "header"))
    options = tuple(option.replace("TILE_M=128", "TILE_M=64") for option in EXACT.options)
    (tmp_path / "other.h").write_text(render(EXACT._replace(options=options), "header"))
    (tmp_path / "main.c").write_text("\n".join([*lines, "int main(void) { return TILE_M == 0; }", ""]))
    words = ["gcc", "-std=c89", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only", "main.c"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode == 0) == (said == ""), done.stderr
    assert said in done.stderr


def test_no_note_ends_the_comment_of_a_header() -> None:
    text = render(DEFAULT, "header")
    assert text.count("/*") == text.count("*/")
    nasty = "*\\\n/\n#error pwned\n*??/\n/ /* \x1b[2J"
    best = EXACT._replace(driver=nasty, notes=(nasty,), options=(*EXACT.options, nasty))
    lines = render(best, "header").splitlines()
    comments = [line for line in lines if line.startswith("/* ") and line.endswith(" */") and line.count("*/") == 1]
    assert len(lines) == len(render(EXACT, "header").splitlines())
    assert [line for line in lines if line not in comments] == render(EXACT, "header").splitlines()[len(comments) :]


def test_a_header_refuses_a_define_that_would_not_stay_on_its_line() -> None:
    for value in ("1\n#include </etc/passwd>", "1\\", "1 /*"):
        with pytest.raises(StudyError, match="cannot stand in a #define"):
            render(EXACT._replace(options=(f"-DA={value}",)), "header")


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_stored_acts_on_no_terminal(format: str) -> None:
    nasty = "x\x1b[2J\x9b\x7f\u202e\r\nstudy  forged"
    best = EXACT._replace(driver=nasty, device_name=nasty, device=nasty, notes=(nasty,))
    if format not in ("defines", "shell"):  # a shell gets values as they are
        best = best._replace(options=("-DA=1", nasty), configuration={"A": nasty})
    text = render(best, format)
    assert text.replace("\n", "").isprintable()
    assert "\nstudy  forged" not in text


def test_every_format_for_programs_carries_the_whole_build() -> None:
    assert tuple(json.loads(render(EXACT, "json"))["options"]) == EXACT.options
    assert tuple(tomllib.loads(render(EXACT, "toml"))["options"]) == EXACT.options
    script = render(EXACT, "shell") + 'printf "%s\\n" "$TUNED_TILE_BYTES"; eval "printf \'%s\\n\' $AUTOTUNE_OPTIONS"'
    done = subprocess.run(["sh", "-euc", script], capture_output=True, text=True, check=True)
    assert tuple(done.stdout.splitlines()) == ("512", *EXACT.options)


def test_a_rate_needs_operations() -> None:
    assert "rate" in render(EXACT, "table")
    assert "rate" not in render(EXACT._replace(flops=None), "table")


if __name__ == "__main__":
    for case, best in CASES.items():
        for format in FORMATS:
            (GOLDEN / f"best-{case}.{format}").write_text(render(best, format), encoding="utf-8")
