"""A header of bests: what it chooses, that hostile text stays in its place, host programs that use it."""

from __future__ import annotations

import itertools
import json
import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autotune.cli import app
from autotune.errors import AutotuneError, UsageError
from autotune.identity import Size
from autotune.lookup import artefacts, best, collect, losses
from autotune.lookup.architecture import architecture
from autotune.lookup.artefacts import Catalogue, document, header
from autotune.lookup.losses import Known
from autotune.lookup.records import Records
from autotune.model import DeviceInfo, Outcome, Trial
from autotune.store import Store
from autotune.study import Problem, Scalar, StudyText, find_study, problem_key
from tests import pocl
from tests.artefacts import (
    CHOICES,
    COMPILERS,
    GROUPS,
    H100,
    answers,
    collected,
    compiled,
    launched,
    needs_compilers,
    needs_opencl,
    printed,
    stored,
    swapping,
    text,
)
from tests.devices import device_here
from tests.stored import DEVICE, ok, put
from tests.studies import SOURCE, TOML, at, table

HOST = Path(__file__).parent / "host.c"


SELECT = r"""
#include <stdio.h>
#include <stdlib.h>
#include "saxpy_tuned.h"
int main(int count, char **words) {
    int i;
    for (i = 1; i + 1 < count; i += 2) {
        const long long n = atoll(words[i + 1]);
        const SAXPY_selection s = SAXPY_select(words[i], n);
        char options[SAXPY_LONGEST_OPTIONS];
        if (!s.entry) { printf("%d\n", (int)s.match); continue; }
        SAXPY_BUILD_OPTIONS(s, options, sizeof options, n);
        printf("%d %s %lld %d\n", (int)s.match, options, (long long)SAXPY_GLOBAL_SIZE(s, 0, 0, n),
               (int)SAXPY_ACTIVE(s, 0, n));
    }
    return 0;
}
"""


def chosen(folder: Path, catalogue: Catalogue, *asked: tuple[str, int]) -> list[list[str]]:
    words = [str(word) for pair in asked for word in pair]
    return [line.split(" ") for line in answers(folder, header(catalogue).text, SELECT, *words)]


@needs_compilers
def test_what_is_chosen(tmp_path: Path) -> None:
    """Exact; the nearest size; the same architecture under any of its names; the default; and nothing invalid."""
    study = text(constraints=[{"require": "WPT * WG <= 512"}, {"require": "N % WPT == 0 and N < 10 ** 6"}],
                 defines={"SPAN": "WPT * WG", "COUNT": "ceil_div(N, 4) * 2"})  # fmt: skip
    spaced = DeviceInfo(**{name: getattr(DEVICE, name) for name in DEVICE.__slots__} | {"name": f" {DEVICE.name} "})
    catalogue = collected(
        tmp_path / "a.db", (spaced, 1000, at(8)), (spaced, 64, at(2)), (H100, 1000, at(4)), study=study
    )
    exact, blank, longer, near, odd, alike, renamed, other, none = chosen(
        tmp_path, catalogue, (DEVICE.name, 1000), (f"  \t{DEVICE.name} ", 1000), (f"{DEVICE.name} x", 1000),
        (DEVICE.name, 600), (DEVICE.name, 700 + 2), ("NVIDIA H200 NVL", 64),
        ("gh200 480GB", 60), ("Some GPU", 7), (DEVICE.name, 10**6),
    )  # fmt: skip
    assert exact[0] == "1"
    assert (blank, longer[0]) == (exact, "3"), "some drivers put blanks around a name"
    assert exact[1:6] == ["-DT=float", "-DWPT=8", "-DWG=64", "-DFAST=0", "-DSPAN=512"]
    assert exact[6:] == ["-DCOUNT=500", "128", "1"]
    assert (near[0], near[2], near[6]) == ("2", "-DWPT=8", "-DCOUNT=300")
    assert (odd[0], odd[2]) == ("2", "-DWPT=2"), "8 does not divide 702"
    assert (alike[0], alike[2]) == ("3", "-DWPT=2")
    assert (renamed[0], renamed[2]) == ("3", "-DWPT=2")
    assert (other[0], other[2], other[6]) == ("4", "-DWPT=1", "-DCOUNT=4")
    assert none == ["0"]


@needs_compilers
def test_where_the_default_may_not_run_what_is_nearest_to_it_stands_in(tmp_path: Path) -> None:
    """By what divides a size, if anything does; not by a size at which nothing can be told."""
    by_size = {"require": "WPT == (4 if N % 4 == 0 else 2 if N % 2 == 0 else 8 if N % 3 == 0 else 1)"}
    for more, even in (([], ["4", "-DWPT=2"]), ([{"require": "8 // (N - 998) < 9"}], ["0"])):
        study = text(constraints=[by_size, *more])
        place = stored(tmp_path / f"{even[0]}.db", (DEVICE, 64, at(4)), study=study)
        catalogue = collect(study, CHOICES, database=str(place))
        found = chosen(tmp_path, catalogue, *((name, n) for name in (DEVICE.name, "else") for n in (60, 62, 7)))
        assert [[one[0], *one[2:3]] for one in found] == [
            ["2", "-DWPT=4"], even, ["4", "-DWPT=1"], ["4", "-DWPT=4"], even, ["4", "-DWPT=1"],
        ]  # fmt: skip
        assert json.loads(document(catalogue).text)["default"]["configuration"] == at(4)


def test_models_of_one_name_are_told(tmp_path: Path) -> None:
    small = replace(DEVICE, compute_units=60)
    place = str(stored(tmp_path / "a.db", (DEVICE, 1000, at(8)), (small, 64, at(2)), (H100, 64, at(1))))
    alike = sorted([DEVICE.fingerprint, small.fingerprint])
    told = f"{', '.join(alike)}: all called '{DEVICE.name}': a program may take any one's best; -d chooses"
    assert header(collect(text(), CHOICES, database=place)).notes == (told,)
    assert header(collect(text(), CHOICES, devices=[H100.fingerprint, alike[0]], database=place)).notes == ()
    assert document(collect(text(), CHOICES, database=place)).notes == ()


@needs_compilers
def test_a_program_compiles_whichever_arguments_the_bests_take(tmp_path: Path) -> None:
    launch = {"entry": "saxpy", "global": ["round_up(N, WG)"], "local": ["WG"]}
    parts = launch | {"arguments": ["N", "beta", "parts", "own", "all", "points"], "when": "FAST == 1"}
    study = text(
        launch=[launch | {"arguments": ["N", "alpha", "x", "y"]}, parts],
        arguments={
            "alpha": {"type": "float", "value": "N"}, "beta": {"type": "float", "value": "2.5"},
            "x": {"type": "T", "shape": ["N"], "access": "in"}, "y": {"type": "T", "shape": ["N"], "access": "inout"},
            "parts": {"type": "T", "shape": ["N // WG"], "access": "scratch"}, "own": {"type": "T", "local": "WG"},
            "all": {"type": "float3", "value": ["1", "2", "3"]},
            "points": {"type": "Point", "shape": ["N"], "access": "zeroed"},
        },
        structs={"Point": ["float3 place", "char tag"]},
    )  # fmt: skip
    told = [f"SAXPY_BYTES_{name}" for name in ("x", "parts", "own", "points")]
    told += ["SAXPY_EXTENT_parts", "SAXPY_SCALAR_beta"]
    program = f"""
#include "saxpy_tuned.h"
int main(void) {{
    const SAXPY_selection s = SAXPY_select("{DEVICE.name}", 1024);
    printf("%d %d %d\\n", (int)SAXPY_BYTES_x(s, 1024), (int)SAXPY_BYTES_parts(s, 1024), (int)SAXPY_BYTES_own(s, 1024));
    printf("%d %.1f\\n", (int)SAXPY_EXTENT_parts(s, 0, 1024), (double)SAXPY_SCALAR_beta(s, 1024));
    printf("%d %d\\n", (int)SAXPY_EXTENT_points(s, 0, 1024), (int)SAXPY_BYTES_points(s, 1024));
    return 0;
}}
"""
    for fast, said in ((0, ["4096 0 0", "0 0.0", "0 0"]), (1, ["4096 64 256", "16 2.5", "1024 32768"])):
        catalogue = collected(tmp_path / f"{fast}.db", (DEVICE, 1024, at(1, fast=fast)), study=study)
        written = header(catalogue).text
        assert all(f"#define {name}(" in written for name in told)
        assert "SCALAR_all" not in written
        assert " *   The program fills these with zeros before each run: points.\n" in written
        assert "double SAXPY_scalar_alpha_(" in written, "of type float, whatever its value"
        assert answers(tmp_path, written, program) == said


@needs_compilers
def test_nothing_is_chosen_where_nothing_would_be_launched(tmp_path: Path) -> None:
    """As a search refuses them: sizes below one or beyond int, work-items or elements below one."""
    launch = {"entry": "saxpy", "global": ["N - 64"], "local": ["WG"], "arguments": ["N", "alpha", "x", "y"]}
    inner = text(launch=[launch])
    catalogue = collected(tmp_path / "a.db", (DEVICE, 1024, at(1)), study=inner)
    asked = [(DEVICE.name, n) for n in (128, 64, 2**31, 2**31 - 64, 0, -64)]
    assert [found[0] for found in chosen(tmp_path, catalogue, *asked)] == ["2", "0", "0", "2", "0", "0"]
    when = text(launch=[launch | {"when": "N > 64"}, launch | {"global": ["round_up(N, WG)"]}])
    found = chosen(tmp_path, collected(tmp_path / "b.db", (DEVICE, 1024, at(1)), study=when), *asked)
    assert [one[0] for one in found] == ["2", "2", "0", "2", "0", "0"]


@pytest.mark.slow
@needs_compilers
def test_at_a_size_never_tuned_a_header_chooses_as_best_does(tmp_path: Path) -> None:
    """By the expected loss among the nearest sizes, with ties, whatever is known of the configurations at each size."""
    chance = random.Random(3)
    for turn in range(6):
        folder = tmp_path / str(turn)
        folder.mkdir()
        sizes = chance.sample([2**power for power in range(4, 20)] + [1000, 3000, 5000], (1, 2, 3, 8, 12, 15)[turn])
        with Store.open(str(folder / "a.db")) as store:
            for n in sizes:
                trials = [ok(at(wpt, wg), chance.randrange(100, 400)) for wpt in (1, 2, 4) for wg in (32, 64, 128)]
                key = problem_key(text(), {"N": n}, CHOICES, DEVICE.fingerprint)
                put(store, chance.sample(trials, chance.randrange(1, 9)), key=key, device=DEVICE)
        asked = [n for n in (1, 3, 20, 90, 724, 1001, 2048, 6000, 70_000, 10**6, 2**31 - 1) if n not in sizes]
        found = chosen(
            folder, collect(text(), CHOICES, database=str(folder / "a.db")), *((DEVICE.name, n) for n in asked)
        )
        for n, told in zip(asked, found, strict=True):
            meant = best(text(), {"N": n}, CHOICES, DEVICE.fingerprint, database=str(folder / "a.db"), device=DEVICE)
            assert (told[0], told[1:6]) == ("2", list(meant.options)), (turn, n)


GRID = r"""
#include <stdlib.h>
#include "saxpy_tuned.h"
int main(int count, char **words) {
    int i;
    for (i = 1; i + 2 < count; i += 3) {
        const long long m = atoll(words[i]), k = atoll(words[i + 1]), n = atoll(words[i + 2]);
        const SAXPY_selection s = SAXPY_select("NVIDIA H200", m, k, n);
        printf("%d %s\n", (int)s.match, s.entry->options);
    }
    return 0;
}
"""


@pytest.mark.slow
@needs_compilers
def test_among_sizes_of_several_dimensions_a_header_chooses_as_best_does(tmp_path: Path) -> None:
    """Many sizes equally near, many equal losses, sizes not in alphabetical order, some without a best."""
    study, chance = text(sizes={"M": 64, "K": 64, "N": 64}), random.Random(5)
    for turn in range(8):
        folder, sizes = tmp_path / str(turn), dict[tuple[int, ...], None]()
        folder.mkdir()
        with Store.open(str(folder / "a.db")) as store:
            for _ in range(chance.randrange(5, 16)):
                sizes.setdefault(tuple(chance.choice([16, 32, 48, 64, 96, 128]) for _ in "MKN"))
            for size in sizes:
                key = problem_key(study, dict(zip("MKN", size, strict=True)), CHOICES, DEVICE.fingerprint)
                took = [ok(at(w, g), chance.choice([100, 100, 150, 200])) for w in (1, 2, 4) for g in (32, 64, 128)]
                few = chance.sample(took, chance.randrange(1, 9))
                put(store, few if chance.random() < 0.7 else [Trial(at(1), Outcome.CRASH)], key=key, device=DEVICE)
        catalogue = collect(study, CHOICES, database=str(folder / "a.db"))
        asked = [
            one for _ in range(40) if (one := tuple(chance.choice([8, 24, 32, 96, 100]) for _ in "MKN")) not in sizes
        ]
        words = [str(extent) for one in asked for extent in one]
        found = answers(folder, header(catalogue).text, GRID, *words)
        for one, told in zip(asked, found, strict=True):
            meant = best(study, dict(zip("MKN", one, strict=True)), CHOICES, DEVICE.fingerprint,
                         database=str(folder / "a.db"), device=DEVICE)  # fmt: skip
            assert told.split() == ["2", *meant.options], (turn, one)


@needs_compilers
def test_what_a_database_cannot_mean_stays_out(tmp_path: Path) -> None:
    """An infinite time; a size that has no best any more when its losses are read."""
    place = stored(tmp_path / "a.db", (DEVICE, 64, at(1)), (DEVICE, 128, at(2)), (DEVICE, 256, at(4)))
    with Store.open(str(place)) as store:
        put(store, [ok(at(2), 70)], key=problem_key(text(), {"N": 64}, CHOICES, DEVICE.fingerprint), device=DEVICE)
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute("UPDATE standings SET time_ns = 9e999 WHERE time_ns = 70")
    assert chosen(tmp_path, collect(text(), CHOICES, database=str(place)), (DEVICE.name, 64))[0][0] == "1"


def test_a_size_found_wrong_meanwhile_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = stored(tmp_path / "a.db", (DEVICE, 64, at(1)), (DEVICE, 128, at(2)))

    def known_sizes(records: Records, numbers: Sequence[tuple[int, Size]], driver: str) -> list[Known]:
        return losses.known_sizes(records, numbers[1:], driver)

    monkeypatch.setattr("autotune.lookup.artefacts.catalogue.known_sizes", known_sizes)
    found = collect(text(), CHOICES, database=str(place))
    assert [(entry.problem.size["N"], entry.lost) for entry in found.entries] == [(128, (0,))]
    assert found.without == 1


LIMITS = r"""
#include <stdio.h>
#include <stdlib.h>
#include "saxpy_tuned.h"
int main(int count, char **words) {
    int i;
    for (i = 1; i + 2 < count; i += 3) {
        const long long m = atoll(words[i]), n = atoll(words[i + 1]), k = atoll(words[i + 2]);
        const SAXPY_selection s = SAXPY_select("NVIDIA H200", m, n, k);
        char options[SAXPY_LONGEST_OPTIONS];
        int active; /* what does not take place has no geometry */
        if (!s.entry) { puts("refused"); continue; }
        active = SAXPY_ACTIVE(s, 1, m, n, k);
        SAXPY_BUILD_OPTIONS(s, options, sizeof options, m, n, k);
        printf("%d %zu %zu %zu %zu %lld %s\n", active, SAXPY_GLOBAL_SIZE(s, 0, 0, m, n, k),
               active ? SAXPY_GLOBAL_SIZE(s, 1, 0, m, n, k) : 0, active ? SAXPY_OFFSET(s, 1, 0, m, n, k) : 0,
               SAXPY_BYTES_x(s, m, n, k), (long long)SAXPY_SCALAR_area(s, m, n, k), options);
    }
    return 0;
}
"""


@needs_compilers
def test_sizes_whose_products_leave_62_bits_are_refused_as_best_refuses_them(tmp_path: Path) -> None:
    """Nothing overflows, and everything that is served has the geometry that a search would launch."""
    first = {"entry": "saxpy", "global": ["round_up(M * N, WG)"], "local": ["WG"],
             "arguments": ["part", "area", "x", "y"]}  # fmt: skip
    second = {"entry": "saxpy", "global": ["M * N * K"], "offset": ["M * N * K - 7"], "arguments": first["arguments"],
              "when": "K % 5 > 0 and M ** 4 > 0"}  # fmt: skip
    study = text(
        sizes={"M": 64, "N": 64, "K": 64}, launch=[first, second], defines={"VOLUME": "M * K // (N - 1) * K"},
        constraints=[{"require": "K < 7 or M * M * K > 1"}], work={"flops": "N ** 3 * M + K - 8", "bytes": "M / 2"},
        arguments={
            "area": {"type": "int", "value": "M * N"}, "y": {"type": "float", "shape": ["M"], "access": "out"},
            "part": {"type": "half", "value": "K % 70000"},
            "x": {"type": "float", "shape": ["M", "K"], "allocate": ["M", "K // 2 + N"], "access": "in"},
        },
    )  # fmt: skip
    device = replace(DEVICE, extensions=("cl_khr_fp16",))
    key = problem_key(study, {"M": 64, "N": 64, "K": 64}, CHOICES, DEVICE.fingerprint)
    with Store.open(str(tmp_path / "a.db")) as store:
        put(store, [ok(at(2), 50, 51)], key=key, device=device)
    catalogue = collect(study, CHOICES, database=str(tmp_path / "a.db"))
    written = header(catalogue)
    assert written.notes == ()
    most = [1, 2, 6, 8, 46340, 46341, 2**20, 2**30, 2**31 - 1]  # half holds no 2**20 % 70000
    asked, expected = list(itertools.product(most, most, most)), []
    for m, n, k in asked:
        try:
            problem = Problem(study.study, {"M": m, "N": n, "K": k}, CHOICES, device)
            plan = problem.plan(at(2))
            problem.flops(at(2))
        except AutotuneError:
            expected.append("refused")
            continue
        launched = [(one.global_size[0], (one.offset or (0,))[0]) for one in plan.launches]
        (rows, _), (volume, last) = launched if len(launched) > 1 else (*launched, (0, 0))
        area = plan.arguments["area"]
        assert isinstance(area, Scalar)
        whole_ = (len(launched) - 1, rows, volume, last, plan.arguments["x"].nbytes, area.value, *plan.options)
        expected.append(" ".join(map(str, whole_)))
    words = [str(part) for one in asked for part in one]
    assert answers(tmp_path, written.text, LIMITS, *words, language="sanitized") == expected
    assert 50 < expected.count("refused") < len(expected) - 50


NARROW = r"""
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#define size_t uint32_t
#include "saxpy_tuned.h"
int main(void) {
    const long long asked[] = { 1000, (1LL << 30) - 1, 1LL << 30 };
    int i;
    for (i = 0; i < 3; ++i) printf("%d\n", SAXPY_select("NVIDIA H200", asked[i]).entry != 0);
    return 0;
}
"""


@needs_compilers
@pytest.mark.parametrize(
    ("launched", "shaped", "served"),
    [
        ({}, {}, "110"),
        ({}, {"shape": ["N", "8"]}, "100"),
        ({}, {"allocate": ["2 ** 30"]}, "000"),
        ({"repeat": "2"}, {}, "100"),  # its own size alone
        ({"repeat": "2"}, {"allocate": ["2 ** 30"]}, "000"),
        ({"offset": ["N * 8"]}, {}, "100"),
        ({"offset": ["2 ** 32"]}, {}, "000"),
        ({"global": ["round_up(N, WG) * 8"]}, {}, "100"),
    ],
)
def test_what_32_bits_of_size_t_cannot_hold_is_not_served(
    tmp_path: Path, launched: dict[str, object], shaped: dict[str, object], served: str
) -> None:
    usual = table()
    usual["launch"][0] |= launched
    usual["arguments"]["x"] |= shaped
    study = text(launch=usual["launch"], arguments=usual["arguments"])
    catalogue = collected(tmp_path / "a.db", (DEVICE, 1000, at(2)), study=study)
    assert "".join(answers(tmp_path, header(catalogue).text, NARROW)) == served


@needs_compilers
def test_what_c_cannot_say_serves_its_own_size_alone(tmp_path: Path) -> None:
    launch = [{**table()["launch"][0], "arguments": ["N", "alpha", "x", "y", "on"]}]
    arguments = {**table()["arguments"], "on": {"type": "int", "value": "N > 5"}}
    study = text(defines={"SPAN": "log2(N) * WPT", "HALF": "N / 2"}, arguments=arguments, launch=launch)
    catalogue = collected(tmp_path / "a.db", (DEVICE, 1000, at(2)), study=study)
    exact, other = chosen(tmp_path, catalogue, (DEVICE.name, 1000), (DEVICE.name, 1001))
    assert exact[0] == "1"
    assert "-DHALF=500.0" in exact
    assert other == ["0"]
    written = header(catalogue)
    assert written.notes == ("1 of 1 best and the default: each for its own size alone, since C cannot say `log2`",)
    assert f" *   {written.notes[0]}.\n" in written.text
    assert header(collected(tmp_path / "b.db", (DEVICE, 1000, at(2)))).notes == ()


def test_a_loop_is_said_to_serve_its_own_size_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("saxpy.toml").write_text(TOML.replace("[[launch]]\n", '[[launch]]\nrepeat = "ceil_div(N, 500)"\n'))
    Path("saxpy.cl").write_text(SOURCE)
    stored(Path("a.db"), (DEVICE, 1000, at(1)), study=find_study("./saxpy.toml"))
    words = ["export", "x.h", "--format", "header", "--study", "./saxpy.toml", "--db", "a.db"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    said = "1 of 1 best and the default: each for its own size alone, since C cannot say a loop of launches"
    assert said in done.stderr
    assert said in Path("x.h").read_text()
    assert "alone" not in CliRunner().invoke(app, [words[0], "x.json", words[2], "table", *words[4:]]).stderr


@needs_compilers
def test_options_that_a_size_enters_are_computed(tmp_path: Path) -> None:
    """In any flag, with other text in it, and if a size decides whether one is given."""
    options = [
        {"flag": "-DLEN={N}", "when": "FAST == 0"}, {"flag": "-DNOT={N}", "when": "FAST == 1"},
        {"flag": "-DMOD=({N}%{WG}+{N})"}, {"flag": "-cl-two words={N}"},
        {"flag": "-DLARGE", "when": "N > 500"}, {"flag": "-DLARGE", "when": "WPT == 2"}, {"flag": "-DEND={WPT}"},
    ]  # fmt: skip
    study = text(options=options)
    catalogue = collected(tmp_path / "a.db", (DEVICE, 1000, at(1)), study=study)
    assert header(catalogue).notes == ()
    for n, more in ((1000, ["-DLARGE"]), (70, [])):
        ((match, *found),) = chosen(tmp_path, catalogue, (DEVICE.name, n))
        assert match == ("1" if n == 1000 else "2")
        assert found[4:-2] == [
            "-DSPAN=64", "-DEND=1", f"-DLEN={n}", f"-DMOD=({n}%64+{n})", '"-cl-two', f'words={n}"', *more,
        ]  # fmt: skip
    both = text(options=[{"flag": "-DLEN={N}", "when": "N > 500"}])
    catalogue = collected(tmp_path / "c.db", (DEVICE, 1000, at(1)), study=both)
    (note,) = header(catalogue).notes
    assert note.endswith("C cannot say an option that names a size, given at some sizes")


@needs_compilers
@pytest.mark.parametrize("language", COMPILERS)
def test_hostile_text_stays_in_its_place(tmp_path: Path, language: str) -> None:
    evil = 'x"; int evil; /* */ // ??/\n#include "/etc/passwd"\n%n \\ \u202e\u00e9'
    catalogue = collected(tmp_path / "a.db", (replace(DEVICE, name=evil), 1000, at(2)))
    program = '#include "saxpy_tuned.h"\nint main(void) { fputs(SAXPY_entries[0].device_name, stdout); return 0; }\n'
    assert "\n".join(answers(tmp_path, header(catalogue, embed=True).text, program, language=language)) == evil


@needs_compilers
@needs_opencl
@pytest.mark.parametrize("language", COMPILERS)
def test_headers_of_several_choices_and_of_a_study_named_cl_go_together(tmp_path: Path, language: str) -> None:
    for name, choice in (("saxpy", "float"), ("saxpy", "double"), ("cl", "float")):
        study = StudyText(name, Path("saxpy.toml"), table(name=name), Path("saxpy.cl"), SOURCE)
        with Store.open(str(tmp_path / "a.db")) as store:
            key = problem_key(study, {"N": 1000}, {"T": choice}, DEVICE.fingerprint)
            put(store, [ok(at(2), 50, 51)], key=key, device=DEVICE)
        catalogue = collect(study, {"T": choice}, database=str(tmp_path / "a.db"))
        (tmp_path / f"{name}_{choice}.h").write_text(header(catalogue, embed=True).text)
        (tmp_path / f"{name}_{choice}_own.h").write_text(header(catalogue, prefix=f"my_{name}_{choice}").text)
    asked = f'("{DEVICE.name}", 1000).entry->options'
    program = "#define CL_TARGET_OPENCL_VERSION 120\n#include <CL/cl.h>\n" + "".join(
        f'#include "{path.name}"\n' for path in sorted(tmp_path.glob("*.h"))
    ) + "int main(void) {\n" + "".join(
        f"    puts({prefix}_select{asked});\n"
        for prefix in ("SAXPY", "SAXPY_T_DOUBLE", "STUDY_CL", "my_saxpy_float", "my_saxpy_double")
    ) + "    return 0;\n}\n"  # fmt: skip
    said = printed(compiled(tmp_path, program, language))
    assert [line.split()[0] for line in said] == [f"-DT={choice}" for choice in ("float", "double", "float") * 2][:5]


@needs_compilers
@pytest.mark.parametrize("language", COMPILERS)
def test_of_two_headers_with_the_same_names_the_second_is_refused(tmp_path: Path, language: str) -> None:
    path = stored(tmp_path / "a.db", (DEVICE, 4096, at(4)), (DEVICE, 100, at(1)))
    for size in (4096, 100):
        (tmp_path / f"at{size}.h").write_text(
            header(collect(text(), CHOICES, sizes=[{"N": size}], database=str(path))).text
        )
    main = 'int main(void) { return SAXPY_select("x", 4096).entry == 0; }\n'
    compiled(tmp_path, '#include "at4096.h"\n#include "at4096.h"\n' + main, language)
    with pytest.raises(AssertionError, match="another header with the names of SAXPY came before: --prefix NAME"):
        compiled(tmp_path, '#include "at4096.h"\n#include "at100.h"\n' + main, language)


def test_a_prefix_that_is_no_name_is_one_line(tmp_path: Path) -> None:
    catalogue = collected(tmp_path / "a.db", (DEVICE, 1000, at(1)))
    for prefix, said in (("", "no name in C"), ("2D", "no name in C"), ("a b", "no name in C"), ("CL_X", "of OpenCL")):
        with pytest.raises(UsageError, match=said):
            header(catalogue, prefix=prefix)


@pytest.mark.slow
@needs_compilers
@pytest.mark.parametrize("groups", GROUPS, ids="-".join)
def test_a_header_goes_by_the_names_with_which_buffers_begin(tmp_path: Path, groups: list[str]) -> None:
    every = "".join(groups)
    for turns in (5, 6):
        study = swapping(turns, groups)
        catalogue = collected(tmp_path / f"{turns}.db", (DEVICE, 1024, at(2)), study=study)
        told = "".join(f"    puts(SAXPY_ENDS_{name}(s));\n" for name in every)
        program = f"""
#include "saxpy_tuned.h"
int main(void) {{
    const SAXPY_selection s = SAXPY_select("{DEVICE.name}", 1024);
    unsigned launch, argument;
    for (launch = 0; launch < SAXPY_LAUNCHES(s); ++launch)
        for (argument = 0; argument < {len(every)}; ++argument) puts(SAXPY_ARGUMENT(s, launch, argument));
{told}    return 0;
}}
"""
        passed, points = launched(turns, groups)
        assert answers(tmp_path, header(catalogue).text, program) == [*itertools.chain(*passed), *points.values()]


@needs_compilers
def test_a_best_that_no_header_can_say_is_left_out_and_counted(tmp_path: Path) -> None:
    study = swapping("N", ["ab"], b="in")
    sizes = (200, 300, 220, 400, 240)
    catalogue = collected(tmp_path / "a.db", *((DEVICE, n, at(1)) for n in sizes), study=study)
    written = header(catalogue)
    assert (written.bests, document(catalogue).bests) == (3, 5)
    why = "saxpy: runs more than 256 launches, which no header can say; --format table says it"
    assert written.notes[1:] == (f"left out: 2 of a device and size: {why}", f"left out: the study's default: {why}")
    program = f"""
#include "saxpy_tuned.h"
int main(void) {{
    const long long sizes[] = {{ {", ".join(map(str, sizes))} }};
    int i;
    for (i = 0; i < {len(sizes)}; ++i) printf("%d\\n", (int)SAXPY_select("{DEVICE.name}", sizes[i]).match);
    return 0;
}}
"""
    assert answers(tmp_path, written.text, program) == ["1", "0", "1", "0", "1"]


@pytest.mark.slow
@needs_compilers
@needs_opencl
@pytest.mark.parametrize("language", COMPILERS)
def test_a_host_program_runs_the_tuned_kernel(tmp_path: Path, language: str) -> None:
    here = device_here()
    (tmp_path / "saxpy.cl").write_text(SOURCE)
    toml = tmp_path / "saxpy.toml"
    toml.write_text(TOML)
    study = find_study(str(toml))
    place = stored(tmp_path / "a.db", (here, 1000, at(4)), (here, 64, at(2, fast=1)), study=study)
    words = ["export", str(tmp_path / "saxpy_tuned.h"), "--format", "header", "--study", str(toml), "--embed"]
    done = CliRunner().invoke(app, [*words, "--db", str(place)])
    assert done.exit_code == 0, done.output
    host = compiled(tmp_path, HOST.read_text(), language, ["-lOpenCL"])
    drivers = pocl.environment(tmp_path / "drivers")
    for asked, match, wpt in ((1000, "exact", 4), (901, "nearest size", 4), (10, "nearest size", 2)):
        said = printed(host, str(asked), **drivers)
        assert (said[0], said[-1]) == (match, "right"), said
        assert f"-DWPT={wpt} " in said[1]
    assert printed(host, "77", "an unknown device", **drivers)[0] == "default"
    alike = architecture(here.fingerprint)
    assert artefacts.collect(study, CHOICES, database=str(place)).entries[0].architecture == alike
