"""Where the contents of inputs come from: files, expressions, Python; and errors of one line for anything else."""

from __future__ import annotations

import os
import pickle
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autotune.errors import StudyError, UsageError
from autotune.pool.caller import Caller
from autotune.study import Problem, check_inputs, check_reference, expected_data, input_data
from autotune.study.files import header_of, matrix_of
from autotune.study.function import call
from tests.studies import study


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a study made in Python is created, which is its own folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problem(data: Any, kind: str = "float", n: int = 6, **more: Any) -> Problem:
    arguments = {
        "x": {"type": kind, "shape": ["N"], "access": "in", "data": data},
        "y": {"type": "float", "shape": ["N"], "access": "out"},
        **more.pop("arguments", {}),
    }
    changes = {"sizes": {"N": n}, "size_lists": {}, "work": {}, "reference": {"numpy": {"y": "x + 0"}}, **more}
    launch = [{"entry": "f", "global": ["N"], "arguments": ["N", *arguments]}]
    return Problem(study(arguments=arguments, launch=launch, choices={}, source="kernel void f() {}", **changes))


def drawn(data: Any, kind: str = "float", n: int = 6, **more: Any) -> list[Any]:
    made = problem(data, kind, n, **more)
    check_inputs(made)
    return input_data(made)["x"].tolist()


def matrix(symmetry: str, *lines: str, kind: str = "real") -> None:
    head = f"%%MatrixMarket matrix coordinate {kind} {symmetry}\n% a comment\n"
    Path("m.mtx").write_text(head + "\n".join(lines) + "\n")


def test_data_is_given_what_the_user_chose() -> None:
    arguments = {"x": {"type": "float", "shape": ["N"], "access": "in", "data": {"numpy": "full((N,), R)"}}}
    choices: dict[str, Any] = {"T": ["float"], "R": [1, 3]}
    y = {"type": "float", "shape": ["N"], "access": "out"}
    launch = [{"entry": "f", "global": ["N"], "arguments": ["x", "y"]}]
    common = {"choices": choices, "launch": launch, "source": "kernel void f() {}", "reference": {"numpy": {"y": "x"}}}
    made = Problem(study(arguments={**arguments, "y": y}, **common), choices={"R": 3})
    check_inputs(made)
    assert set(input_data(made)["x"].tolist()) == {3}


# -- files -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["float", "double", "int", "ushort"])
@given(array=hnp.arrays(st.sampled_from([np.uint8, np.int16, np.float32]), 6, elements=st.integers(0, 200)))
@settings(max_examples=15)
def test_numbers_of_a_file_arrive_as_they_are(kind: str, array: Any) -> None:
    np.save("x.npy", array)
    np.savez("x.npz", x=array, other=np.zeros(2))
    array.tofile("x.bin")
    word = {"uint8": "uchar", "int16": "short", "float32": "float"}[array.dtype.name]
    if array.dtype.kind == "f" and kind in ("int", "ushort"):
        array = array.astype(int)
        np.save("x.npy", array)
        assert drawn({"file": "x.npy"}, kind) == array.tolist()
        return
    for data in ({"file": "x.npy"}, {"file": "x.npz", "part": "x"}, {"file": "x.bin", "type": word}):
        assert drawn(data, kind) == array.tolist()


def test_a_matrix_by_rows_is_what_scipy_makes_of_it() -> None:
    matrix("symmetric", "3 3 4", "1 1 1.5", "3 1 2", "2\t2\t-1", "3 2 7")
    parts = {"indptr": ([0, 2, 4, 6], "int", 4), "indices": ([0, 2, 1, 2, 0, 1], "int", 6),
             "values": ([1.5, 2, -1, 7, 2, 7], "float", 6), "row_indices": ([0, 0, 1, 1, 2, 2], "int", 6)}  # fmt: skip
    for part, (expected, kind, n) in parts.items():
        assert drawn({"file": "m.mtx", "part": part}, kind, n) == expected
    sizes = {"N": {"file": "m.mtx", "part": "entries"}, "ROWS": {"file": "m.mtx", "part": "rows"}}
    found = problem({"file": "m.mtx", "part": "values"}, sizes=sizes)
    assert found.size == {"N": 6, "ROWS": 3}
    with pytest.raises(UsageError, match=r"ROWS is 3, as m\.mtx .* be 4; .*, or write a number for ROWS in"):
        Problem(found.study, {"ROWS": 4})
    assert found.smaller == "use a smaller file than m.mtx, or write a number for N in [sizes]"
    free = problem({"file": "m.mtx", "part": "values"}, sizes={**sizes, "M": 4})
    with pytest.raises(UsageError, match=r"use another file than m\.mtx, or write .* in \[sizes\]; --size sets M$"):
        Problem(free.study, {"N": 7, "ROWS": 7, "M": 7})
    assert problem({}).smaller == "give a smaller --size"


def test_a_pattern_has_ones_and_a_dense_matrix_its_values() -> None:
    matrix("general", "2 3 2", "1 2", "2 3", kind="pattern")
    assert drawn({"file": "m.mtx", "part": "values"}, n=2) == [1, 1]
    Path("m.mtx").write_text("%%MatrixMarket matrix array real general\n2 2\n1\n2\n3\n4\n")
    assert drawn({"file": "m.mtx", "part": "values", "numpy": "reshape(x, 4)"}, n=4) == [1, 3, 2, 4]


def test_a_file_decides_what_results_belong_to() -> None:
    hashes = set()
    for content in (np.zeros(6), np.zeros(6), np.ones(6)):
        np.save("x.npy", content)
        hashes.add(problem({"file": "x.npy"}).key.study_hash)
    assert len(hashes) == 2
    Path("gen.py").write_text("def make(N): return 1")
    made = problem({"python": "gen.py:make"}).key.study_hash
    Path("gen.py").write_text("def make(N): return 2")
    assert problem({"python": "gen.py:make"}).key.study_hash != made


def bad_files(folder: Path) -> None:
    np.save("long.npy", np.zeros(7))
    np.savetxt("a.csv", np.zeros(6), delimiter=",")
    np.save("whole.npy", np.arange(6) * 1000)
    np.save("parts.npy", np.arange(6) / 2)
    np.save("complex.npy", np.zeros(6, complex))
    np.save("text.npy", np.array(["a"] * 6))
    np.save("pickled.npy", np.array([{}] * 6, object), allow_pickle=True)
    np.savez("pickled.npz", x=np.array([{}] * 6, object))
    np.savez("two.npz", first=np.zeros(6), second=np.zeros(6))
    data = Path("parts.npy").read_bytes()
    Path("cut.npy").write_bytes(data[:-8])
    Path("head.npy").write_bytes(data[:20])
    Path("lies.npy").write_bytes(data.replace(b"(6,)", b"(9999999999,)".ljust(4))[:128])
    Path("junk.npy").write_bytes(pickle.dumps([1]))
    zipped = Path("two.npz").read_bytes()
    Path("cut.npz").write_bytes(zipped[: len(zipped) // 2])
    Path("odd.bin").write_bytes(b"12345")
    with Path("sparse.bin").open("wb") as sparse:
        sparse.truncate(2**40)
    os.mkfifo("fifo.npy")
    with zipfile.ZipFile("packed.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.write("long.npy", "x.npy")
    packed = Path("packed.npz").read_bytes()
    Path("packed.npz").write_bytes(packed[:50] + b"\xff" * 30 + packed[80:])
    with zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x.npy", "w") as member:
        header = np.lib.format.header_data_from_array_1_0(np.zeros(6))
        np.lib.format.write_array_header_1_0(member, {**header, "shape": (2**40,)})
        member.write(bytes(2**20))
    (folder.parent / "outside.npy").write_bytes(data)
    Path("link.npy").symlink_to(folder.parent / "outside.npy")
    Path("folder.npy").mkdir()
    Path("empty.mtx").write_text("")
    matrix("general", "2 2 99", "1 1 1")
    Path("cut.mtx").write_bytes(Path("m.mtx").read_bytes())
    matrix("general", "2 2 2", "1 1 1", "1 1 2")
    Path("twice.mtx").write_bytes(Path("m.mtx").read_bytes())
    matrix("general", "2 2 2", "1 1 1", "3 1 2")
    Path("beyond.mtx").write_bytes(Path("m.mtx").read_bytes())
    matrix("hermitian", "2 2 1", "1 1 1", kind="complex")


@pytest.mark.parametrize(
    ("data", "message", "kind"),
    [
        ({"file": "gone.npy"}, r"arguments\.x\.data\.file: 'gone\.npy' is not there; looked in", "float"),
        ({"file": "folder.npy"}, "'folder.npy' is not a file", "float"),
        ({"file": "../outside.npy"}, r"'\.\./outside\.npy' lies outside the study's folder", "float"),
        ({"file": "/etc/passwd", "type": "uchar"}, "'/etc/passwd' lies outside", "float"),
        ({"file": "link.npy"}, "'link.npy' lies outside", "float"),
        ({"file": "a\0b"}, "lies outside", "float"),
        ({"file": "long.npy"}, r"has shape \(7,\), the argument has \(6,\)", "float"),
        ({"file": "whole.npy"}, "holds 1000, which uchar cannot", "uchar"),
        ({"file": "parts.npy"}, r"holds 0\.5, which int cannot", "int"),
        ({"file": "complex.npy"}, "holds '<c16', not numbers", "float"),
        ({"file": "text.npy"}, "holds '<U1', not numbers", "float"),
        ({"file": "pickled.npy"}, r"holds '\|O', not numbers", "float"),
        ({"file": "pickled.npz", "part": "x"}, r"holds '\|O', not numbers", "float"),
        ({"file": "two.npz"}, "holds several arrays; part is one of first, second", "float"),
        ({"file": "two.npz", "part": "secnd"}, "holds no 'secnd' .did you mean 'second'", "float"),
        ({"file": "cut.npy"}, "is cut short: 168 bytes, 176 are needed", "float"),
        ({"file": "head.npy"}, "its header is cut short", "float"),
        ({"file": "lies.npy"}, "cut short|cannot be read", "float"),
        ({"file": "junk.npy"}, "is damaged, or not a .npy file: it does not begin as one", "float"),
        ({"file": "cut.npz", "part": "first"}, "is damaged, or not a .npz file", "float"),
        ({"file": "sparse.bin", "type": "float"}, "has 1,099,511,627,776 bytes, more than the 64 GiB", "float"),
        ({"file": "fifo.npy"}, r"x\.data\.file: 'fifo\.npy' is not a file", "float"),
        ({"file": "packed.npz"}, "packed.npz: is damaged, or not a .npz file: Corrupt input data", "float"),
        ({"file": "bomb.npz", "numpy": "x[:N]"}, r"bomb\.npz: takes 8\.19e\+03 GiB of memory, 8 GiB are free", "float"),
        ({"file": "parts.npy", "type": "int"}, 'npy: already says what type it has; leave out type = "int"', "float"),
        ({"numpy": "arange(TODO)"}, "has a TODO: replace it", "float"),
        ({"file": "parts.npy", "part": "x"}, 'parts.npy: has no parts; leave out part = "x"', "float"),
        ({"file": "odd.bin", "type": "float"}, "its 5 bytes are not a whole number of float", "float"),
        ({"file": "odd.bin"}, 'is not a .npy, .npz or .mtx file; plain numbers need their type: type =', "float"),
        ({"file": "a.csv", "type": "float"}, r"a\.csv: is text, .*; np\.save\('a\.npy', np\.loadtxt", "float"),
        ({"file": "odd.bin", "type": "flaot"}, "unknown type 'flaot' .did you mean 'float'", "float"),
        ({"file": "empty.mtx", "part": "values"}, "is not a matrix of the MatrixMarket: its first line", "float"),
        ({"file": "cut.mtx", "part": "values"}, "it is cut short: 99 entries", "float"),
        ({"file": "twice.mtx", "part": "values", "numpy": "tile(x, 3)"}, "it has an entry twice", "float"),
        ({"file": "beyond.mtx", "part": "values", "numpy": "tile(x, 3)"}, "cannot be read", "float"),
        ({"file": "m.mtx", "part": "values"}, "it is complex hermitian", "float"),
        ({"file": "twice.mtx"}, "a matrix needs a part; part is one of indptr, indices, values, row_indices", "float"),
        ({"file": "twice.mtx", "part": "valeus"}, "a matrix has no part 'valeus'", "float"),
        ({"file": "parts.npy", "low": 0}, "file and low exclude each other", "float"),
        ({"distribution": "normal", "part": "x"}, "part and type belong to a file", "float"),
        ({"numpy": "arange(5)"}, r"x\.data: has shape \(5,\), the argument has \(6,\)", "float"),
        ({"numpy": "arange(N) / 2"}, r"numpy: holds 0\.5, which int cannot", "int"),
        ({"numpy": "arange(N) - 1.0"}, r"numpy: holds -1\.0, which uint cannot", "uint"),
        ({"numpy": "ones(N) * 2.0 ** 31"}, r"numpy: holds 2147483648\.0, which int cannot", "int"),
        ({"numpy": "ones(N) * 2.0 ** 64"}, r"numpy: holds 1\.8\d*e\+19, which ulong cannot", "ulong"),
        ({"numpy": "log(arange(N) - 1.0)"}, "numpy: holds nan, which int cannot", "int"),
        ({"numpy": "arange(Q)"}, "unknown name 'Q'; known here: N", "float"),
        ({"numpy": "arange(n)"}, r"unknown name 'n' \(did you mean 'N'\?\)", "float"),
        ({"numpy": "fft(arange(N))"}, "unknown name 'fft'; docs/studies-reference.md lists the functions", "float"),
        ({"numpy": "ones(2**40)[:N]"}, "out of memory", "float"),
        ({"seed": -1}, r"arguments\.x\.data\.seed: input should be greater than or equal to 0, got -1", "float"),
        ({"low": 1, "high": -1}, r"arguments\.x\.data: low is 1, above high, -1", "float"),
        ({"high": float("inf")}, r"arguments\.x\.data\.high: inf is not a number", "float"),
        ({"distribution": "constant", "value": 300}, r"arguments\.x\.data: holds 300, which uchar cannot", "uchar"),
        ({"low": 0, "high": 999}, r"arguments\.x\.data\.high: 999, which uchar cannot hold", "uchar"),
        ({"low": -5}, r"arguments\.x\.data\.low: -5, which uint cannot hold", "uint"),
        ({"low": 0.5, "high": 2}, r"arguments\.x\.data\.low: 0\.5, which int cannot hold", "int"),
        ({"distribution": "integers", "high": 2.7}, r"data\.high: 2\.7 is not a whole number", "float"),
        ({"high": 1e300}, r"arguments\.x\.data\.high: 1e\+300, which float cannot hold", "float"),
        ({"low": -3e38, "high": 3e38}, r"data: from -3e\+38 to 3e\+38 is more than float holds", "float"),
        ({"distribution": "range", "high": 9}, 'data: high does not apply to distribution = "range"', "int"),
        ({"value": 9}, 'does not apply to distribution = "uniform": write distribution = "constant"', "int"),
        ({"fields": {"a": {"low": 0}}}, r"arguments\.x\.data\.fields: belong to structs, and this is not one", "float"),
        ({"high": "Q"}, r"arguments\.x\.data\.high: names 'Q'", "float"),
        ({"python": "gen.py:make"}, "no file 'gen.py'", "float"),
    ],
)  # fmt: skip
def test_bad_data_is_told_in_one_line(folder: Path, data: Any, message: str, kind: str) -> None:
    bad_files(folder)

    def read() -> None:
        found = problem(data, kind)
        assert found.key
        check_inputs(found)
        input_data(found, room=lambda: 2.0**33)

    with pytest.raises(UsageError, match=message) as caught:
        read()
    assert "\n" not in str(caught.value)


def test_bounds_that_are_not_written_are_what_the_type_holds() -> None:
    assert set(drawn({}, "uint", 100)) == {0, 1}
    assert set(drawn({"high": 2}, "uchar", 100)) == {0, 1, 2}


def test_what_has_no_room_is_not_read() -> None:
    np.save("x.npy", np.zeros(6))
    with pytest.raises(StudyError, match=r"x\.npy: takes .* GiB of memory, .* are free"):
        input_data(problem({"file": "x.npy"}), room=lambda: 8.0)
    matrix("general", "2 2 1", "1 1 1")
    with pytest.raises(StudyError, match=r"m\.mtx: takes"):
        input_data(problem({"file": "m.mtx", "part": "values"}, n=1), room=lambda: 8.0)
    matrix("general", f"{2**61} 2 1", "1 1 1")
    with pytest.raises(StudyError, match=r"arguments\.x\.data: \(2305843009213693953,\) is more than any memory holds"):
        check_inputs(problem({"file": "m.mtx", "part": "indptr"}))


def test_a_place_is_said_once() -> None:
    with pytest.raises(StudyError) as caught:
        check_inputs(problem({"file": "gone.npy"}))
    assert str(caught.value).count(".toml") == 1


@given(st.binary(max_size=300), st.sampled_from([".npy", ".npz", ".mtx", ".bin"]))
@settings(max_examples=60)
def test_no_header_is_a_traceback(data: bytes, suffix: str) -> None:
    path = Path(f"any{suffix}")
    for head in (b"", b"\x93NUMPY\x01\x00\x40\x00", b"%%MatrixMarket matrix coordinate real symmetric\n"):
        path.write_bytes(head + data)
        with suppress(StudyError):
            assert min(header_of(path, "values", "uchar").shape, default=0) >= 0


def test_a_matrix_says_how_many_entries_it_has_with_the_mirrored() -> None:
    matrix("skew-symmetric", "3 3 2", "2 1 1", "", "% more", "3 1 2")
    assert matrix_of(Path("m.mtx")).entries == 4


# -- computed --------------------------------------------------------------------------------------------


def test_bounds_follow_sizes_and_defines() -> None:
    data = {"distribution": "integers", "low": "N", "high": "TOP"}
    values = drawn(data, "int", 8, defines={"TOP": "2 * N"})
    assert 8 <= min(values) <= max(values) <= 16
    assert drawn({"distribution": "constant", "value": "N / 4"}) == [1.5] * 6


def test_expressions_stand_on_other_inputs_in_any_order() -> None:
    more = {"perm": {"type": "int", "shape": ["N"], "access": "in", "data": {"distribution": "permutation"}}}
    found = input_data(problem({"numpy": "argsort(perm)"}, "int", arguments=more))
    assert sorted(found["perm"].tolist()) == list(range(6))
    assert found["perm"][found["x"]].tolist() == list(range(6))
    assert list(found) == ["x", "perm"]


def test_the_own_name_is_what_the_other_keys_give() -> None:
    values = drawn({"distribution": "integers", "low": 0, "high": 99, "numpy": "sort(x)"}, "int")
    assert values == sorted(drawn({"distribution": "integers", "low": 0, "high": 99}, "int"))


def test_circles_are_refused() -> None:
    more = {"z": {"type": "float", "shape": ["N"], "access": "in", "data": {"numpy": "x * 2"}}}
    with pytest.raises(StudyError, match=r"arguments\.\w\.data: is computed from itself: . <- . <- ."):
        check_inputs(problem({"numpy": "z + 1"}, arguments=more))


# -- Python ----------------------------------------------------------------------------------------------


def test_a_function_of_a_file_makes_several_inputs_where_it_may(folder: Path) -> None:
    Path("gen.py").write_text(
        "import numpy as np\ndef make(N, k):\n    return {'x': np.arange(N) * k, 'z': np.ones(N)}\n"
    )
    more = {
        "z": {"type": "int", "shape": ["N"], "access": "in", "data": {"python": "gen.py:make", "numpy": "z * 5"}},
        "k": {"type": "int", "value": "N // 2"},
    }
    made = problem({"python": "gen.py:make"}, arguments=more)
    with pytest.raises(StudyError, match=r"gen\.py: the data is made by Python .*; allow it with --allow-python"):
        input_data(made)
    found = input_data(problem({"python": "gen.py:make"}, "int", arguments=more), python=Caller(folder, 60))
    assert found["x"].tolist() == [0, 3, 6, 9, 12, 15]
    assert found["z"].tolist() == [5] * 6  # whole, though NumPy's ones are of floats


def test_a_function_cannot_take_a_word_of_python() -> None:
    with pytest.raises(StudyError, match=r"takes 'in_', which is not available; 'in' is a word of Python: call the"):
        call(lambda in_: in_, {"in": 1, "N": 2}, "f")
    with pytest.raises(StudyError, match=r"takes 'inn', which is not available; it may take N$"):
        call(lambda inn: inn, {"in": 1, "N": 2}, "f")


@pytest.mark.parametrize("body", ["numpy.ones(N).view(numpy.recarray).lo", "numpy.clip(numpy.ones((N, 3)), 0, [1, 2])"])
def test_a_function_that_fails_within_numpy_is_told_its_own_line(body: str) -> None:
    Path("gen.py").write_text(f"import numpy\n\ndef make(N):\n    return {body}\n")
    with pytest.raises(StudyError, match=r": gen\.py:4: the function failed: \w+Error: "):
        input_data(problem({"python": "gen.py:make"}), python=Caller(Path.cwd(), 60))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("def make(WG): return 1", "takes 'WG', which is not available; it may take N$"),
        (
            "def make(n, **others): return 1",
            r"takes 'n', which is not available \(did you mean 'N'\?\); it may take N$",
        ),
        ("def make(N, /): return 1", "the function failed: TypeError: make"),
        ("def make(N): pass", "the function returned None; return a dict of arrays by name"),
        ("def make(N): return {'x': None}", "the function returned no numbers"),
    ],
)
def test_a_function_that_makes_no_data_is_named_with_its_argument(body: str, message: str) -> None:
    Path("gen.py").write_text(body)
    with pytest.raises(StudyError, match=rf"^saxpy\.toml: arguments\.x\.data: gen\.py:make: {message}"):
        input_data(problem({"python": "gen.py:make"}), python=Caller(Path.cwd(), 60))


def test_arrays_and_functions_are_given_in_python() -> None:
    given = np.arange(6, dtype=np.float32)
    made = problem(given)
    given[0] = 9  # what was given counts
    assert input_data(made)["x"].tolist() == [0, 1, 2, 3, 4, 5]
    assert made.key.study_hash != problem(given).key.study_hash
    assert drawn(lambda N: np.ones(N)) == [1] * 6
    with pytest.raises(StudyError, match=r"arguments\.x: an array or a function cannot be written .* np\.save"):
        made.study.to_toml()
    with pytest.raises(StudyError, match=r"x\.data\.given: a file cannot hold an array"):
        problem({"given": "0" * 32})
    with pytest.raises(StudyError, match=r"the function failed: ZeroDivisionError"):
        drawn(lambda N: np.ones(N) / (1 // 0))
    with pytest.raises(StudyError, match=r"returned int; return a dict of arrays"):
        drawn(lambda N: 1)


# -- golden outputs, and what belongs to whom ------------------------------------------------------------


def test_expected_outputs_come_from_a_file() -> None:
    np.save("y.npy", np.linspace(0, 1, 6))
    made = problem({}, reference={"file": {"y": "y.npy"}})
    check_reference(made)
    found = expected_data(made, input_data(made))
    assert found is not None
    assert found["y"].tolist() == np.linspace(0, 1, 6).tolist()
    with pytest.raises(StudyError, match="must give every output and nothing else: y"):
        problem({}, reference={"file": {"z": "y.npy"}})
    np.save("y.npy", np.zeros((2, 3)))
    with pytest.raises(StudyError, match=r"reference\.file\.y: has shape \(2, 3\), the output has \(6,\)"):
        expected_data(made, input_data(made))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("gone.npy", "is not there"),
        ("cut.npy", "is cut short"),
        ("pickled.npy", "not numbers"),
        ("../outside.npy", "lies outside the study's folder"),
        ("long.npy", r"has shape \(7,\), the output has \(6,\)"),
    ],
)
def test_the_header_of_a_golden_file_is_looked_at(folder: Path, file: str, message: str) -> None:
    bad_files(folder)
    check_reference(problem({}, reference={"file": {"y": "parts.npy"}}))
    with pytest.raises(StudyError, match=rf"^saxpy\.toml: .*reference\.file\.y: .*{message}"):
        check_reference(problem({}, reference={"file": {"y": file}}))


def test_what_results_belonged_to_they_belong_to_still() -> None:
    """Hashes of version 0.2: a change here would lose everything that users have stored."""
    key = Problem(study()).key
    assert (key.study_hash, key.kernel_hash) == ("68d11c8143d8803ae0f04ab7bb4278e7", "e8bc0a9356d3ef872a95d6054ad0d78e")
