"""What is known of a kernel file before anything is proposed of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.devices import KernelArgument


@dataclass
class Sketch:
    """What is known of a kernel file. `guessed`: no compiler was asked, the text was read."""

    name: str
    kernel: str
    source: str
    signatures: Mapping[str, Sequence[KernelArgument]]
    macros: Mapping[str, str]
    guessed: bool = False
    folders: list[str] = field(default_factory=list)
    """Where files that it includes lie, as the study names them."""
    called: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """What kernels call arguments that have another name here, by kernel."""
    gaps: list[str] = field(default_factory=list)
    """What the author has to write, a line each."""
    guesses: list[str] = field(default_factory=list)
    """What the author should look at."""
