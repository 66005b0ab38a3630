"""`NAME=value` lines, quoted for a shell: `eval "$(autotune best --format shell)"`."""

from __future__ import annotations

import shlex

from autotune.lookup import Best


def render(best: Best) -> str:
    """Return one assignment per choice and parameter."""
    values = {**best.choices, **best.configuration}
    return "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in values.items())
