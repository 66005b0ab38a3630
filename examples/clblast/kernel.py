"""Writes CLBlast's own Xgemm kernel to xgemm.cl, from its text in the installed libclblast.

Nothing is downloaded, and the tuned kernel is the one that the library runs. Licence of the kernel: Apache 2.0,
CLBlast's authors.

    python kernel.py [LIBRARY]            # without LIBRARY, the one that the loader knows
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent

PARTS = (
    (rb"typedef float real;", rb"#ifndef PRECISION"),  # the header of all kernels
    (rb"#define MWG ", rb"GlobalToLocalA\("),  # parameters, loads and stores
    (rb"void Xgemm\(", rb"ROUTINE_SYRK"),  # the kernel
)
"""Marks of the library's literals that together are the kernel, in their order."""

HEAD = """#define ROUTINE_GEMM
#define PRECISION 32
"""


def library() -> Path:
    """Return the path of the installed library."""
    listed = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"libclblast\.so\S* .*=> (\S+)", listed)
    if found is None:
        sys.exit("libclblast is not installed: apt-get install libclblast-dev")
    return Path(found[1])


def kernel(binary: bytes) -> str:
    """Return the kernel's text from the bytes of a library."""
    literals = re.findall(rb"[\t\n\x20-\x7e]{1000,}", binary)
    found = []
    for marks in PARTS:
        fitting = [text for text in literals if all(re.search(mark, text) for mark in marks)]
        if len(fitting) != 1:
            sys.exit(f"{len(fitting)} texts of this library hold {marks}: it is of a version that is not known here")
        found.append(fitting[0].decode())
    return HEAD + "\n".join(found)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else library()
    (HERE / "xgemm.cl").write_text(kernel(path.read_bytes()))
    print(f"xgemm.cl: the kernel of {path}")
