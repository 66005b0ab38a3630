"""`TUNED_NAME=value` lines, quoted for a shell: `tuned=$(autotune best --format shell) && eval "$tuned"`.

No program acts on variables that begin with the prefix, whatever a study calls its parameters.
"""

from __future__ import annotations

import shlex

from autotune.lookup.answer import Best

PREFIX = "TUNED_"
OPTIONS = "AUTOTUNE_OPTIONS"
MATCH = "AUTOTUNE_MATCH"


def render(best: Best) -> str:
    """Return one assignment per choice, parameter and computed define, one with all build options, one with the match.

    A define with parameters, `AT(r,i)`, is none of a shell's: it stands among the options alone. The options are quoted
    once more, as `--format defines` prints its own: `eval "cc $AUTOTUNE_OPTIONS ..."`.
    """
    values = {**best.choices, **best.configuration, **best.defines}
    values = {name: value for name, value in values.items() if "(" not in name}
    pairs = {PREFIX + name: str(value) for name, value in values.items()}
    pairs |= {OPTIONS: shlex.join(best.options), MATCH: best.match.value}
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in pairs.items())
