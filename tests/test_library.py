from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.errors import StudyError
from autotune.study import (
    default_choices,
    default_configuration,
    default_size,
    find_study,
    offered_choices,
    parameter_values,
    schema,
    study_paths,
)
from autotune.study.library import MEASURED_TABLES, line_mark, read_table
from tests.studies import SOURCE

ROOT = Path(__file__).parent.parent

MINIMAL = """
name = "{name}"
kernel = "k.cl"
[sizes]
N = 8
M = 16
[choices]
T = ["float", "int"]
[parameters.A]
values = [1, 2]
[launch]
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").mkdir()
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels" / "k.cl").write_text(SOURCE)
    (tmp_path / "studies" / "own.toml").write_text(MINIMAL.format(name="own"))
    return tmp_path


def test_a_study_in_the_folder_is_found_by_name_and_by_path(folder: Path) -> None:
    by_name = find_study("own")
    by_path = find_study("./studies/own.toml")
    assert by_name.name == by_path.name == "own"
    assert by_name.source == SOURCE
    assert by_name.kernel_path == Path("kernels/k.cl")


def test_a_study_is_found_by_what_it_calls_itself_where_no_file_is_named_so(folder: Path) -> None:
    """Results are stored and shown under that name, so it is what people type."""
    (folder / "studies" / "file.toml").write_text(MINIMAL.format(name="inside"))
    (folder / "studies" / "broken.toml").write_text("name = 'inside'\nkernel =\n")
    assert find_study("inside").path == find_study("file").path == Path("studies/file.toml")
    (folder / "studies" / "inside.toml").write_text(MINIMAL.format(name="other"))
    assert find_study("inside").name == "other", "a file's name comes first"
    (folder / "studies" / "inside.toml").write_text(MINIMAL.format(name="inside"))
    (folder / "studies" / "inside.toml").rename(folder / "studies" / "second.toml")
    with pytest.raises(
        StudyError, match=r"several studies are called 'inside': studies/file.toml, studies/second.toml; "
    ):
        find_study("inside")
    with pytest.raises(StudyError, match="no study named 'insid'"):
        find_study("insid")


@pytest.mark.parametrize("listed", ["", "A = []", "A = 7", "A.about = 'no values'"])
def test_a_parameter_without_values_is_named(folder: Path, listed: str) -> None:
    text = MINIMAL.format(name="own").replace("[parameters.A]\nvalues = [1, 2]", f"[parameters]\n{listed}")
    (folder / "studies" / "own.toml").write_text(text)
    with pytest.raises(StudyError, match=rf"own.toml: parameters{listed and '.A'}: needs values"):
        parameter_values(find_study("own"))


def test_an_own_study_shadows_a_bundled_one_and_says_so(folder: Path) -> None:
    assert find_study("own").shadows is None
    (folder / "studies" / "matmul.toml").write_text(MINIMAL.format(name="matmul"))
    found = find_study("matmul")
    assert found.path == Path("studies/matmul.toml")
    assert found.shadows is not None
    assert Path(found.shadows).name == "matmul.toml"


def test_an_unknown_name_suggests_the_nearest(folder: Path) -> None:
    with pytest.raises(StudyError, match="did you mean 'own'"):
        find_study("owm")
    with pytest.raises(StudyError, match="no such study file"):
        find_study("./owm.toml")


def test_a_kernel_in_the_place_of_a_study_is_told_with_the_command_for_it(folder: Path) -> None:
    Path("my own.cl").write_text("kernel void f() {}")
    for given in ("my own.cl", "./my own.cl"):
        with pytest.raises(StudyError, match=f"^{given}: is a kernel, not a study; autotune new '{given}' writes"):
            find_study(given)


@pytest.mark.parametrize("name", ["x" * 5000, f"./{'x' * 5000}.toml", "a\0b", "./a\0b.toml"])
def test_a_name_that_no_file_can_have_is_not_found(name: str) -> None:
    with pytest.raises(StudyError, match=r"no such study file|no study named"):
        find_study(name)


def test_malformed_toml_names_file_and_line(folder: Path) -> None:
    (folder / "studies" / "bad.toml").write_text("name = 'x'\nkernel =\n")
    with pytest.raises(StudyError, match=r"studies/bad\.toml: not valid TOML: .*line 2"):
        find_study("bad")


def test_a_missing_kernel_says_where_it_looked(folder: Path) -> None:
    (folder / "studies" / "own.toml").write_text(MINIMAL.format(name="own").replace("k.cl", "gone.cl"))
    with pytest.raises(StudyError, match=r"no file 'gone\.cl'; looked in studies and kernels"):
        find_study("own")


IN_ASCII = """
import autotune.errors
from autotune import study
for file in ("kernel", "include", "data"):
    try:
        print(study.find_study(f"./{file}.toml").study_hash)
    except autotune.errors.StudyError as error:
        print(ascii(str(error)))
"""


def test_a_name_that_the_locale_has_no_bytes_for_is_told_with_the_cure(folder: Path) -> None:
    """A study is UTF-8; the locale decides the encoding of file names."""
    (folder / "\xfc.cl").write_text(SOURCE)
    (folder / "\xfc.h").touch()
    (folder / "\xfc.npy").touch()
    (folder / "k.cl").write_text(SOURCE)
    (folder / "includes.cl").write_text('#if ODD\n#include "\xfc.h"\n#endif')
    own = MINIMAL.format(name="own")
    (folder / "kernel.toml").write_text(own.replace("k.cl", "\xfc.cl"))
    (folder / "include.toml").write_text(own.replace("k.cl", "includes.cl"))
    (folder / "data.toml").write_text(f'{own}\n[arguments]\nx = {{ data = {{ file = "\xfc.npy" }} }}')
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", IN_ASCII], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    kernel, include, data = done.stdout.splitlines()
    assert "kernel: no file '\\xfc.cl'; " in kernel
    assert "includes.cl:2: includes '\\xfc.h', which cannot be looked for; " in include
    assert "arguments.x.data.file: no file '\\xfc.npy'; " in data
    for line in (kernel, include, data):
        assert "this locale encodes file names in ascii: export PYTHONUTF8=1" in line


def test_a_name_in_no_encoding_is_none_to_compilers() -> None:
    assert line_mark(1, "g\udcfc.cl") == '#line 1 "g?.cl"'


def test_includes_are_inlined_and_keep_their_lines(folder: Path) -> None:
    (folder / "kernels" / "inner.h").write_text("#define ONE 1\n")
    (folder / "kernels" / "k.cl").write_text('int a;\n#include "inner.h"\nint b;\n')
    assert find_study("own").source == ('int a;\n#line 1 "inner.h"\n#define ONE 1\n#line 3 "k.cl"\nint b;\n')


def test_a_change_in_an_include_changes_the_kernel_hash(folder: Path) -> None:
    (folder / "kernels" / "inner.h").write_text("#define ONE 1\n")
    (folder / "kernels" / "k.cl").write_text('#include "inner.h"\n')
    before = find_study("own").kernel_hash
    (folder / "kernels" / "inner.h").write_text("#define ONE 2\n")
    assert find_study("own").kernel_hash != before


@pytest.mark.parametrize(("text", "message"), [('#include "k.cl"', "includes itself"), ('\n#include "no.h"', "k.cl:2")])
def test_bad_includes_are_errors(folder: Path, text: str, message: str) -> None:
    (folder / "kernels" / "k.cl").write_text(text)
    with pytest.raises(StudyError, match=message):
        find_study("own")


def test_the_study_hash_covers_what_is_run_and_not_the_values(folder: Path) -> None:
    path = folder / "studies" / "own.toml"
    before = find_study("own")
    path.write_text(path.read_text().replace("[1, 2]", "[1, 2, 3]").replace("N = 8", "N = 9"))
    assert find_study("own").study_hash == before.study_hash
    path.write_text(path.read_text() + "[tolerance]\nabsolute = 1\n")
    assert find_study("own").study_hash != before.study_hash


def test_each_table_is_in_the_hash_or_decides_neither_what_is_run_nor_what_is_accepted() -> None:
    apart = {"name", "about", "kernel", "sizes", "choices"}  # are in a problem's key in another way, or prose
    harmless = {"size_lists", "parameters", "constraints", "requires", "work"}
    assert schema.StudyTable.model_fields.keys() - apart - harmless == {*MEASURED_TABLES}


def test_a_change_of_a_python_reference_changes_the_study_hash(folder: Path) -> None:
    path = folder / "studies" / "own.toml"
    path.write_text(path.read_text() + '[reference]\npython = "ref.py:f"\n')
    (folder / "studies" / "ref.py").write_text("def f(): return {}\n")
    before = find_study("own").study_hash
    (folder / "studies" / "ref.py").write_text("def f(): return {'y': 1}\n")
    assert find_study("own").study_hash != before


def test_a_change_of_a_file_found_through_the_options_changes_the_kernel_hash(folder: Path) -> None:
    path = folder / "studies" / "own.toml"
    path.write_text(path.read_text() + '[[options]]\nflag = "-Iinc"\n')
    (folder / "studies" / "inc").mkdir()
    (folder / "studies" / "inc" / "fac.h").write_text("#define FAC 1\n")
    (folder / "kernels" / "k.cl").write_text("#include <fac.h>\n")
    before = find_study("own")
    assert "#define FAC 1" in before.source
    (folder / "studies" / "inc" / "fac.h").write_text("#define FAC 2\n")
    assert find_study("own").kernel_hash != before.kernel_hash


def test_a_change_of_what_a_python_reference_imports_or_reads_changes_the_study_hash(folder: Path) -> None:
    path = folder / "studies" / "own.toml"
    path.write_text(path.read_text() + '[reference]\npython = "ref.py:f"\n')
    (folder / "studies" / "ref.py").write_text("import helper\nDATA = 'data.csv'\n")
    hashes = set()
    for name, text in (("helper.py", "A = 1\n"), ("helper.py", "A = 2\n"), ("data.csv", "1\n"), ("data.csv", "2\n")):
        (folder / "studies" / name).write_text(text)
        hashes.add(find_study("own").study_hash)
    assert len(hashes) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = y", "not valid TOML: Invalid value .*; write text and expressions in quotation marks$"),
        ("x = " + "9" * 5000, "not valid TOML: a number has too many digits"),
        ("x = " + "9" * 4000, "x: holds a whole number beyond 64 bits"),
        ("x = " + "[" * 5000 + "]" * 5000, "not valid TOML: nested too deeply"),
        ("x = " + "[" * 50 + "]" * 50, "is nested more than 20 levels deep"),
        ("[a" + ".a" * 50_000 + "]", "has a key of more than 20 levels"),
        ("a" + ' . "b.c"' * 50_000 + " = 1", "has a key of more than 20 levels"),
        ("x = '" + '\\"' * 200_000 + "." * 21, "not valid TOML: Illegal character"),  # at once, and not in an hour
        (f"kernel = '{'k' * 5000}.cl'", "no file 'k"),
        ("kernel = 'k\\u0000.cl'", "no file"),
        ("kernel = []", 'names no kernel file; write kernel = "own.cl" above'),
        ("kernels = 'k.cl'", r"own.toml: kernels: unknown key \(did you mean 'kernel'\?\)$"),
    ],
)
def test_what_no_study_holds_is_refused(folder: Path, text: str, message: str) -> None:
    lines = "name = 'own'\n" + ("" if text.startswith("kernel") else "kernel = 'k.cl'\n")
    (folder / "studies" / "own.toml").write_text(lines + text.replace("'", '"') + "\n")
    with pytest.raises(StudyError, match=message):
        find_study("own")


def test_the_defaults_are_read(folder: Path) -> None:
    text = find_study("own")
    assert default_size(text) == {"N": 8, "M": 16}
    assert default_choices(text) == {"T": "float"}
    assert offered_choices(text) == {"T": ["float", "int"]}
    assert default_configuration(text) == {"A": 1}


def test_the_bundled_studies_are_listed() -> None:
    assert {"matmul", "sgemm"} <= set(study_paths())


def test_what_is_done_to_a_study_s_tables_is_seen_by_nobody_else(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    file.write_text("[parameters]\nA = [1, 2]\n")
    tables = read_table(file)
    tables["parameters"]["A"].append(3)
    assert read_table(file) == {"parameters": {"A": [1, 2]}}
    file.write_text("[parameters]\nA = [4]\n")
    assert read_table(file) == {"parameters": {"A": [4]}}
