"""Finds what a Python reference is made of, so that no change that decides an expected output goes unnoticed.

For a file: the file, the modules beside it and the data files it names. They are found in the text, never by running
it; pool/alone.py, which runs it, allows no other files. For a function given to `Study()`: its code, and what the code
refers to. Standard library only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

from autotune.errors import StudyError, without
from autotune.study.library import is_file

if TYPE_CHECKING:
    import ast

MAX_BYTES = 64 * 2**20
"""Bytes of all files of a reference."""

_MAX_NAME = 200
_MAX_PIECES = 100_000
_MAX_DEPTH = 20


def files_of(path: Path) -> dict[str, bytes]:
    """Return the contents of the reference's file and of the files it uses from its folder, by path in the folder.

    These are modules that it imports anywhere in its code, and files named by its text constants. Raises StudyError
    for invalid Python, and for more than 64 MiB.
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
        with without(Warning):
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


def digest_of(value: Any) -> str:
    """Return a digest of an array or a function (its code, defaults and what it refers to), 32 hexadecimal digits.

    It follows plain data, arrays and the author's functions, in closures, modules, partials and methods; installed
    code counts by its name. It ends after 100,000 pieces, and 20 levels deep.
    """
    digest = hashlib.sha256()
    for piece in islice(_pieces(value, set(), 0), _MAX_PIECES):
        digest.update(len(piece).to_bytes(8) + piece)
    return digest.hexdigest()[:32]


def _pieces(value: Any, begun: set[FunctionType], depth: int) -> Iterator[bytes]:
    """Yield bytes that distinguish a value from others, in a fixed order; a function is followed once."""
    yield type(value).__qualname__.encode()
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        yield repr(value).encode()
    elif depth <= _MAX_DEPTH:
        for part in _parts(value, begun):
            yield from _pieces(part, begun, depth + 1)


def _parts(value: Any, begun: set[FunctionType]) -> Iterable[Any]:
    """Return the parts of a value."""
    if isinstance(value, tuple | list):
        return value
    if isinstance(value, set | frozenset):
        return sorted(value, key=repr)
    if isinstance(value, Mapping):
        return value.items()
    if isinstance(value, CodeType):
        return value.co_code, value.co_names, value.co_varnames, value.co_freevars, value.co_consts
    if isinstance(value, MethodType):
        return value.__func__, getattr(value.__self__, "__dict__", None)
    if isinstance(value, partial):
        return value.func, value.args, value.keywords
    if isinstance(value, FunctionType) and value not in begun and not _is_installed(value.__code__.co_filename):
        begun.add(value)
        return value.__code__, value.__defaults__, value.__kwdefaults__, *_referred(value)
    if callable(value) and isinstance(type(value).__call__, FunctionType):
        return type(value).__call__, getattr(value, "__dict__", None)
    with suppress(TypeError, ValueError):  # an array
        view = memoryview(value)
        if "O" not in view.format:
            return view.format, view.shape, view.tobytes()
    return getattr(value, "__module__", None), getattr(value, "__qualname__", getattr(value, "__name__", None))


def _referred(function: FunctionType) -> Iterator[Any]:
    """Yield the values that a function uses: from its closure, from its module, and by name from other modules."""
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # not filled yet
            yield cell.cell_contents
    names = set(_names(function.__code__))
    for name in sorted(names & function.__globals__.keys()):
        value = function.__globals__[name]
        yield value
        file = getattr(value, "__file__", None)
        if isinstance(value, ModuleType) and file is not None and not _is_installed(file):
            yield from (vars(value)[each] for each in sorted(names & vars(value).keys()))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)


def _is_installed(file: str) -> bool:
    import sysconfig

    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return any(Path(file).is_relative_to(place) for place in places)
