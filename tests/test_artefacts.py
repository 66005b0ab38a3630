"""A header and a table of bests: what they choose, hostile text in its place, host programs that use them."""

from __future__ import annotations

import itertools
import json
import os
import random
import shutil
import sqlite3
import subprocess
import tracemalloc
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from autotune import devices
from autotune.cli import app
from autotune.errors import AutotuneError, ExpressionError, StudyError, UsageError
from autotune.expression import Expression, put_in
from autotune.identity import Size
from autotune.lookup import artefacts, best, collect, losses
from autotune.lookup.architecture import architecture
from autotune.lookup.artefacts import Catalogue, document, header
from autotune.lookup.artefacts.ctext import NoCError, arithmetic, lines, prefix_of, string, whole
from autotune.lookup.losses import Known
from autotune.lookup.records import Records
from autotune.model import DeviceInfo, Outcome, Trial, Value
from autotune.store import Store
from autotune.study import Problem, Scalar, StudyText, find_study, problem_key
from tests import pocl
from tests.stored import DEVICE, ok, put
from tests.studies import SOURCE, table

HOST = Path(__file__).parent / "host.c"
CHOICES = {"T": "float"}
STRICT = ["-Wall", "-Wextra", "-Werror", "-Wconversion", "-pedantic", "-Wno-overlength-strings"]
COMPILERS = {"c": ["gcc", "-std=c99", *STRICT], "c++": ["g++", "-std=c++11", "-x", "c++", *STRICT]}
SANITIZED = ["gcc", "-std=c99", *STRICT, "-fsanitize=undefined,signed-integer-overflow", "-fno-sanitize-recover=all"]

needs_compilers = pytest.mark.skipif(
    not (shutil.which("gcc") and shutil.which("g++")), reason="no gcc, g++: apt-get install g++"
)
needs_opencl = pytest.mark.skipif(
    not Path("/usr/include/CL/cl.h").exists(), reason="no CL/cl.h: apt-get install ocl-icd-opencl-dev"
)


def text(**changes: object) -> StudyText:
    return StudyText("saxpy", Path("saxpy.toml"), table(**changes), Path("saxpy.cl"), SOURCE)


def at(wpt: int, wg: int = 64, fast: int = 0) -> dict[str, Value]:
    return {"WPT": wpt, "WG": wg, "FAST": fast}


H100 = replace(DEVICE, name="NVIDIA H100 PCIe", compute_units=114, memory=80 * 2**30)


def stored(path: Path, *entries: tuple[DeviceInfo, int, dict[str, Value]], study: StudyText | None = None) -> Path:
    """A database with one trial of each device, size and configuration."""
    with Store.open(str(path)) as store:
        for device, n, configuration in entries:
            put(store, [ok(configuration, 50, 51)],
                key=problem_key(study or text(), {"N": n}, CHOICES, device.fingerprint), device=device)  # fmt: skip
    return path


def compiled(folder: Path, program: str, language: str = "c", libraries: Sequence[str] = ()) -> Path:
    (folder / "host.c").write_text(program)
    words = [*(COMPILERS | {"sanitized": SANITIZED})[language], "-I", str(folder), "host.c", "-o", "host", *libraries]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "host"


def printed(program: Path, *words: str, **variables: str) -> list[str]:
    done = subprocess.run([program, *words], capture_output=True, text=True, env=os.environ | variables)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


# What is collected ----------------------------------------------------------------------------------------


def test_all_devices_and_sizes_or_those_chosen(tmp_path: Path) -> None:
    place = str(stored(tmp_path / "a.db", (DEVICE, 1000, at(1)), (DEVICE, 64, at(2)), (H100, 1000, at(4))))
    found = collect(text(), CHOICES, database=place)
    assert [(entry.device, entry.problem.size["N"]) for entry in found.entries] == [
        (H100.fingerprint, 1000), (DEVICE.fingerprint, 64), (DEVICE.fingerprint, 1000),
    ]  # fmt: skip
    assert len(found.defaults) == 1
    assert len(collect(text(), CHOICES, devices=[DEVICE.fingerprint], database=place).entries) == 2
    assert len(collect(text(), CHOICES, sizes=[{"N": 1000}], database=place).entries) == 2
    for asked, said in (
        ({"sizes": [{"N": 5}], "devices": [DEVICE.fingerprint]}, f" at N=5 on {DEVICE.fingerprint};"),
        ({"devices": ["x-1cu"]}, " on x-1cu;"),
        ({"sizes": [{"N": 5}]}, " at N=5;"),
        ({"sizes": [{"N": 1000}, {"N": 5}]}, " at N=5;"),
    ):
        with pytest.raises(UsageError, match=f"nothing is stored of saxpy{said}"):
            collect(text(), CHOICES, database=place, **asked)
    changed = text(tolerance={"relative": 0.5})
    with pytest.raises(UsageError, match="nothing is stored of saxpy as it is now, but of another text of it"):
        collect(changed, CHOICES, database=place)
    stored(Path(place), (DEVICE, 1000, at(1)), study=changed)
    found = collect(changed, CHOICES, database=place)
    assert (len(found.entries), found.changed) == (1, 2)
    assert collect(text(), CHOICES, database=place).changed == 0


# The table ------------------------------------------------------------------------------------------------


def test_the_table_is_what_its_schema_says(tmp_path: Path) -> None:
    schema = json.loads((Path(artefacts.__file__).parent / "schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    place = str(stored(tmp_path / "a.db", (DEVICE, 1000, at(2)), (H100, 64, at(1, fast=1))))
    for embed in (False, True):
        found = json.loads(document(collect(text(), CHOICES, database=place), embed=embed).text)
        jsonschema.validate(found, schema)
        assert (found["source"] is not None) is embed
    entry = next(entry for entry in found["entries"] if entry["device"] == DEVICE.fingerprint)
    assert (entry["size"], entry["configuration"]) == ({"N": 1000}, at(2))
    assert entry["launches"] == [
        {
            "kernel": "saxpy",
            "global": [512],
            "local": [64],
            "offset": None,
            "arguments": ["N", "alpha", "x", "y"],
            "counted": {},
        }
    ]
    assert entry["arguments"]["x"] == {
        "kind": "buffer", "type": "float", "access": "in", "extents": [1000], "bytes": 4000,
    }  # fmt: skip
    spoilt = {**found, "entries": [{**entry, "launches": []}], "more": 1}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spoilt, schema)


# The header -----------------------------------------------------------------------------------------------

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
    (folder / "saxpy_tuned.h").write_text(header(catalogue).text)
    words = [str(word) for pair in asked for word in pair]
    return [line.split(" ") for line in printed(compiled(folder, SELECT), *words)]


@needs_compilers
def test_what_is_chosen(tmp_path: Path) -> None:
    """Exact; the nearest size; the same architecture, however it is named; the default; and nothing invalid."""
    study = text(constraints=[{"require": "WPT * WG <= 512"}, {"require": "N % WPT == 0 and N < 10 ** 6"}],
                 defines={"SPAN": "WPT * WG", "COUNT": "ceil_div(N, 4) * 2"})  # fmt: skip
    spaced = DeviceInfo(**{name: getattr(DEVICE, name) for name in DEVICE.__slots__} | {"name": f" {DEVICE.name} "})
    place = stored(tmp_path / "a.db", (spaced, 1000, at(8)), (spaced, 64, at(2)), (H100, 1000, at(4)), study=study)
    catalogue = collect(study, CHOICES, database=str(place))
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
    """By what divides a size; not by a size at which nothing can be told."""
    by_size = {"require": "WPT == (4 if N % 4 == 0 else 2 if N % 2 == 0 else 1)"}
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
    parts = launch | {"arguments": ["N", "beta", "parts", "own", "all"], "when": "FAST == 1"}
    study = text(
        launch=[launch | {"arguments": ["N", "alpha", "x", "y"]}, parts],
        arguments={
            "alpha": {"type": "float", "value": "N"}, "beta": {"type": "float", "value": "2.5"},
            "x": {"type": "T", "shape": ["N"], "access": "in"}, "y": {"type": "T", "shape": ["N"], "access": "inout"},
            "parts": {"type": "T", "shape": ["N // WG"], "access": "scratch"}, "own": {"type": "T", "local": "WG"},
            "all": {"type": "float3", "value": ["1", "2", "3"]},
        },
    )  # fmt: skip
    told = [f"SAXPY_BYTES_{name}" for name in ("x", "parts", "own")] + ["SAXPY_EXTENT_parts", "SAXPY_SCALAR_beta"]
    program = f"""
#include "saxpy_tuned.h"
int main(void) {{
    const SAXPY_selection s = SAXPY_select("{DEVICE.name}", 1024);
    printf("%d %d %d\\n", (int)SAXPY_BYTES_x(s, 1024), (int)SAXPY_BYTES_parts(s, 1024), (int)SAXPY_BYTES_own(s, 1024));
    printf("%d %.1f\\n", (int)SAXPY_EXTENT_parts(s, 0, 1024), (double)SAXPY_SCALAR_beta(s, 1024));
    return 0;
}}
"""
    for fast, said in ((0, ["4096 0 0", "0 0.0"]), (1, ["4096 64 256", "16 2.5"])):
        place = stored(tmp_path / f"{fast}.db", (DEVICE, 1024, at(1, fast=fast)), study=study)
        written = header(collect(study, CHOICES, database=str(place))).text
        assert all(f"#define {name}(" in written for name in told)
        assert "SCALAR_all" not in written
        assert "double SAXPY_scalar_alpha_(" in written, "of type float, whatever its value"
        (tmp_path / "saxpy_tuned.h").write_text(written)
        assert printed(compiled(tmp_path, program)) == said


@needs_compilers
def test_nothing_is_chosen_where_nothing_would_be_launched(tmp_path: Path) -> None:
    """As a search refuses it: sizes below one or beyond int, work-items or elements below one."""
    launch = {"entry": "saxpy", "global": ["N - 64"], "local": ["WG"], "arguments": ["N", "alpha", "x", "y"]}
    inner = text(launch=[launch])
    place = stored(tmp_path / "a.db", (DEVICE, 1024, at(1)), study=inner)
    catalogue = collect(inner, CHOICES, database=str(place))
    asked = [(DEVICE.name, n) for n in (128, 64, 2**31, 2**31 - 64, 0, -64)]
    assert [found[0] for found in chosen(tmp_path, catalogue, *asked)] == ["2", "0", "0", "2", "0", "0"]
    when = text(launch=[launch | {"when": "N > 64"}, launch | {"global": ["round_up(N, WG)"]}])
    place = stored(tmp_path / "b.db", (DEVICE, 1024, at(1)), study=when)
    found = chosen(tmp_path, collect(when, CHOICES, database=str(place)), *asked)
    assert [one[0] for one in found] == ["2", "2", "0", "2", "0", "0"]


@pytest.mark.slow
@needs_compilers
def test_at_a_size_never_tuned_a_header_chooses_as_best_does(tmp_path: Path) -> None:
    """By the loss to expect among the nearest, ties and all, whatever is known of which configuration where."""
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
    """Many as near, many that lose as much, sizes in another order than the alphabet's, some without a best."""
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
        (folder / "saxpy_tuned.h").write_text(header(catalogue).text)
        asked = [
            one for _ in range(40) if (one := tuple(chance.choice([8, 24, 32, 96, 100]) for _ in "MKN")) not in sizes
        ]
        found = printed(compiled(folder, GRID), *(str(extent) for one in asked for extent in one))
        for one, told in zip(asked, found, strict=True):
            meant = best(study, dict(zip("MKN", one, strict=True)), CHOICES, DEVICE.fingerprint,
                         database=str(folder / "a.db"), device=DEVICE)  # fmt: skip
            assert told.split() == ["2", *meant.options], (turn, one)


@needs_compilers
def test_what_a_database_cannot_mean_stays_out(tmp_path: Path) -> None:
    """A time without end; a size that has no best any more once its losses are looked at."""
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
    """Nothing overflows, and whatever is served has the geometry that a search would launch."""
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
    (tmp_path / "saxpy_tuned.h").write_text(written.text)
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
    found = printed(compiled(tmp_path, LIMITS, "sanitized"), *(str(part) for one in asked for part in one))
    assert found == expected
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
    place = stored(tmp_path / "a.db", (DEVICE, 1000, at(2)), study=study)
    (tmp_path / "saxpy_tuned.h").write_text(header(collect(study, CHOICES, database=str(place))).text)
    assert "".join(printed(compiled(tmp_path, NARROW))) == served


@needs_compilers
def test_what_c_cannot_say_serves_its_own_size_alone(tmp_path: Path) -> None:
    study = text(defines={"SPAN": "log2(N) * WPT", "HALF": "N / 2"})
    place = stored(tmp_path / "a.db", (DEVICE, 1000, at(2)), study=study)
    catalogue = collect(study, CHOICES, database=str(place))
    exact, other = chosen(tmp_path, catalogue, (DEVICE.name, 1000), (DEVICE.name, 1001))
    assert exact[0] == "1"
    assert "-DHALF=500.0" in exact
    assert other == ["0"]
    written = header(catalogue)
    assert written.notes == ("1 of 1 best and the default: each for its own size alone, since C cannot say `log2`",)
    assert f" *   {written.notes[0]}.\n" in written.text
    assert header(collect(text(), CHOICES, database=str(stored(tmp_path / "b.db", (DEVICE, 1000, at(2)))))).notes == ()


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
    """In any flag, with what else stands in it, and where a size decides on one."""
    options = [
        {"flag": "-DLEN={N}", "when": "FAST == 0"}, {"flag": "-DNOT={N}", "when": "FAST == 1"},
        {"flag": "-DMOD=({N}%{WG}+{N})"}, {"flag": "-cl-two words={N}"},
        {"flag": "-DLARGE", "when": "N > 500"}, {"flag": "-DLARGE", "when": "WPT == 2"}, {"flag": "-DEND={WPT}"},
    ]  # fmt: skip
    study = text(options=options)
    place = stored(tmp_path / "a.db", (DEVICE, 1000, at(1)), study=study)
    catalogue = collect(study, CHOICES, database=str(place))
    assert header(catalogue).notes == ()
    for n, more in ((1000, ["-DLARGE"]), (70, [])):
        ((match, *found),) = chosen(tmp_path, catalogue, (DEVICE.name, n))
        assert match == ("1" if n == 1000 else "2")
        assert found[4:-2] == [
            "-DSPAN=64", "-DEND=1", f"-DLEN={n}", f"-DMOD=({n}%64+{n})", '"-cl-two', f'words={n}"', *more,
        ]  # fmt: skip
    both = text(options=[{"flag": "-DLEN={N}", "when": "N > 500"}])
    place = stored(tmp_path / "c.db", (DEVICE, 1000, at(1)), study=both)
    (note,) = header(collect(both, CHOICES, database=str(place))).notes
    assert note.endswith("C cannot say an option that names a size, given at some sizes")


@needs_compilers
@pytest.mark.parametrize("language", COMPILERS)
def test_hostile_text_stays_in_its_place(tmp_path: Path, language: str) -> None:
    evil = 'x"; int evil; /* */ // ??/\n#include "/etc/passwd"\n%n \\ \u202e\u00e9'
    place = stored(tmp_path / "a.db", (replace(DEVICE, name=evil), 1000, at(2)))
    catalogue = collect(text(), CHOICES, database=str(place))
    (tmp_path / "saxpy_tuned.h").write_text(header(catalogue, embed=True).text)
    program = '#include "saxpy_tuned.h"\nint main(void) { fputs(SAXPY_entries[0].device_name, stdout); return 0; }\n'
    assert "\n".join(printed(compiled(tmp_path, program, language))) == evil


def test_a_prefix_is_a_name_that_opencl_leaves_free() -> None:
    assert [prefix_of(name, {}) for name in ("sgemm", "a.b-c", "2d", "_x")] == ["SGEMM", "A_B_C", "STUDY_2D", "X"]
    assert [prefix_of(name, {}) for name in ("cl", "cl-build", "clblast")] == ["STUDY_CL", "STUDY_CL_BUILD", "CLBLAST"]
    assert prefix_of("saxpy", {"T": "double", "S": 0.5}) == "SAXPY_T_DOUBLE_S_0_5"


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
    catalogue = collect(text(), CHOICES, database=str(stored(tmp_path / "a.db", (DEVICE, 1000, at(1)))))
    for prefix, said in (("", "no name in C"), ("2D", "no name in C"), ("a b", "no name in C"), ("CL_X", "of OpenCL")):
        with pytest.raises(UsageError, match=said):
            header(catalogue, prefix=prefix)


@needs_compilers
@settings(max_examples=3, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(st.lists(st.text(max_size=40), min_size=20, max_size=40))
def test_any_text_as_a_literal(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    folder = tmp_path_factory.mktemp("literals")
    told = [one.encode("utf-8", "replace").replace(b"\0", b"") for one in texts]
    rows = ", ".join(string(one.decode()) for one in told)
    checks = " ".join(
        f"if (memcmp(rows[{n}], (const char[]){{ {', '.join(f'(char){byte}' for byte in one + bytes(1))} }}, "
        f"{len(one) + 1}) != 0) return 1;" for n, one in enumerate(told)
    )  # fmt: skip
    program = (
        f"#include <string.h>\nstatic const char *rows[] = {{ {rows} }};\nint main(void) {{ {checks} return 0; }}\n"
    )
    assert printed(compiled(folder, program)) == []
    assert max(map(len, lines("x".join(texts) * 20))) < 4000, "no literal is beyond what every compiler takes"


LEAF = st.sampled_from(["M", "N", "3", "7", "1", "0", "-2"])
TREE = st.recursive(
    LEAF,
    lambda part: st.one_of(
        st.builds("({} {} {})".format, part, st.sampled_from(["+", "-", "*", "//", "%", "<", "==", "and", "or"]), part),
        st.builds("{}({}, {})".format, st.sampled_from(["ceil_div", "round_up", "min", "max"]), part, part),
        st.builds("({} if {} else {})".format, part, part, part),
        st.builds("(not {})".format, part), st.builds("abs({})".format, part), st.builds("({} ** 2)".format, LEAF),
        st.builds("({} in (1, 3, {}))".format, part, part), st.builds("is_power_of_two({})".format, part),
        st.builds("({} < {} <= {})".format, part, part, part),
        st.builds("({} >= {} != {} > {})".format, part, part, part, part),
    ),
    max_leaves=8,
)  # fmt: skip


SIZES = [1, 5, 64, 100, 46341, 2**31 - 1]
LARGE = [
    form.replace("X", operand)
    for operand in ("M * N * N", "M // (N - 1)", "-M * M * M * 2", "M ** 9", "2 ** M")
    for form in (
        "X", "X + X", "1 - X", "X * 3", "X // 3", "7 % X", "-(X)", "not X", "abs(X)", "max(X, 1)", "min(1, X)", "X < 5",
        "5 > N or X", "N > 5 and X", "X if N > 5 else 1", "1 if X else 2", "1 < N < X", "N < 5 < X", "1 in (N, X)",
        "X in (1, 2)", "ceil_div(X, 3)", "round_up(X, 5 - N)", "is_power_of_two(X)", "(X) ** 2",
        "(X) ** 0", "1 ** (X)",
    )
]  # fmt: skip


@pytest.mark.slow
@needs_compilers
@settings(max_examples=2, deadline=None, derandomize=True, phases=(Phase.generate,))
@given(st.lists(TREE, min_size=150, max_size=200))
def test_expressions_mean_in_c_what_they_mean_here(
    tmp_path_factory: pytest.TempPathFactory, expressions: list[str]
) -> None:
    """Also that they mean nothing: beyond 2**62, or divided by zero."""
    folder, names = tmp_path_factory.mktemp("expressions"), {"M": "M_", "N": "N_"}
    functions, rows, expected = [arithmetic("P")], list[str](), list[str]()
    for text_ in (*expressions, *LARGE):
        try:
            expression = Expression.parse(text_)
            c = whole(expression.tree, names, "P")
        except (ExpressionError, NoCError):
            continue  # text and the like
        place = len(functions)
        functions.append(f"static long long f{place}(long long M_, long long N_) {{ (void)M_; (void)N_; return {c}; }}")
        for m, n in itertools.product(SIZES, SIZES):
            try:
                expected.append(str(int(expression.evaluate({"M": m, "N": n}))))
            except ExpressionError:
                expected.append(str(-(2**63)))
            rows.append(f'printf("%lld\\n", f{place}({m}LL, {n}LL));')
    program = ["#include <stdio.h>", *functions, "int main(void) {", *rows, "return 0; }"]
    assert printed(compiled(folder, "\n".join(program), "sanitized")) == expected
    assert 1000 < expected.count(str(-(2**63))) < len(rows) - 1000


@pytest.mark.parametrize(
    "form",
    [
        "({} % 7)", "round_up({}, 7)", "abs({} - 1)", "is_power_of_two({} + 1)", "(0 < {} + 1 < 9)", "({} in (1, 3))",
        "(WG == 1 or (WG == 32 and {}))", "(WG == 32 and (WG == 1 or {} % 7))",
    ],
)  # fmt: skip
def test_an_operand_is_written_once_in_c(form: str) -> None:
    deep = "M"
    for _ in range(20):
        deep = form.format(deep)
    c = whole(put_in(Expression.parse(deep).tree, {"WG": 32}), {"M": "M_"}, "P")
    assert c.count("M_") == 1
    assert len(c) < 2000


def test_c_of_any_length_is_not_written() -> None:
    tree = Expression.parse("+".join(["N"] * 90)).tree
    with pytest.raises(NoCError, match=r"an expression of more than 32,768 characters"):
        whole(tree, {"N": "N" * 400}, "P")


def test_c_that_grows_too_long_is_left_at_once() -> None:
    tree = Expression.parse("max(" + ", ".join(["N"] * 90) + ")").tree
    tracemalloc.start()
    with pytest.raises(NoCError, match="an expression"):
        whole(tree, {"N": "N" * 2**15}, "P")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2**20


# Buffers that change places --------------------------------------------------------------------------------


def swapping(turns: int | str, groups: Sequence[str], **access: str) -> StudyText:
    """A loop whose kernel takes all of the groups' buffers, which change places after each turn."""
    every = "".join(groups)
    buffers = {name: {"type": "float", "shape": ["N"], "access": access.get(name, "inout")} for name in every}
    loop = {"entry": "saxpy", "global": ["round_up(N, WG)"], "local": ["WG"], "arguments": list(every), "repeat": turns}
    numpy = {name: name for name in every if name not in access}
    return text(
        launch=[loop | {"swap": [list(group) for group in groups]}], arguments=buffers, reference={"numpy": numpy},
        constraints=[], work={},
    )  # fmt: skip


def launched(turns: int, groups: Sequence[str]) -> tuple[list[list[str]], dict[str, str]]:
    """What a program passes turn by turn, as pointers in C that are exchanged, and what they point at in the end."""
    points = {name: name for group in groups for name in group}
    passed = []
    for _ in range(turns):
        passed.append(list(points.values()))
        for group in groups:
            there = [points[name] for name in group]
            points |= dict(zip(group, [*there[1:], there[0]], strict=True))
    return passed, points


GROUPS = [["ab"], ["abc"], ["ab", "cd"], ["abc", "de"], ["abc", "def"]]


@pytest.mark.slow
@pytest.mark.parametrize("groups", GROUPS, ids="-".join)
@pytest.mark.parametrize("turns", [4, 5, 6])
def test_a_table_goes_by_the_names_with_which_buffers_begin(tmp_path: Path, groups: list[str], turns: int) -> None:
    study = swapping(turns, groups)
    place = stored(tmp_path / "a.db", (DEVICE, 1024, at(2)), study=study)
    told = json.loads(document(collect(study, CHOICES, database=str(place))).text)
    jsonschema.validate(told, json.loads((Path(artefacts.__file__).parent / "schema.json").read_text()))
    for entry in (told["entries"][0], told["default"]):
        passed = [entry["launches"][place]["arguments"] for place in entry["order"]]
        assert (passed, entry["ends"]) == launched(turns, groups)
        assert {one["access"] for one in entry["arguments"].values()} == {"inout"}


@pytest.mark.slow
@needs_compilers
@pytest.mark.parametrize("groups", GROUPS, ids="-".join)
def test_a_header_goes_by_the_names_with_which_buffers_begin(tmp_path: Path, groups: list[str]) -> None:
    every = "".join(groups)
    for turns in (5, 6):
        study = swapping(turns, groups)
        place = stored(tmp_path / f"{turns}.db", (DEVICE, 1024, at(2)), study=study)
        (tmp_path / "saxpy_tuned.h").write_text(header(collect(study, CHOICES, database=str(place))).text)
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
        assert printed(compiled(tmp_path, program)) == [*itertools.chain(*passed), *points.values()]


def test_access_is_what_a_program_gives_and_a_result_in_scratch_is_refused(tmp_path: Path) -> None:
    for turns, access in ((6, {"b": "scratch"}), (7, {"b": "in"}), (7, {"b": "scratch"})):
        study = swapping(turns, ["ab"], **access)
        place = str(stored(tmp_path / f"{turns}{access['b']}.db", (DEVICE, 1024, at(2)), study=study))
        if (turns, access) == (7, {"b": "scratch"}):
            said = "arguments.a: after as many turns as this size takes its result lies in b, which is scratch; nobody"
            with pytest.raises(StudyError, match=said):
                collect(study, CHOICES, database=place)
            continue
        (entry,) = json.loads(document(collect(study, CHOICES, database=place)).text)["entries"]
        assert {name: one["access"] for name, one in entry["arguments"].items()} == {
            "a": "inout", "b": "inout" if access["b"] == "in" else "scratch",
        }  # fmt: skip
        assert entry["ends"] == {"a": "b" if turns == 7 else "a"}


def test_a_best_whose_result_ends_in_scratch_is_left_out_and_counted(tmp_path: Path) -> None:
    study = swapping("2 + N % 2", ["ab"], b="scratch")
    place = stored(tmp_path / "a.db", *((DEVICE, n, at(1)) for n in (64, 65, 66, 67)), study=study)
    catalogue = collect(study, CHOICES, database=str(place))
    note = "left out: 2 of a device and size: arguments.a: after as many turns as this size takes its result lies in b"
    for written in (document(catalogue), header(catalogue)):
        assert written.bests == 2
        assert written.notes[-1].startswith(note)
    assert [entry["size"]["N"] for entry in json.loads(document(catalogue).text)["entries"]] == [64, 66]


@needs_compilers
def test_a_best_that_no_header_can_say_is_left_out_and_counted(tmp_path: Path) -> None:
    study = swapping("N", ["ab"], b="in")
    sizes = (200, 300, 220, 400, 240)
    place = stored(tmp_path / "a.db", *((DEVICE, n, at(1)) for n in sizes), study=study)
    catalogue = collect(study, CHOICES, database=str(place))
    written = header(catalogue)
    assert (written.bests, document(catalogue).bests) == (3, 5)
    why = "saxpy: runs more than 256 launches, which no header can say; --format table says it"
    assert written.notes[1:] == (f"left out: 2 of a device and size: {why}", f"left out: the study's default: {why}")
    (tmp_path / "saxpy_tuned.h").write_text(written.text)
    program = f"""
#include "saxpy_tuned.h"
int main(void) {{
    const long long sizes[] = {{ {", ".join(map(str, sizes))} }};
    int i;
    for (i = 0; i < {len(sizes)}; ++i) printf("%d\\n", (int)SAXPY_select("{DEVICE.name}", sizes[i]).match);
    return 0;
}}
"""
    assert printed(compiled(tmp_path, program)) == ["1", "0", "1", "0", "1"]


def test_where_nothing_changes_places_outputs_lie_where_they_began(tmp_path: Path) -> None:
    catalogue = collect(text(), CHOICES, database=str(stored(tmp_path / "a.db", (DEVICE, 1000, at(1)))))
    assert json.loads(document(catalogue).text)["entries"][0]["ends"] == {"y": "y"}
    assert "ENDS" not in header(catalogue).text


# Host programs --------------------------------------------------------------------------------------------


@pytest.mark.slow
@needs_compilers
@needs_opencl
@pytest.mark.parametrize("language", COMPILERS)
def test_a_host_program_runs_the_tuned_kernel(tmp_path: Path, language: str) -> None:
    here = next(device for device in devices.list_devices() if device.kind == "cpu")
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


TOML = """
name = "saxpy"
kernel = "saxpy.cl"
[sizes]
N = 1000
[choices]
T = ["float", "double"]
[parameters]
WPT.values = [1, 2, 4, 8]
WG = { values = [32, 64, 128, 256], default = 64 }
FAST.values = [0, 1]
[defines]
SPAN = "WPT * WG"
[[options]]
flag = "-cl-fast-relaxed-math"
when = "FAST == 1"
[arguments]
alpha = { type = "float", value = 2.5 }
x = { type = "T", shape = ["N"], access = "in" }
y = { type = "T", shape = ["N"], access = "inout" }
[[launch]]
entry = "saxpy"
global = ["round_up(ceil_div(N, WPT), WG)"]
local = ["WG"]
arguments = ["N", "alpha", "x", "y"]
[reference]
numpy = { y = "alpha * x + y" }
"""


@pytest.mark.parametrize("format", ["header", "table"])
def test_an_export_is_asked_for_well(tmp_path: Path, format: str) -> None:
    stored(tmp_path / "a.db", (DEVICE, 1000, at(1)))
    run = CliRunner().invoke
    base = ["export", "--format", format, "--db", str(tmp_path / "a.db")]
    for words, said in (
        (base, "say --study STUDY"),
        ([*base, "--study", "matmul"], "nothing is stored of matmul; autotune search matmul --db "),
        (
            [*base, "--study", "matmul", "--size", "64", "--choice", "T=int"],
            "matmul --size M=64,N=64,K=64 --choice T=int",
        ),
        (["export", "--embed"], "the lossless format holds"),
        (["export", "--prefix", "X"], "the lossless format holds"),
        (["export", "--format", "csv", "--study", "matmul", "--prefix", "X"], "--prefix: is for header"),
    ):
        done = run(app, words)
        assert done.exit_code == 2
        assert said in done.stderr


def test_a_size_that_nothing_serves_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("saxpy.toml").write_text(TOML)
    Path("saxpy.cl").write_text(SOURCE)
    stored(Path("a.db"), (DEVICE, 1000, at(1)), (DEVICE, 64, at(3)), study=find_study("./saxpy.toml"))
    done = CliRunner().invoke(app, ["export", "--format", "table", "--study", "./saxpy.toml", "--db", "a.db"])
    assert done.exit_code == 0
    assert "left out: 1 of a device and size where no verified configuration of the study is stored" in done.stderr
    assert "bests of saxpy written: 1" in done.stderr
