"""Finds studies and kernels by name or by path, reads them as text, and hashes what decides a result.

Standard library only: the cold path of `autotune best` goes through here. Validation is study.py's work;
this file only reads what it needs and says clearly when that is not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from autotune.errors import StudyError
from autotune.identity import ProblemKey, Value, require_names, require_values, text_digest
from autotune.text import did_you_mean

if TYPE_CHECKING:
    from autotune.study.study import Study

MEASURED_TABLES = ("arguments", "defines", "device", "launch", "options", "reference", "tolerance", "timing")
"""The tables of a study that decide what is run and accepted; only they enter the study's hash."""

MAX_TEXT = 4 * 2**20
"""Characters of a kernel with its includes, counted while they are put in."""

_MAX_LEVELS = 20
_LONG_KEY = r"""(?<![\w."'-])(?:(?:[\w-]+|"(?:\\.|[^"\\])*"|'[^']*')[ \t]*\.[ \t]*){%d}""" % (_MAX_LEVELS + 1)  # noqa: UP031


_CONFINED: ContextVar[str] = ContextVar("_CONFINED", default="")
_RECORDED: ContextVar[list[Path] | None] = ContextVar("_RECORDED", default=None)


class _StudyFields(NamedTuple):
    name: str
    path: Path
    table: Mapping[str, Any]
    kernel_path: Path
    source: str
    shadows: Path | None = None


class StudyText(_StudyFields):
    """A study as its author wrote it: the parsed TOML and the kernel's text with local includes inlined.

    `shadows` is the bundled study of the same name that a study found in `./studies` hides, if any. A named
    tuple and no dataclass: see identity.py.
    """

    def __repr__(self) -> str:
        return f"StudyText({self.name!r}, {str(self.path)!r})"

    @cached_property
    def kernel_hash(self) -> str:
        """Hash of the kernel's text with its includes, 32 hexadecimal digits."""
        return text_digest(self.source)

    @cached_property
    def study_hash(self) -> str:
        """Hash of the tables that decide what is run and accepted, 32 hexadecimal digits."""
        measured = {name: self.table[name] for name in MEASURED_TABLES if name in self.table}
        return text_digest(_json(measured) + self._reference_text())

    @cached_property
    def study(self) -> Study:
        """The text validated, once. Raises StudyError."""
        from autotune.study.study import Study

        return Study.from_text(self)

    def _reference_text(self) -> str:
        """What the reference reads: a kernel with its includes; Python with the modules and data beside it."""
        reference = self.table.get("reference")
        if not isinstance(reference, Mapping):
            return ""
        kernel, python = str(reference.get("kernel", "")), str(reference.get("python", "")).rpartition(":")[0]
        text = ""
        if kernel:
            path = find_kernel(kernel, self.path, "reference.kernel")
            text += source_of(path, self.table, self.path)
        if python:
            from autotune.study.imports import files_of

            (_, own), *others = files_of(find_kernel(python, self.path, "reference.python")).items()
            text += own.decode(errors="replace").replace("\r\n", "\n")
            text += "".join(f"\0{name}\0{hashlib.sha256(data).hexdigest()}" for name, data in sorted(others))
        return text


def problem_key(text: StudyText, size: Mapping[str, int], choices: Mapping[str, Value], fingerprint: str) -> ProblemKey:
    """Return what results of this study at this size, with these choices, on that device belong to."""
    return ProblemKey(text.name, text.kernel_hash, text.study_hash, fingerprint, dict(size), dict(choices))


def space_hash(text: StudyText) -> str:
    """Return a hash of what decides which configurations are valid, 32 hexadecimal digits.

    It is no part of a ProblemKey: widening a parameter keeps what was measured. A search records it, so that a
    look-up knows without evaluating anything that a stored configuration still obeys the study's constraints.
    """
    parameters = text.table.get("parameters", {})
    values = {name: entry.get("values") for name, entry in parameters.items() if isinstance(entry, Mapping)}
    ruled = {name: text.table[name] for name in ("constraints", "requires") if name in text.table}
    return text_digest(_json([values, ruled]))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def find_study(name_or_path: str) -> StudyText:
    """Return the study with that name (`./studies` first, then the bundled ones) or at that path.

    A text with a slash or the suffix `.toml` is a path. Raises StudyError where there is none.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        path = Path(name_or_path)
        if not is_file(path):
            what = "not a study file" if os.path.lexists(path) else "no such study file"
            raise StudyError(f"{what}: {name_or_path}", hint="autotune studies lists those found by name")
        return read_study(path)
    own, bundled = (folder / f"{name_or_path}.toml" for folder in (Path("studies"), bundled_folder() / "studies"))
    if is_file(own):
        hides = bundled.is_file() and own.read_bytes() != bundled.read_bytes()
        return read_study(own, shadows=bundled if hides else None)
    if is_file(bundled):
        return read_study(bundled)
    raise StudyError(
        f"no study named {name_or_path!r}",
        hint=f"known: {', '.join(sorted(study_paths()))}{did_you_mean(name_or_path, study_paths())}; "
        "a path needs a slash or the suffix .toml",
    )


def study_paths() -> dict[str, Path]:
    """Return the studies that a name finds here: the bundled ones and those in `./studies`, by name."""
    folders = (bundled_folder() / "studies", Path("studies"))
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.toml"))}


def bundled_folder() -> Path:
    """Return the folder that holds the bundled `studies/` and `kernels/`: in the wheel, or in the checkout."""
    package = Path(__file__).parent.parent
    inside = package / "_library"
    return inside if inside.is_dir() else package.parent


def read_study(path: Path, *, shadows: Path | None = None) -> StudyText:
    """Read a study file and its kernel. Raises StudyError naming file and line or key."""
    text = read_text(path)
    _require_short_keys(text, path)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise StudyError(f"not valid TOML: {error}", where=str(path)) from error
    except (ValueError, RecursionError) as error:  # Python's own limits
        what = "nested too deeply" if isinstance(error, RecursionError) else "a number has too many digits"
        raise StudyError(f"not valid TOML: {what}", where=str(path)) from error
    require_plain(table, str(path))
    kernel = table.get("kernel")
    if not isinstance(kernel, str):
        raise StudyError("names no kernel file", where=str(path), hint=f'add a line such as: kernel = "{path.stem}.cl"')
    kernel_path = find_kernel(kernel, path)
    name = str(table.get("name", path.stem))
    return StudyText(name, path, table, kernel_path, source_of(kernel_path, table, path), shadows)


def source_of(kernel: Path, table: Mapping[str, Any], study: Path) -> str:
    """Return the text of a kernel with what it includes, found as a study's options say. Raises StudyError."""
    text = read_text(kernel)
    joined = text.replace("\\\n", "")
    odd = any(mark in joined for mark in ("include", "import", "embed", "\0", "??", "\\ ", "\\\t", "\\\f", "\\\v"))
    if not odd and "options" not in table:
        return text  # no directive of interest, however it is spelt
    from autotune.study import includes

    return includes.inline(kernel, includes.folders_of(table, study), text)


@contextmanager
def confined(folder: Path) -> Iterator[None]:
    """Have nothing read for a study, within this context, that does not lie in the folder: what others wrote.

    What lies elsewhere is not there: neither an absolute path nor `..`, nor a link, nor the bundled kernels.
    """
    token = _CONFINED.set(os.path.realpath(folder))
    try:
        yield
    finally:
        _CONFINED.reset(token)


@contextmanager
def recorded() -> Iterator[list[Path]]:
    """Yield a list to which every file is added that is read for a study within this context."""
    files: list[Path] = []
    token = _RECORDED.set(files)
    try:
        yield files
    finally:
        _RECORDED.reset(token)


def record(path: Path) -> None:
    """Note that a file is read, where somebody wants to know."""
    files = _RECORDED.get()
    if files is not None:
        files.append(path)


def _is_outside(path: Path) -> bool:
    folder = _CONFINED.get()
    return bool(folder) and not os.path.realpath(path).startswith(folder + os.sep)


def read_text(path: Path) -> str:
    """Return the text of a source file, with plain line ends. Raises StudyError where it is none."""
    if _is_outside(path):
        raise StudyError("did not come with the study", where=path.name)
    record(path)
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEXT + 1)
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise StudyError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise StudyError(f"cannot be read: {error}", where=str(path), hint="save it as UTF-8") from error
    if len(data) > MAX_TEXT:
        raise too_large(path)
    return text


def is_file(path: Path) -> bool:
    """Whether there is such a file that may be read; False also for a name that none can have."""
    return os.path.isfile(path) and not _is_outside(path)  # noqa: PTH113  Path.is_file raises where a name is too long


def too_large(path: Path) -> StudyError:
    """Return the error for a kernel beyond MAX_TEXT."""
    return StudyError("the kernel with its includes is larger than 4 MiB", where=str(path))


def _require_short_keys(text: str, path: Path) -> None:
    """Raise StudyError for `a.a.a...`, before it is parsed: time and memory grow with the square of its parts."""
    for number, line in enumerate(text.split("\n"), 1):
        if line.count(".") > _MAX_LEVELS and re.search(_LONG_KEY, line):
            raise StudyError(f"has a key of more than {_MAX_LEVELS} levels", where=f"{path}:{number}")


def require_plain(table: Mapping[str, Any], where: str) -> None:
    """Raise StudyError for tables nested too deeply, and for a number that 64 bits do not hold."""
    level: list[tuple[str, Any]] = list(table.items())
    for _ in range(_MAX_LEVELS):
        for key, value in level:
            if isinstance(value, int) and not -(2**63) <= value < 2**63:
                raise StudyError("holds a whole number beyond 64 bits", where=f"{where}: {key}")
        level = [(f"{key}.{name}", inner) for key, value in level for name, inner in _inside(value)]
    if level:
        raise StudyError(f"is nested more than {_MAX_LEVELS} levels deep", where=f"{where}: {level[0][0][:80]}")


def _inside(value: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    return enumerate(value, 1) if isinstance(value, list | tuple) else ()


def find_kernel(name: str, study: Path, key: str = "kernel") -> Path:
    """Return the file that a key of a study names: beside it, in the sibling `kernels/`, or bundled."""
    folder = study.parent
    places = [folder, folder.parent / "kernels", bundled_folder() / "kernels"]
    if _CONFINED.get():
        places = [folder]
    for place in places:
        if is_file(place / name):
            return place / name
    looked = " and ".join(dict.fromkeys(str(place) for place in places))
    raise StudyError(f"no file {name!r}", where=f"{study}: {key}", hint=f"looked in {looked}")


def default_size(text: StudyText) -> dict[str, int]:
    """Return the sizes of a study with their defaults."""
    sizes = text.table.get("sizes", {})
    if not isinstance(sizes, Mapping) or not all(type(value) is int for value in sizes.values()):
        raise StudyError("needs whole numbers", where=f"{text.path}: sizes", hint="write M = 1024")
    require_names(sizes, f"{text.path}: sizes")
    return dict(sizes)


def offered_choices(text: StudyText) -> dict[str, Sequence[Value]]:
    """Return what each choice of a study offers; the first is the default."""
    choices, where = text.table.get("choices", {}), f"{text.path}: choices"
    if not isinstance(choices, Mapping) or not all(isinstance(v, list) and v for v in choices.values()):
        raise StudyError("needs lists of values", where=where, hint='write T = ["float"]')
    require_names(choices, where)
    for name, values in choices.items():
        require_values(values, f"{where}.{name}")
    return dict(choices)


def default_choices(text: StudyText) -> dict[str, Value]:
    """Return each choice of a study at its first value, the default."""
    return {name: values[0] for name, values in offered_choices(text).items()}


def default_configuration(text: StudyText) -> dict[str, Value]:
    """Return each parameter of a study at its default (the first value where none is named)."""
    values = parameter_values(text)
    stated = {name: entry for name, entry in text.table["parameters"].items() if isinstance(entry, Mapping)}
    return {name: stated.get(name, {}).get("default", listed[0]) for name, listed in values.items()}


def parameter_values(text: StudyText) -> dict[str, Sequence[Value]]:
    """Return the listed values of each parameter of a study."""
    parameters, where = text.table.get("parameters"), f"{text.path}: parameters"
    tables = parameters if isinstance(parameters, Mapping) else {"": None}
    values: dict[str, Any] = {
        name: entry.get("values") if isinstance(entry, Mapping) else entry for name, entry in tables.items()
    }
    if not values or not all(isinstance(listed, list | tuple) and listed for listed in values.values()):
        raise StudyError("needs values", where=where, hint="write values = [8, 16]")
    require_names(values, where)
    for name, listed in values.items():
        require_values(listed, f"{where}.{name}")
    return values
