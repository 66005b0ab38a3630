"""Reads the arrays in files beside a study with NumPy; files.py reads their headers."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import StudyError, placed
from autotune.study import files
from autotune.study.arguments import Data
from autotune.study.places import data_place

if TYPE_CHECKING:
    from autotune.study.problem import Problem

_ENTRY_BYTES = 64
"""The most bytes of memory that reading one entry of a matrix takes (indices, value, sorting), or one row."""


def read_array(problem: Problem, file: Data, where: str, room: Callable[[], float]) -> NDArray[Any]:
    """Return an array of a file beside the study, memory-mapped if possible. Raises StudyError."""
    header, path = header_in(problem, file, where), data_place(problem.study.text, str(file.file), where)
    nbytes = int(np.prod(header.shape, dtype=object)) * header.itemsize
    if path.suffix == ".mtx":
        matrix = files.matrix_of(path)
        nbytes = (matrix.rows + matrix.entries) * _ENTRY_BYTES
    if (free := room()) < nbytes:
        what = f"takes {nbytes / 2**30:.3g} GiB of memory, {free / 2**30:.3g} GiB are free"
        raise StudyError(what, where=f"{where}: {path.name}")
    try:
        return _read(path, file, header)
    except (*files.DAMAGED, OSError) as error:
        raise StudyError(f"cannot be read: {error}", where=f"{where}: {path.name}") from None


def header_in(problem: Problem, file: Data, where: str) -> files.Header:
    """Return the header of a file beside the study. Raises StudyError if it does not hold an array of numbers."""
    path = data_place(problem.study.text, str(file.file), where)
    with placed(where):
        header = files.header_of(path, file.part, file.type)
    if header.kind[1:2] not in ("b", "i", "u", "f", "V") or (header.itemsize > 8 and header.kind[1:2] != "V"):
        raise StudyError(
            f"{path.name} holds {header.kind!r:.40}, not numbers", where=where, hint="save it as real numbers"
        )
    return header


def _read(path: Path, file: Data, header: files.Header) -> NDArray[Any]:
    match path.suffix:
        case ".npy":
            empty = 0 in header.shape  # which cannot be mapped
            array: NDArray[Any] = np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)
            return array
        case ".npz":
            with zipfile.ZipFile(path) as archive, files.opened(archive, file.part) as member:
                return np.lib.format.read_array(member, allow_pickle=False)
        case ".mtx":
            return _matrix_part(path, str(file.part))
    return np.fromfile(path, header.kind)


def _matrix_part(path: Path, part: str) -> NDArray[Any]:
    from scipy.io import mmread

    matrix, told = mmread(path, spmatrix=False), files.matrix_of(path)
    if not told.sparse:
        return np.asarray(matrix)
    order = np.lexsort((matrix.col, matrix.row))
    rows, columns = matrix.row[order].astype(np.int64), matrix.col[order].astype(np.int64)
    if len(rows) != told.entries:
        raise ValueError(f"it has {len(rows)} entries and says {told.entries}")
    if ((rows[1:] == rows[:-1]) & (columns[1:] == columns[:-1])).any():
        raise ValueError("it has an entry twice")
    if part == "indptr":
        return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=told.rows))))
    return {"indices": columns, "row_indices": rows}[part] if part != "values" else np.asarray(matrix.data)[order]
