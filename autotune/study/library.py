"""Finds studies and kernels, reads them as text, and hashes what decides a result.

Standard library only, and without pathlib, whose import takes time in look-ups: paths are text here. study.py validates
studies; this file reads only what it needs, and raises a clear error if that is missing.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from functools import cached_property, lru_cache
from os import path as paths
from typing import TYPE_CHECKING, Any, NamedTuple

from autotune.errors import StudyError
from autotune.identity import (
    MAX_LEVELS,
    ProblemKey,
    Value,
    file_name_fault,
    plain_copy,
    require_names,
    require_values,
    text_digest,
)

if TYPE_CHECKING:
    from pathlib import Path

    from autotune.study.study import Study

File = str | os.PathLike[str]

MEASURED_TABLES = (
    "arguments", "check", "defines", "device", "launch", "options", "reference", "structs", "tolerance", "timing",
)  # fmt: skip
"""The tables of a study that decide what is run and accepted; only they enter the study's hash."""

MAX_TEXT = 4 * 2**20
"""Characters of a kernel with its includes, counted while they are inserted."""

# No key begins after a backslash; else each in a row of escaped quotation marks would start a search to its end.
_LONG_KEY = r"""(?<![\w."'\\-])(?:(?:[\w-]+|"(?:\\.|[^"\\])*"|'[^']*')[ \t]*\.[ \t]*){%d}""" % (MAX_LEVELS + 1)  # noqa: UP031


class _StudyFields(NamedTuple):
    name: str
    file: File
    table: Mapping[str, Any]
    kernel_file: File
    source: str
    shadows: File | None = None


class StudyText(_StudyFields):
    """A study as its author wrote it: the parsed TOML and the kernel's text with local includes inlined.

    `shadows` is the bundled study of the same name that a study found in `./studies` hides, if any. It is a named
    tuple, not a dataclass: see identity.py.
    """

    made: Any = None
    """The Study that was made in Python with this text: a text cannot hold a function that is its reference."""

    came: Any = None
    """The `Places` of its files (places.py) if it came from another machine; None if they lie beside it."""

    def __repr__(self) -> str:
        return f"StudyText({self.name!r}, {str(self.file)!r})"

    @property
    def path(self) -> Path:
        """The study's file."""
        from pathlib import Path

        return Path(self.file)

    @property
    def kernel_path(self) -> Path:
        """The kernel's file."""
        from pathlib import Path

        return Path(self.kernel_file)

    @cached_property
    def kernel_hash(self) -> str:
        """Hash of the kernel's text with its includes, 32 hexadecimal digits."""
        return text_digest(self.source)

    @cached_property
    def study_hash(self) -> str:
        """Hash of the tables that decide what is run and accepted, 32 hexadecimal digits."""
        measured = {name: self.table[name] for name in MEASURED_TABLES if name in self.table}
        read = ""
        if _reads_more(self.table):
            from autotune.study import reads

            read = reads.text_read(self.table, self.file)
        return text_digest(_json(measured) + read)

    @cached_property
    def study(self) -> Study:
        """The validated study, made once. Raises StudyError."""
        from autotune.study.study import Study

        return Study.from_text(self)


def _reads_more(table: Mapping[str, Any]) -> bool:
    """Return whether a study reads files besides its kernel: for its reference, or for data."""
    reference, arguments = table.get("reference"), table.get("arguments")
    if isinstance(reference, Mapping) and not reference.keys() <= {"numpy", "function", "configuration"}:
        return True
    entries = arguments.values() if isinstance(arguments, Mapping) else ()
    data = [entry["data"] for entry in entries if isinstance(entry, Mapping) and "data" in entry]
    return any(isinstance(entry, Mapping) and ("file" in entry or "python" in entry) for entry in data)


def problem_key(text: StudyText, size: Mapping[str, int], choices: Mapping[str, Value], fingerprint: str) -> ProblemKey:
    """Return the key of results of this study at this size, with these choices, on that device."""
    return ProblemKey(text.name, text.kernel_hash, text.study_hash, fingerprint, dict(size), dict(choices))


def space_hash(text: StudyText) -> str:
    """Return a hash of what decides which configurations are valid, 32 hexadecimal digits.

    It is not part of a ProblemKey, so that widening a parameter keeps what was measured. A search records it, so that
    a look-up knows, without evaluating anything, that a stored configuration still obeys the study's constraints.
    """
    parameters = text.table.get("parameters", {})
    values = {name: entry.get("values") for name, entry in parameters.items() if isinstance(entry, Mapping)}
    ruled = {name: text.table[name] for name in ("constraints", "requires") if name in text.table}
    return text_digest(_json([values, ruled]))


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def find_study(name_or_path: str) -> StudyText:
    """Return the study with that name, as `study_file` finds it, or at that path.

    A text with a slash or the suffix `.toml` is a path. Raises StudyError if there is none.
    """
    if "/" in name_or_path or name_or_path.endswith(".toml"):
        if is_file(name_or_path) and not name_or_path.endswith(".cl"):
            return read_study(name_or_path)
    elif (file := study_file(name_or_path)) is not None:
        bundled = _bundled(name_or_path)
        hides = file != bundled and is_file(bundled) and read_text(file) != read_text(bundled)
        return read_study(file, shadows=bundled if hides else None)
    from autotune.study.finding import not_found

    raise not_found(name_or_path)


def study_file(name: str) -> str | None:
    """Return the file of that name in `./studies` or bundled, else the file in either whose `name` it is.

    Results are stored and shown by the `name`. None if there is no such file. Raises StudyError if there are several.
    """
    for file in (paths.join("studies", f"{name}.toml"), _bundled(name)):
        if is_file(file):
            return file
    from autotune.study.finding import called

    return called(name)


def _bundled(name: str) -> str:
    return paths.join(bundled_folder(), "studies", f"{name}.toml")


def bundled_folder() -> str:
    """Return the folder that holds the bundled `studies/` and `kernels/`: in the wheel, or in the checkout."""
    package = paths.dirname(paths.dirname(paths.abspath(__file__)))
    inside = paths.join(package, "_library")
    return inside if paths.isdir(inside) else paths.dirname(package)


def read_study(file: File, *, shadows: File | None = None) -> StudyText:
    """Read a study file and its kernel. Raises StudyError naming file and line or key."""
    table = read_table(file)
    kernel_file, source = sources_of(table.get("kernel"), table, file, "kernel")
    stem = paths.splitext(paths.basename(file))[0]
    return StudyText(str(table.get("name", stem)), file, table, kernel_file, source, shadows)


def read_table(file: File) -> dict[str, Any]:
    """Return a study file's tables, unchecked except for what cannot be hashed. Raises StudyError."""
    text = read_text(file)
    for number, line in enumerate(text.split("\n"), 1):
        # Refused before parsing: its time and memory grow with the square of the key's parts.
        if line.count(".") > MAX_LEVELS and re.search(_LONG_KEY, line):
            raise StudyError(f"has a key of more than {MAX_LEVELS} levels", where=f"{file}:{number}")
    try:
        table = (_parsed if len(text) < 2**16 else tomllib.loads)(text)
    except (ValueError, RecursionError) as error:
        limits = {RecursionError: "nested too deeply", ValueError: "a number has too many digits"}  # Python's own
        hint = "write text and expressions in quotation marks" if str(error).startswith("Invalid value") else ""
        raise StudyError(f"not valid TOML: {limits.get(type(error), error)}", where=str(file), hint=hint) from error
    return plain_copy(table, str(file))


_parsed = lru_cache(maxsize=16)(tomllib.loads)  # few small texts: a server reads the same ones often


def sources_of(names: Any, table: Mapping[str, Any], study: File, key: str) -> tuple[str, str]:
    """Return the first of a key's kernel files and the text of all of them. Raises StudyError."""
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, list) or not listed or not all(isinstance(name, str) for name in listed):
        from autotune.study.finding import no_kernel

        raise no_kernel(table, study, key)
    files = [find_kernel(name, study, key) for name in listed]
    texts = [source_of(file, table, study) for file in files]
    if sum(map(len, texts)) > MAX_TEXT:
        from autotune.study.finding import too_large

        raise too_large(files[0])
    others = zip(files[1:], texts[1:], strict=True)
    return files[0], texts[0] + "".join(f"\n{line_mark(1, file)}\n{text}" for file, text in others)


def line_mark(number: int, file: File) -> str:
    """Return a `#line` for a file's lines from this one on; `?` replaces what would end the name or the line."""
    name = re.sub(r'["\\\x00-\x1f\x7f\ud800-\udfff]', "?", paths.basename(file))
    return f'#line {number} "{name}"'


def source_of(kernel: File, table: Mapping[str, Any], study: File) -> str:
    """Return the text of a kernel with what it includes, found as a study's options say. Raises StudyError."""
    text = read_text(kernel, code=True)
    joined = text.replace("\\\n", "")
    odd = any(mark in joined for mark in ("include", "import", "embed", "\0", "??", "\\ ", "\\\t", "\\\f", "\\\v"))
    if not odd and "options" not in table:
        return text  # no directive of interest, however it is spelt
    from autotune.study import includes

    return includes.inline(kernel, includes.folders_of(table, study), text)


CONFINED: ContextVar[str] = ContextVar("CONFINED", default="")
"""The folder (its real path) outside which files count as missing in this context (access.py); "": no limit."""


def is_outside(path: File) -> bool:
    """Return whether a file lies outside the folder of `confined` (access.py), so that it may not be read."""
    folder = CONFINED.get()
    return bool(folder) and not paths.realpath(path).startswith(folder + "/")


read_by: dict[int, set[str]] = {}
"""Sets that record which files are read or looked for, by any thread: the name of each is added to every set."""


def read_text(path: File, *, code: bool = False) -> str:
    """Return the text of a source file, with plain line ends. Raises StudyError if it is not text.

    `code`: a kernel, in which compilers accept bytes that are not UTF-8: a copyright sign in Latin-1 reads `\\xa9`.
    """
    if is_outside(path):
        raise StudyError("did not come with the study", where=paths.basename(path))
    for names in list(read_by.values()):
        names.add(str(path))
    if paths.exists(path) and not paths.isfile(path) and not paths.isdir(path):
        raise StudyError("is not a file", where=str(path), hint="name one")  # to open a pipe waits for who writes to it
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_TEXT + 1)
        if len(data) > MAX_TEXT:
            raise StudyError(f"is larger than {MAX_TEXT >> 20} MiB", where=str(path))
        text = data.decode("utf-8-sig", "backslashreplace" if code else "strict")
    except OSError as error:
        raise StudyError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except (UnicodeDecodeError, ValueError) as error:
        raise StudyError(f"cannot be read: {error}", where=str(path), hint="save it as UTF-8") from error
    return text.replace("\r\n", "\n").replace("\r", "\n")


def is_file(path: File) -> bool:
    """Return whether a file exists; False also for an impossible name, for which `Path.is_file` raises."""
    for names in list(read_by.values()):
        names.add(str(path))
    return paths.isfile(path) and not is_outside(path)


def find_kernel(name: str, study: File, key: str) -> str:
    """Return the file that a key of a study names, in the first of `kernel_folders` that has it. Raises StudyError."""
    places = kernel_folders(study)
    for place in places:
        if is_file(found := paths.join(place, name)):
            return found
    looked = file_name_fault(name) or f"looked in {' and '.join(dict.fromkeys(place or '.' for place in places))}"
    hint = "it did not come with the study: send it along, under that name" if CONFINED.get() else looked
    raise StudyError(f"no file {name!r}", where=f"{study}: {key}", hint=hint)


def kernel_folders(study: File) -> Sequence[str]:
    """Return where a study's kernels are: beside it, in the sibling `kernels/`, or bundled."""
    own = paths.dirname(study), paths.join(paths.dirname(paths.dirname(study)), "kernels")
    return own if CONFINED.get() else (*own, paths.join(bundled_folder(), "kernels"))


def default_size(text: StudyText) -> dict[str, int]:
    """Return the sizes of a study with their defaults."""
    sizes = text.table.get("sizes", {})
    if not isinstance(sizes, Mapping) or not all(type(v) is int or isinstance(v, Mapping) for v in sizes.values()):
        raise StudyError("needs whole numbers", where=f"{text.file}: sizes", hint="write M = 1024")
    require_names(sizes, f"{text.file}: sizes")
    return {name: value if type(value) is int else _size_of(value, name, text) for name, value in sizes.items()}


def _size_of(entry: Any, name: str, text: StudyText) -> int:
    from autotune.study import reads

    return reads.size_read(entry, name, text.file)


def offered_choices(text: StudyText) -> dict[str, Sequence[Value]]:
    """Return what each choice of a study offers; the first is the default."""
    choices, where = text.table.get("choices", {}), f"{text.file}: choices"
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
    """Return each parameter of a study at its default (the first value if none is named)."""
    values = parameter_values(text)
    stated = {name: entry for name, entry in text.table["parameters"].items() if isinstance(entry, Mapping)}
    return {name: stated.get(name, {}).get("default", listed[0]) for name, listed in values.items()}


def parameter_values(text: StudyText) -> dict[str, Sequence[Value]]:
    """Return the listed values of each parameter of a study."""
    parameters, where = text.table.get("parameters"), f"{text.file}: parameters"
    if not isinstance(parameters, Mapping) or not parameters:
        raise StudyError("needs values", where=where, hint="write values = [8, 16]")
    require_names(parameters, where)
    values: dict[str, Any] = {}
    for name, one in parameters.items():
        listed = values[name] = one.get("values") if isinstance(one, Mapping) else one
        if not isinstance(listed, list | tuple) or not listed:
            raise StudyError("needs values", where=f"{where}.{name}", hint="write values = [8, 16]")
        require_values(listed, f"{where}.{name}")
    return values
