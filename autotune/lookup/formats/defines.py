"""`-DX=1 -DY=2` on one line, quoted for a shell: `cc $(...)` or `clBuildProgram`'s options."""

from __future__ import annotations

import shlex

from autotune.lookup.answer import Best


def render(best: Best) -> str:
    """Return choices, parameters and computed defines as compiler options."""
    return " ".join(shlex.quote(option) for option in best.options if option.startswith("-D")) + "\n"
