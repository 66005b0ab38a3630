"""A C header of `#define` lines, with a comment that says where they come from."""

from __future__ import annotations

import re

from autotune import units
from autotune.export import choices_text, size_text
from autotune.lookup import Best


def render(best: Best) -> str:
    """Return a guarded header; include it before the kernel's own `#ifndef` defaults."""
    guard = f"AUTOTUNE_{re.sub(r'[^A-Z0-9]', '_', best.study.upper())}_H"
    defines = [option[2:].partition("=") for option in best.options if option.startswith("-D")]
    width = max((len(name) for name, _, _ in defines), default=0)
    lines = [f"/* {_comment(line)} */" for line in _provenance(best)]
    lines += [f"#ifndef {guard}", f"#define {guard}", ""]
    lines += [f"#define {name:<{width}} {value}" for name, _, value in defines]
    return "\n".join([*lines, "", f"#endif /* {guard} */", ""])


def _provenance(best: Best) -> list[str]:
    lines = [f"{best.study} {size_text(best)} {choices_text(best)}".rstrip(), f"for {best.device}; match: {best.match}"]
    if best.time_ns is not None:
        lines.append(
            f"measured {units.time(best.time_ns)} on {best.measured_on}, driver {best.driver}, {best.measured}"
        )
    flags = [option for option in best.options if not option.startswith("-D")]
    if flags:
        lines.append(f"built with {' '.join(flags)}")
    return [*lines, *best.notes]


def _comment(text: str) -> str:
    return text.replace("*/", "* /").replace("\n", " ")
