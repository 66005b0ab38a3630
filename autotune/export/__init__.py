"""A looked-up best as text: one file per format, one row here. Standard library only."""

from __future__ import annotations

from autotune.lookup import Best

FORMATS = ("table", "json", "defines", "header", "shell", "toml")
"""The formats, each the name of a file in this folder with a function `render`."""

BUILD_FORMATS = ("table", "defines", "header")
"""Formats that show what the study's expressions give: computed defines, build options, operations."""


def render(best: Best, format: str) -> str:
    """Return a best in one of FORMATS, ending with a newline."""
    # importlib would cost a cold look-up another millisecond.
    text: str = __import__(f"autotune.export.{format}", fromlist=["render"]).render(best)
    return text


def size_text(best: Best) -> str:
    """Return the size asked for: `M=1024 N=1024`."""
    return " ".join(f"{name}={value}" for name, value in best.size.items())


def choices_text(best: Best) -> str:
    """Return the choices asked for: `T=float`."""
    return " ".join(f"{name}={value}" for name, value in best.choices.items())
