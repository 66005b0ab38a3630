"""A study's tables as TOML, which reads back as the same tables in the same order."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from autotune.errors import StudyError

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_LONG = 100


def toml(table: Mapping[str, Any], where: str = "") -> str:
    """Return the text of a TOML document. Raises StudyError, naming the key, for a value that TOML cannot hold.

    A table of tables becomes `[name.inner]`, a list of tables `[[name]]`; deeper tables are written inline.
    """
    head = [f"{_key(name)} = {_value(part, f'{where}{name}')}" for name, part in table.items() if not _opens(part)]
    blocks = ["\n".join(head)] if head else []
    for name, part in table.items():
        if _opens(part):
            blocks += _blocks(_key(name), part, f"{where}{name}")
    return "\n\n".join(blocks) + "\n"


def write_new(path: Path, text: str) -> None:
    """Write a new file. Raises StudyError if it exists already, or cannot be written."""
    try:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    except FileExistsError:
        raise StudyError("exists already", where=str(path), hint="choose another name") from None
    except (OSError, ValueError) as error:
        raise StudyError(f"cannot be written: {getattr(error, 'strerror', error)}", where=str(path)) from error


def _opens(part: Any) -> bool:
    """Whether a value gets a `[heading]` of its own."""
    if isinstance(part, list | tuple):
        return bool(part) and all(isinstance(each, Mapping) for each in part)
    return isinstance(part, Mapping)


def _blocks(name: str, part: Any, where: str) -> list[str]:
    if not isinstance(part, Mapping):
        return [_block(f"[[{name}]]", each, f"{where}.{n}") for n, each in enumerate(part, 1)]
    if part and all(isinstance(each, Mapping) for each in part.values()):
        return [_block(f"[{name}.{_key(inner)}]", each, f"{where}.{inner}") for inner, each in part.items()]
    return [_block(f"[{name}]", part, where)]


def _block(heading: str, table: Mapping[str, Any], where: str) -> str:
    return "\n".join([heading, *(f"{_key(k)} = {_value(v, f'{where}.{k}')}" for k, v in table.items())])


def _key(name: Any) -> str:
    if not isinstance(name, str):
        raise StudyError(f"{name!r} is not a valid key", where=str(name))
    return name if _BARE.fullmatch(name) else toml_text(name)


def _value(value: Any, where: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return toml_text(value)
    if type(value) is int:
        return str(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else str(value).replace("infinity", "inf")
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(part, f'{where}.{name}')}" for name, part in value.items())
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list | tuple):
        parts = [_value(part, f"{where}.{n}") for n, part in enumerate(value, 1)]
        if sum(map(len, parts)) > _LONG and any(isinstance(part, Mapping) for part in value):
            return "[\n" + "".join(f"  {part},\n" for part in parts) + "]"
        return f"[{', '.join(parts)}]"
    cure = {"ndarray": "write the array to a file and name it", "NoneType": "leave the key out"}.get(
        type(value).__name__, "a file holds text, numbers, lists and tables"
    )
    if callable(value):
        cure = 'put the function into a file and name it: "FILE.py:NAME"'
    raise StudyError(f"cannot be written to a file: it is of {type(value).__name__}", where=where, hint=cure)


def toml_text(text: str) -> str:
    """Return a TOML basic string: as in JSON, with DEL escaped. Raises StudyError for text that UTF-8 cannot hold."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        hint = "give it a name in UTF-8; if it has one and the locale differs: export PYTHONUTF8=1"
        raise StudyError("holds an invalid character", where=repr(text)[:60], hint=hint) from error
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_texts(texts: Iterable[object]) -> str:
    """Return a TOML list of strings, made of anything that `str` takes."""
    return f"[{', '.join(toml_text(str(one)) for one in texts)}]"
