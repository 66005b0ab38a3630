"""The formats that are written, by their names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from autotune.exchange import clblast, csv, kernel_tuner, optuna, t4, wisdom
from autotune.exchange.recording import Recording


class Writer(NamedTuple):
    """A format that is written: what it is, and `write`, which returns what it could not say, counted by reason.

    `write` takes an open text file or, for one that is a `database`, the path of a file that is not there yet.
    `single`: it holds one problem, of one device, size and choice.
    """

    about: str
    write: Callable[[Sequence[Recording], Any], Counter[str]]
    single: bool = False
    database: bool = False


WRITERS: Mapping[str, Writer] = {
    "kernel-tuner": Writer("a cache that Kernel Tuner replays", kernel_tuner.write, single=True),
    "t4": Writer("results in the T4 format", t4.write, single=True),
    "clblast": Writer("results as a tuner of CLBlast writes them", clblast.write, single=True),
    "wisdom": Writer("a wisdom file of kernel_launcher: the best of each device and size", wisdom.write),
    "csv": Writer("a table with a row for each trial", csv.write),
    "optuna": Writer("a database of Optuna, for its dashboard", optuna.save, database=True),
}
"""A new one is a file, a row here, and a golden file."""
