"""Finds and hashes the data files beside a study, and reads their headers (standard library only).

    .npy, .npz   NumPy's arrays; nothing pickled. `part` names the member of a .npz
    .mtx         a matrix of the MatrixMarket; `part` names what is taken of it (MATRIX_PARTS, MATRIX_NUMBERS)
    others       plain numbers of a `type`, one after the other, little-endian

The header is read before any data, so that a file that does not fit, or is damaged, takes no memory.
"""

from __future__ import annotations

import hashlib
import lzma
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from autotune.errors import StudyError, placed
from autotune.identity import file_name_fault
from autotune.study.library import is_file
from autotune.text import did_you_mean

MATRIX_PARTS = ("indptr", "indices", "values", "row_indices")
"""Arrays of a sparse matrix by rows (CSR): where each row begins, the column and the value of each entry, its row."""

MATRIX_NUMBERS = ("rows", "columns", "entries")

MAX_DATA = 64 * 2**30
"""The most bytes of a file: each look-up reads all of it, to hash what its results belong to."""

_MAX_HEADER = 10_000
_LINE = 4
"""Bytes of the shortest entry of a sparse matrix: `1 1` and a line's end."""

DAMAGED = (
    ValueError, TypeError, LookupError, SyntaxError, EOFError, RuntimeError, MemoryError, struct.error,
    zipfile.BadZipFile, zlib.error, lzma.LZMAError,
)  # fmt: skip
"""What Python's and NumPy's readers raise for damaged files."""

_BYTES = {
    "char": 1, "uchar": 1, "short": 2, "ushort": 2, "int": 4, "uint": 4, "long": 8, "ulong": 8,
    "half": 2, "float": 4, "double": 8,
}  # fmt: skip
"""Bytes of the scalar types; types.py needs NumPy."""


class Header(NamedTuple):
    """The shape of a file's array, and the type of its elements as NumPy names it (`<f4`, `|O`)."""

    shape: tuple[int, ...]
    kind: str

    @property
    def itemsize(self) -> int:
        """Bytes of an element; 1 if only NumPy can tell."""
        digits = self.kind[2:]
        return int(digits) if digits.isdecimal() and len(digits) < 5 else 1


class Matrix(NamedTuple):
    """What the first lines of a matrix say; `entries` includes the mirrored entries of a symmetric matrix."""

    sparse: bool
    rows: int
    columns: int
    entries: int


def find_data(name: str, study: Path, where: str) -> Path:
    """Return the file of that name beside a study, or in a folder there. Raises StudyError for any other place."""
    place = f"{study}: {where}"
    if fault := file_name_fault(name):
        raise StudyError(f"no file {name!r:.80}", where=place, hint=fault)
    folder = os.path.realpath(study.parent)
    real = "" if "\0" in name else os.path.realpath(f"{folder}/{name}" if not name.startswith("/") else name)
    if not real.startswith(folder.rstrip("/") + "/"):
        raise StudyError(
            f"{name!r:.80} lies outside the study's folder", where=place, hint="copy it beside the study, not as a link"
        )
    if not is_file(Path(real)):
        what = "is not a file" if os.path.lexists(real) else "is not there"
        raise StudyError(f"{name!r:.80} {what}", where=place, hint=f"looked in {study.parent}")
    if (nbytes := Path(real).stat().st_size) > MAX_DATA:
        raise StudyError(f"{name!r:.80} has {nbytes:,} bytes, more than the 64 GiB that are read", where=place)
    return Path(real)


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's contents. Raises StudyError if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise StudyError(f"cannot be read: {error.strerror}", where=str(path)) from None


def size_of(entry: Mapping[str, Any], study: Path, where: str) -> int:
    """Return the size that `NAME = { file = ..., part = ..., axis = ... }` of a study gives. Raises StudyError."""
    file, part, kind, axis = (entry.get(key) for key in ("file", "part", "type", "axis"))
    if not isinstance(file, str) or not all(isinstance(text, str | None) for text in (part, kind)):
        raise StudyError(
            "needs a file", where=f"{study}: {where}", hint='write NNZ = { file = "m.mtx", part = "entries" }'
        )
    path = find_data(file, study, where)
    with placed(f"{study}: {where}"):
        if path.suffix == ".mtx" and part in MATRIX_NUMBERS:
            return int(getattr(matrix_of(path), part))
        shape = header_of(path, part, kind).shape
    number = axis or 0
    if type(number) is not int or not 0 <= number < len(shape):
        raise StudyError(f"has no axis {number!r:.20}, its shape is {shape}", where=f"{study}: {where}")
    return shape[number]


def header_of(path: Path, part: str | None, kind: str | None) -> Header:
    """Return the header of a data file. Raises StudyError, naming the file, if it is damaged or of no known kind."""
    if kind is not None and path.suffix in (".npy", ".npz", ".mtx"):
        raise StudyError("already says what type it has", where=str(path), hint=f'leave out type = "{kind}"')
    if part is not None and path.suffix not in (".npz", ".mtx"):
        raise StudyError("has no parts", where=str(path), hint=f'leave out part = "{part}"')
    try:
        match path.suffix:
            case ".npy":
                with path.open("rb") as file:
                    header, begins = _numpy_header(file)
                _require_length(path, header, begins)
                return header
            case ".npz":
                with zipfile.ZipFile(path) as archive, opened(archive, part) as member:
                    return _numpy_header(member)[0]
            case ".mtx":
                return _matrix_header(matrix_of(path), part)
        return _raw_header(path, kind)
    except OSError as error:
        raise StudyError(f"cannot be read: {error.strerror or error}", where=str(path)) from None
    except StudyError as error:
        raise error if error.where else error.at(str(path)) from None
    except DAMAGED as error:
        raise StudyError(f"is damaged, or not a {path.suffix} file: {error}", where=str(path)) from None


def opened(archive: zipfile.ZipFile, part: str | None) -> IO[bytes]:
    """Open the array of a .npz that `part` names; without `part`, the only one. Raises StudyError."""
    members = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
    name = members[0] if part is None and len(members) == 1 else part
    if name not in members:
        what = "holds several arrays" if part is None else f"holds no {part!r}{did_you_mean(part, members)}"
        raise StudyError(what, hint=f"part is one of {', '.join(members)[:200]}" if members else "")
    return archive.open(f"{name}.npy")


def matrix_of(path: Path) -> Matrix:
    """Return what the first lines of a matrix say; the others are counted if it is symmetric. Raises StudyError."""
    try:
        with path.open("rb") as file:
            return _matrix(file, path.stat().st_size)
    except OSError as error:
        raise StudyError(f"cannot be read: {error.strerror}", where=str(path)) from None
    except ValueError as error:
        raise StudyError(f"is not a matrix of the MatrixMarket: {error}", where=str(path)) from None


def _matrix(file: BinaryIO, nbytes: int) -> Matrix:
    words = file.readline(_MAX_HEADER).decode("ascii").lower().split()
    if len(words) != 5 or words[:2] != ["%%matrixmarket", "matrix"] or words[2] not in ("coordinate", "array"):
        raise ValueError("its first line is not '%%MatrixMarket matrix coordinate|array TYPE SYMMETRY'")
    if words[3] not in ("real", "double", "integer", "pattern") or words[4] not in (
        "general", "symmetric", "skew-symmetric",
    ):  # fmt: skip
        raise ValueError(f"it is {words[3]} {words[4]}; real, integer and pattern can be read, hermitian cannot")
    line = b"%"
    while line.startswith(b"%") or (line and not line.strip()):
        line = file.readline(_MAX_HEADER)
    sparse = words[2] == "coordinate"
    numbers = [int(word) if word.isdigit() and len(word) < 20 else -1 for word in line.split()]
    if len(numbers) != 2 + sparse or min(numbers) < 0 or max(numbers) >= 2**62:
        raise ValueError("the line of its extents is damaged")
    rows, columns = numbers[:2]
    stored = numbers[2] if sparse else 0
    if stored * _LINE > nbytes + 1:
        raise ValueError(f"it is cut short: {stored} entries in {nbytes} bytes")
    if not sparse:
        return Matrix(False, rows, columns, rows * columns)
    if words[4] == "general":
        return Matrix(True, rows, columns, stored)
    return Matrix(True, rows, columns, 2 * stored - sum(islice(_on_diagonal(file), stored)))


def _on_diagonal(file: BinaryIO) -> Iterator[bool]:
    for line in iter(lambda: file.readline(_MAX_HEADER), b""):
        words = line.split(None, 2)  # separated by blanks or tabs
        if words and not words[0].startswith(b"%"):
            yield words[1:2] == words[:1]


def _matrix_header(matrix: Matrix, part: str | None) -> Header:
    if part == "values" and not matrix.sparse:
        return Header((matrix.rows, matrix.columns), "<f8")
    if not matrix.sparse or part not in MATRIX_PARTS:
        known = MATRIX_PARTS if matrix.sparse else ("values",)
        raise StudyError(
            f"a matrix has no part {part!r:.40}" if part else "a matrix needs a part",
            hint=f"part is one of {', '.join(known)}; as a size {', '.join(MATRIX_NUMBERS)}",
        )
    return Header((matrix.rows + 1 if part == "indptr" else matrix.entries,), "<f8" if part == "values" else "<i8")


def _raw_header(path: Path, kind: str | None) -> Header:
    if path.suffix.lower() in (".csv", ".tsv", ".txt"):
        between = ", delimiter=','" if path.suffix.lower() == ".csv" else ""
        made = f"np.save({path.stem + '.npy'!r}, np.loadtxt({path.name!r}{between}))"
        raise StudyError("is text, not numbers as they lie in memory", hint=f"{made} makes an array of it")
    if kind not in _BYTES:
        what = f"unknown type {kind!r:.40}{did_you_mean(kind, _BYTES)}" if kind else "is not a .npy, .npz or .mtx file"
        raise StudyError(what, hint='plain numbers need their type: type = "float"')
    nbytes, each = path.stat().st_size, _BYTES[kind]
    if nbytes % each:
        raise StudyError(f"its {nbytes} bytes are not a whole number of {kind}")
    sign = "f" if kind in ("half", "float", "double") else "u" if kind.startswith("u") else "i"
    return Header((nbytes // each,), f"<{sign}{each}")


def _numpy_header(file: Any) -> tuple[Header, int]:
    """Return the header of a .npy, and where its data begins. Raises ValueError."""
    magic = file.read(8)
    if len(magic) < 8 or magic[:6] != b"\x93NUMPY" or magic[6] not in (1, 2, 3):
        raise ValueError("it does not begin as one")
    wide = 2 if magic[6] == 1 else 4
    length = int.from_bytes(file.read(wide), "little")
    text = file.read(min(length, _MAX_HEADER + 1))
    if length > _MAX_HEADER or len(text) < length:
        raise ValueError("its header is cut short, or too long")
    import ast

    try:
        fields = ast.literal_eval(text.decode("utf-8" if magic[6] == 3 else "latin-1").strip())
        shape, kind = fields["shape"], fields["descr"]
    except (SyntaxError, KeyError, TypeError, RecursionError, MemoryError):
        raise ValueError("its header cannot be read") from None
    if not isinstance(shape, tuple) or not all(type(extent) is int and extent >= 0 for extent in shape):
        raise ValueError("its header has no shape")
    return Header(shape, kind if isinstance(kind, str) else "|V"), 8 + wide + length


def _require_length(path: Path, header: Header, begins: int) -> None:
    """Raise StudyError if a .npy of plain numbers has less data than its header says."""
    if header.kind[1:2] not in ("b", "i", "u", "f"):
        return  # structs, or types that its reader refuses
    needed = begins + math.prod(header.shape) * header.itemsize
    if path.stat().st_size < needed:
        raise StudyError(f"is cut short: {path.stat().st_size} bytes, {needed} are needed for {header.shape}")
