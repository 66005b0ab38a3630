"""What a stored result belongs to, and its canonical text. Standard library only.

The cold path of `autotune best` imports this file, so it does without dataclasses: with `inspect` they cost as
much to import as sqlite3.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

Value = int | float | str
"""One value of a parameter or a choice."""

Configuration = Mapping[str, Value]
"""One value per parameter, in the study's order of parameters."""

Size = Mapping[str, int]
"""The problem size, e.g. `{"M": 1024, "N": 1024, "K": 1024}`."""

Choices = Mapping[str, Value]
"""Properties that the user picks and nothing tunes, e.g. `{"T": "float"}`."""


class ProblemKey(NamedTuple):
    """What a stored result belongs to. A change of any field never serves a stale result silently.

    `kernel_hash` covers the kernel's text with its includes; `study_hash` the parts of the study that
    decide what is run and accepted (launches, arguments, options, reference, tolerance, timing), not its
    prose and not the lists of values, so that widening a parameter keeps what was measured.
    """

    study: str
    kernel_hash: str
    study_hash: str
    device: str  # fingerprint
    size: Size
    choices: Choices


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
    """Return JSON text that is equal for equal values, whatever the order of keys: for keys and hashes."""
    return json.dumps(plain(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """Return 32 hexadecimal digits that stand for a JSON-like value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:32]


def clean(text: str) -> str:
    """Replace what UTF-8 or PostgreSQL cannot hold (lone surrogates, NUL): build logs hold anything."""
    return text.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def plain(value: Any) -> Any:
    """Return what JSON can hold: text that UTF-8 can, and numbers that are not finite as text."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {clean(str(key)): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
