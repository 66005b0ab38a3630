"""`TUNED_NAME=value` lines, quoted for a shell: `tuned=$(autotune best --format shell) && eval "$tuned"`.

The prefix keeps names of parameters apart from variables that programs act on.
"""

from __future__ import annotations

import shlex

from autotune.lookup.answer import Best

PREFIX = "TUNED_"
OPTIONS = "AUTOTUNE_OPTIONS"
MATCH = "AUTOTUNE_MATCH"


def render(best: Best) -> str:
    """Return one assignment per choice, parameter and computed define, one with all build options, one with the match.

    A define with parameters, `AT(r,i)`, cannot be a shell variable: it is only among the options. The options are
    quoted a second time, as `--format defines` prints its own: `eval "cc $AUTOTUNE_OPTIONS ..."`.
    """
    values = {**best.choices, **best.configuration, **best.defines}
    values = {name: value for name, value in values.items() if "(" not in name}
    pairs = {PREFIX + name: str(value) for name, value in values.items()}
    pairs |= {OPTIONS: shlex.join(best.options), MATCH: best.match.value}
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in pairs.items())
