"""What is known of a kernel file before anything is proposed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from autotune.devices import KernelArgument
from autotune.errors import StudyError
from autotune.study.builtins import is_builtin
from autotune.study.drafting.scanning import scanned
from autotune.study.drafting.syntax import names_in


@dataclass
class Sketch:
    """What is known of a kernel file. `guessed`: whether only the text was read, without a compiler."""

    name: str
    kernel: str
    source: str
    signatures: Mapping[str, Sequence[KernelArgument]]
    macros: Mapping[str, str]
    guessed: bool = False
    flags: list[str] = field(default_factory=list)
    """The build options that the study gives."""
    typed: str = ""
    """The kernel file as its author named it, if the study names it differently."""
    called: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The kernels' own names of arguments that have another name here, by kernel and name here."""
    extensions: Sequence[str] = ()
    """The device's extensions, each of which its compiler defines as a macro."""
    gaps: list[str] = field(default_factory=list)
    """What the author has to write, a line each."""
    guesses: list[str] = field(default_factory=list)
    """What the author should look at."""


def launched_of(sketch: Sketch, wanted: str | None) -> list[str]:
    """Return the kernels to launch: the wanted one, or all. Raises StudyError if there is none."""
    known = list(sketch.signatures)
    hidden = [name for name in scanned(sketch.source) if name not in known and is_builtin(name)]
    if hidden and wanted in (None, *hidden) and not names_in(sketch.source) >= {*known}:
        what = f"no kernel {hidden[0]!r}: OpenCL C has a function of that name, which hides it"
        raise StudyError(what, where=sketch.typed or sketch.kernel, hint="rename it")
    if not known:
        raise StudyError("has no kernel", where=sketch.typed or sketch.kernel, hint="write kernel void name(...)")
    if wanted is None:
        return known
    if wanted not in known:
        raise StudyError(
            f"has no kernel {wanted!r}", where=sketch.typed or sketch.kernel, hint=f"it has {', '.join(known)}"
        )
    return [wanted]
