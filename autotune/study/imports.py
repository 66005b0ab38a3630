"""What a reference in Python is made of: its file, the modules beside it, the data it names (standard library only).

Read from the text, never by running it. engine's child process, which runs it, holds it to this list: what it opens
besides is refused, so that no change of a file that decides an expected output goes unnoticed.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import StudyError
from autotune.study.library import is_file

if TYPE_CHECKING:
    import ast

MAX_BYTES = 64 * 2**20
"""Bytes of all files of a reference."""

_MAX_NAME = 200


def files_of(path: Path) -> dict[str, bytes]:
    """Return the contents of the reference's file and of what it takes from its folder, by path within that.

    Followed are `import`s of what lies there, wherever they stand, and text constants that name a file there.
    Raises StudyError for what is no Python, and for more than 64 MiB.
    """
    folder, found, size = path.parent, dict[str, bytes](), 0
    waiting = [path.name]
    while waiting:
        name = waiting.pop(0)
        if name in found:
            continue
        found[name] = _read(folder / name, MAX_BYTES - size)
        size += len(found[name])
        if name.endswith(".py"):
            tree = _parse(found[name], folder / name)
            waiting += sorted(set(_named(tree, folder, Path(name).parent)))
    return found


def _read(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise StudyError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if len(data) > limit:
        raise StudyError("the reference with its files is larger than 64 MiB", where=str(path))
    return data


def _parse(data: bytes, path: Path) -> ast.Module:
    import ast

    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(data)
    except SyntaxError as error:
        raise StudyError(f"is not Python: {error.msg}", where=f"{path}:{error.lineno or 1}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise StudyError(f"is not Python: {error}", where=str(path)) from None


def _named(tree: ast.Module, folder: Path, package: Path) -> Iterator[str]:
    """Yield the files in the folder that a module names, as paths within it; `package` is where the module lies."""
    import ast

    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _modules(folder, Path(), alias.name)
        elif isinstance(node, ast.ImportFrom):
            start = Path(*package.parts[: len(package.parts) - node.level + 1]) if node.level else Path()
            for alias in node.names:
                yield from _modules(folder, start, f"{node.module or ''}.{alias.name}".strip("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) <= _MAX_NAME:
            name = Path(node.value)
            if not name.is_absolute() and ".." not in name.parts and is_file(folder / name):
                yield str(name)


def _modules(folder: Path, start: Path, dotted: str) -> Iterator[str]:
    """Yield the files of a module and of the packages around it, as far as they lie in the folder."""
    place = start
    for part in dotted.split("."):
        for name in (place / f"{part}.py", place / part / "__init__.py"):
            if is_file(folder / name):
                yield str(name)
        place /= part
