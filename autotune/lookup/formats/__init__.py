"""A looked-up best as text: one file per format, one row here. Standard library only."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.lookup.answer import Best


FORMATS = {"table": True, "json": True, "defines": False, "header": False, "shell": False, "toml": True}
"""The formats, each the name of a file in this folder with a function `render`, and whether it shows a rate or
launches, for which the study's expressions are evaluated where neither is stored."""


def render(best: Best, format: str) -> str:
    """Return a best in one of FORMATS, ending with a newline."""
    # importlib would cost a cold look-up another millisecond.
    rendered: str = __import__(f"autotune.lookup.formats.{format}", fromlist=["render"]).render(best)
    return rendered


def flags(best: Best) -> tuple[str, ...]:
    """Return the build options that are not `-D`."""
    return tuple(option for option in best.options if not option.startswith("-D"))
