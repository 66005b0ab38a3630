"""What C programs need to find pip's PoCL, and to build kernels with it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pyopencl

from autotune.devices import processor

VARIABLES = ("OCL_ICD_VENDORS", "LD_PRELOAD")
"""The variables that `environment` sets. Python's pyopencl has its own loader, and needs neither."""

SHIM = Path(__file__).parent / "processor.c"


def driver() -> Path | None:
    """The driver in pyopencl's wheel, or the system's."""
    return next(
        iter([*Path(pyopencl.__file__).parent.glob(".libs/libpocl*.so"), *Path("/usr/lib").rglob("libpocl.so")]), None
    )


def environment(folder: Path) -> dict[str, str]:
    """Variables with which PoCL is the only OpenCL of a C program; the folder holds the files that they name."""
    library = driver()
    if library is None:
        return {}
    folder.mkdir()
    (folder / "pocl.icd").write_text(f"{library}\n")
    return {"OCL_ICD_VENDORS": str(folder), **_named(folder)}


def _named(folder: Path) -> dict[str, str]:
    """The variables that name the processor if PoCL's compiler has no name for it; needs gcc and CL/cl.h."""
    version = next(one for one in pyopencl.get_platforms() if "Portable" in one.name).get_devices()[0].version
    if not version.strip().endswith("-generic"):
        return {}
    name = processor._alike(processor._instructions()).decode()
    words = ["gcc", "-shared", "-fPIC", f'-DNAME="{name}"', str(SHIM), "-o", str(folder / "processor.so"), "-ldl"]
    subprocess.run(words, check=True)
    return {"LD_PRELOAD": str(folder / "processor.so")}
