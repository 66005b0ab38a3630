"""The formats that are written, by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from autotune.exchange import clblast, csv, kernel_tuner, optuna, t4, wisdom
from autotune.exchange.recording import Recording


class Writer(NamedTuple):
    """A format that is written: `write` returns what it could not express, counted by reason.

    `write` takes an open text file or, if `database`, the path of a file that does not exist yet.
    `single`: it holds one problem, of one device, size and choice.
    """

    write: Callable[[Sequence[Recording], Any], Counter[str]]
    single: bool = False
    database: bool = False


WRITERS: Mapping[str, Writer] = {
    "kernel-tuner": Writer(kernel_tuner.write, single=True),
    "t4": Writer(t4.write, single=True),
    "clblast": Writer(clblast.write, single=True),
    "wisdom": Writer(wisdom.write),
    "csv": Writer(csv.write),
    "optuna": Writer(optuna.save, database=True),
}
"""A new format needs a file and a row here; docs/architecture.md says what tests it."""
