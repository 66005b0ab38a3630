"""A C header of `#define` lines, with a comment that says where they come from."""

from __future__ import annotations

from autotune import text
from autotune.errors import StudyError
from autotune.identity import is_c_value
from autotune.lookup.answer import Best
from autotune.lookup.formats import flags
from autotune.text import c_comment


def render(best: Best) -> str:
    """Return a header; include it before the kernel's own `#ifndef` defaults.

    It has no guard: C accepts the same define again. If the headers of two sizes are included, the compiler reports
    what is redefined; with a guard, the second would be ignored silently.

    Raises StudyError if a computed define is text that would not stay on its line.
    """
    values = best.defines
    for name, value in values.items():
        if not is_c_value(value):
            raise StudyError(f"{value!r:.60} cannot stand in a #define", where=f"{best.study}: {name}")
    width = max(map(len, values), default=0)
    lines = [f"/* {c_comment(line)} */" for line in _provenance(best)]
    lines += [f"#define {name:<{width}} {value}" for name, value in values.items()]
    return "\n".join([*lines, ""])


def _provenance(best: Best) -> list[str]:
    lines = [
        f"{best.study} {text.pairs(best.size)} {text.pairs(best.choices)}".rstrip(),
        f"for {best.device}; match: {best.match}",
    ]
    if best.time_ns is not None:
        lines.append(f"measured {text.time(best.time_ns)} on {best.measured_on}, driver {best.driver}, {best.measured}")
    if flags(best):
        lines.append(f"built with {' '.join(flags(best))}")
    return [*lines, *best.notes]
