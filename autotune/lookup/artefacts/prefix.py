"""What the names in a header begin with: the study's name with what was chosen, or a word of the user's."""

from __future__ import annotations

import re
from collections.abc import Mapping

from autotune.errors import UsageError
from autotune.model import Value


def prefix_of(study: str, chosen: Mapping[str, Value]) -> str:
    """Return what every name in a study's header begins with; `chosen`: those of its choices that are no defaults."""
    words = "_".join([study, *(f"{name}_{value}" for name, value in chosen.items())])
    name = re.sub(r"[^A-Za-z0-9]", "_", words).upper().strip("_")
    return name if name[:1].isalpha() and not _is_opencl(name) else f"STUDY_{name}"


def given(prefix: str) -> str:
    """Return a prefix that a user wrote. Raises UsageError where C takes no such names."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", prefix):
        raise UsageError(f"no name in C begins with {prefix!r:.60}", where="--prefix", hint="write --prefix SCALE_F64")
    if _is_opencl(prefix):
        raise UsageError(f"names of OpenCL begin with {prefix}", where="--prefix", hint=f"write --prefix MY_{prefix}")
    return prefix


def _is_opencl(prefix: str) -> bool:
    """Whether OpenCL's own headers have names with it, such as the macros CL_NONE and CL_BUILD_NONE."""
    return f"{prefix}_".upper().startswith("CL_")
