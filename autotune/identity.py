"""What a stored result belongs to, its canonical text, and which names and values are accepted. Standard library only.

Names and values come from study files, from imported lines and from databases that others may have written. They become
`-DNAME=VALUE`, lines of a header, keys of TOML and variables of a shell. So each is checked where it enters.

The cold path of `autotune best` imports this file, so it uses no dataclasses: with `inspect` they take as long to
import as sqlite3.
"""

from __future__ import annotations

import json
import math
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from autotune.errors import StudyError
from autotune.text import clean, plain

try:  # as the standard library's `random` does: hashlib loads OpenSSL, which takes longer than the rest of a look-up
    from _sha2 import sha256  # type: ignore[import-not-found]
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]
    except ImportError:
        from hashlib import sha256

Value = int | float | str
"""One value of a parameter or a choice."""

Configuration = Mapping[str, Value]
"""One value per parameter, in the study's order of parameters."""

Size = Mapping[str, int]
"""The problem size, e.g. `{"M": 1024, "N": 1024, "K": 1024}`."""

Choices = Mapping[str, Value]
"""Properties that the user chooses and that are not tuned, e.g. `{"T": "float"}`."""


class ProblemKey(NamedTuple):
    """What a stored result belongs to. If any field changes, no stale result is served silently.

    `kernel_hash` covers the kernel's source with its includes. `study_hash` covers the parts of the study that decide
    what is run and accepted (launches, arguments, options, reference, tolerance, timing). It does not cover prose or
    lists of values, so results stay valid when a parameter gets more values.
    """

    study: str
    kernel_hash: str
    study_hash: str
    device: str  # fingerprint
    size: Size
    choices: Choices


def ratio(here: Size, there: Size) -> float:
    """Return by what factor two sizes differ: the product of the factors of their dimensions, 1 for equal sizes.

    select.c.in computes it by the same steps, so that sizes that are equally near here are equally near there.
    """
    most = least = 1.0
    for one, other in ((here[name], there[name]) for name in here):
        if one != other:  # products of many different sizes can exceed a double
            most, least = min(most * max(one, other), 1e300), min(least * min(one, other), 1e300)
    return most / least


def apart(here: Size, there: Size) -> float:
    """Return how far two sizes are apart: the sum of the doublings in each dimension."""
    return math.log2(ratio(here, there))


def size_order(size: Size) -> tuple[int, ...]:
    """Return the sort key for lists of sizes: their numbers, in the order in which they are shown."""
    return tuple(size.values())


def own_value(value: Value, listed: Iterable[Value]) -> Value:
    """Return the listed value that equals a value, such as 1 for 1.0, or the value itself if there is none."""
    return next((own for own in listed if own == value), value)


def in_order(size: Size, names: Iterable[str]) -> dict[str, int]:
    """Return a size with its names in the given order, others after them: a database sorts them alphabetically."""
    return {name: size[name] for name in (*names, *size) if name in size}


def key_columns(key: ProblemKey) -> dict[str, str]:
    """Return the columns of `problems` for a key."""
    return {
        "study": clean(key.study),
        "kernel_hash": key.kernel_hash,
        "study_hash": key.study_hash,
        "device": key.device,
        "size": canonical(key.size),
        "choices": canonical(key.choices),
    }


def canonical(value: Any) -> str:
    """Return JSON text for keys and hashes: equal for equal values, whatever the order of their keys."""
    return _ENCODER.encode(plain(value))


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """Return 32 hexadecimal digits that stand for a JSON-like value."""
    return text_digest(canonical(value))


def text_digest(text: str) -> str:
    """Return 32 hexadecimal digits that stand for a text."""
    found: str = sha256(text.encode()).hexdigest()
    return found[:32]


STUDY_NAME = r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}"
"""Pattern of a study's name, which no command can mistake for an option or a folder."""


def study_name_of(text: str, otherwise: str) -> str:
    """Return a valid study name made from any text, or `otherwise` if the text is empty."""
    return re.sub(r"[^A-Za-z0-9_.-]|^[.-]", "_", text)[:64] or otherwise


_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PARAMETERS = re.compile(r"\((?:(?:[A-Za-z_]\w*,)*(?:[A-Za-z_]\w*|\.\.\.))?\)", re.ASCII)
_ACTED_ON = frozenset({
    "CDPATH", "ENV", "FPATH", "GCONV_PATH", "GLIBC_TUNABLES", "HOME", "IFS", "JAVA_TOOL_OPTIONS", "LOCPATH", "NLSPATH",
    "NODE_OPTIONS", "NODE_PATH", "PATH", "PERL5DB", "PERL5LIB", "PERL5OPT", "PERLLIB", "PROMPT_COMMAND", "PS0", "PS1",
    "PS2", "PS3", "PS4", "RUBYLIB", "RUBYOPT", "SHELL", "SHELLOPTS", "TMPDIR", "cdpath", "fpath", "path",
})  # fmt: skip
_C_MARKS = ("*/", "/*", "??/")
_ACTED_ON_FROM = ("BASH", "DYLD_", "LD_", "OCL_ICD_", "PYTHON")
"""Prefixes of names that a shell, the dynamic loader or an interpreter acts on, as on the names above."""


def name_fault(name: object) -> str:
    """Return what is wrong with a name, as text to follow it, or "" if it is accepted."""
    if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name):
        return "is not a C identifier of at most 64 characters"
    if name in _ACTED_ON or name.startswith(_ACTED_ON_FROM):
        return "is a name with a meaning to shells or loaders"
    return ""


def macro_fault(name: str) -> str:
    """Return what is wrong with the name of a `-D`, as text to follow it; it may have parameters, `AT(r,i)`."""
    own = name.partition("(")[0]
    return name_fault(own if _PARAMETERS.fullmatch(name, len(own)) else name)


def value_fault(value: object) -> str:
    """Return what is wrong with a value of a parameter or choice, as text to follow it, or "" if it is accepted."""
    if type(value) is int:
        return "" if -(2**63) <= value < 2**63 else "needs more than 64 bits"
    if not isinstance(value, float | str):
        return "is neither a number nor text"
    if isinstance(value, float) and value - value != 0:
        return "is not finite"
    if isinstance(value, str) and not is_c_value(value):
        return "cannot stand in a #define: it holds a control character, a comment mark or a line splice"
    return ""


def word_fault(value: object) -> str:
    """Return why a value of a study cannot be in `-DNAME=VALUE`, with what to write instead, or "" if it can.

    Older values, which are stored, may have this fault: `value_fault` accepts them.
    """
    if not isinstance(value, str):
        return ""
    if any(mark in value for mark in "\"'\\"):
        what = "has a quotation mark or a backslash, which some drivers remove"
        return f"{_shown(value)} {what}; write one word, or a number for the kernel's #if"
    if " " not in value:
        return ""
    kind = re.fullmatch(r"unsigned (char|short|int|long)", value)
    hint = f"write u{kind[1]}" if kind else "write one word, or a number for the kernel's #if"
    return f"{_shown(value)} has a space, which build options cannot carry; {hint}"


def file_name_fault(name: str) -> str:
    """Return why a file cannot have this name here, and the cure, or "" if it can: a locale need not be UTF-8."""
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        if (encoding := sys.getfilesystemencoding()) != "utf-8":
            return f"this locale encodes file names in {encoding}: export PYTHONUTF8=1"
        return "a file name cannot have such a character"
    return ""


def is_c_value(text: str) -> bool:
    """Say whether `#define NAME text` is one line of C that does not affect the lines after it."""
    return text.isprintable() and not text.endswith("\\") and not any(mark in text for mark in _C_MARKS)


def require_names(names: Iterable[object], where: str) -> None:
    """Raise StudyError for the first name that is not accepted."""
    for name in names:
        if fault := name_fault(name):
            raise StudyError(f"{_shown(name)} {fault}", where=where, hint="choose another name")


def require_values(values: Iterable[object], where: str) -> None:
    """Raise StudyError for the first value that is not accepted."""
    for value in values:
        if fault := value_fault(value):
            raise StudyError(f"{_shown(value)} {fault}", where=where, hint="choose another value")


def misfit(parameters: Mapping[str, Sequence[Any]], configuration: object) -> str:
    """Return why a stored configuration does not belong to a study with these parameters and values, or "" if it does.

    It must have each parameter and nothing else, with a value of its list, of the same type.
    """
    if not isinstance(configuration, Mapping):
        return "it is not a table of values"
    for name in configuration:
        if name not in parameters:
            return f"the study has no parameter {_shown(name)}"
    for name, known in parameters.items():
        if name not in configuration:
            return f"it has no value of {name}"
        value = configuration[name]
        if not any(type(value) is type(other) and value == other for other in known):
            return f"{name} cannot be {_shown(value)}"
    return ""


def _shown(value: object) -> str:
    """Return the beginning of a value's `repr`, which has no control characters."""
    return f"{value!r:.60}"


MAX_LEVELS = 20
"""Levels of nested tables in a study at most."""


def plain_copy(table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return a deep copy of tables, which the caller may change. Raises StudyError as `require_plain` does."""
    require_plain(table, where)
    copied: dict[str, Any] = _copied(table)
    return copied


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(inner) for name, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def require_plain(table: Mapping[str, Any], where: str) -> None:
    """Raise StudyError for tables nested too deeply, and for a whole number beyond 64 bits."""
    level: list[tuple[str, Any]] = list(table.items())
    for _ in range(MAX_LEVELS):
        below: list[tuple[str, Any]] = []
        for key, value in level:
            if isinstance(value, int):
                if not -(2**63) <= value < 2**63:
                    raise StudyError("holds a whole number beyond 64 bits", where=f"{where}: {key}")
            elif isinstance(value, Mapping):
                below += [(f"{key}.{name}", inner) for name, inner in value.items()]
            elif isinstance(value, list | tuple):
                below += [(f"{key}.{place}", inner) for place, inner in enumerate(value, 1)]
        level = below
    if level:
        raise StudyError(f"is nested more than {MAX_LEVELS} levels deep", where=f"{where}: {level[0][0][:80]}")
