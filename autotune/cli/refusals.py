"""Errors from below this package in its own words: words that Typer refuses, and resources that a machine lacks."""

from __future__ import annotations

import errno
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import typer

from autotune.errors import AutotuneError, SetupError, UsageError
from autotune.pool import MORE_PROCESSES, MORE_ROOM, limits_memory

Refused: type[Exception] = typer.BadParameter.__mro__[1]
"""Typer's error for words that fit no command; its other errors about words are subclasses of it."""


_SPENT = {
    errno.EAGAIN: ("no more processes may be started", MORE_PROCESSES),
    errno.EMFILE: (
        "no more files may be open in this process",
        "allow more with ulimit -n, or search on fewer devices",
    ),
    errno.ENFILE: ("no more files may be open on this machine", "close some, or raise fs.file-max"),
    errno.ENOMEM: ("there is no memory left", "end something else, or ask for a smaller --size"),
    errno.ENOSPC: ("the disk is full", MORE_ROOM),
    errno.EDQUOT: ("the disk quota is spent", MORE_ROOM),
    errno.EFBIG: ("a file may not grow any further", "allow more with ulimit -f"),
}


_MORE_MEMORY = "allow more with ulimit -v"

_NO_ROOM = "failed to map segment"
"""The message of the system's loader if there is no memory for a library."""


def plain(error: Exception, command: str | None) -> AutotuneError | None:
    """Return an error of a command in this package's words, one line, or None if it is a fault of the program."""
    if isinstance(error, Refused):
        return None if type(error).__name__ == "NoArgsIsHelpError" else _refused(error, command)
    if isinstance(error, MemoryError) or (isinstance(error, ImportError) and _NO_ROOM in str(error)):
        return _spent(errno.ENOMEM)
    if isinstance(error, OSError) and error.errno is not None and error.errno in _SPENT:
        return _spent(error.errno, error.filename)
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        hint = f"{_MORE_MEMORY}, and {MORE_PROCESSES}" if limits_memory() else MORE_PROCESSES
        return SetupError("no more threads may be started", hint=hint)
    return None


def require_no_empty(words: Sequence[str]) -> None:
    """Raise UsageError for an empty word or an empty value of an option, as a script with an unset variable gives it.

    No option or argument takes an empty value: as a path it would be the working folder, as a name no name.
    """
    for before, word in pairwise(("", *words)):
        name, equals, value = word.partition("=") if word.startswith("--") else (before, "=", word)
        if equals and not value.strip():
            option = name if name.startswith("-") else ""
            what = f"{'an empty value' if option else 'an empty word'} is given"
            hint = " ".join(["autotune", *(words[:1] if words[0].isidentifier() else ()), "--help"])
            raise UsageError(what, where=option, hint=f"give it a value, or leave it out: {hint}")


def _spent(number: int, file: object = None) -> SetupError:
    what, hint = _SPENT[number]
    if number == errno.ENOMEM and limits_memory():
        hint = f"{_MORE_MEMORY}, or ask for a smaller --size"
    return SetupError(what, where=str(file or ""), hint=hint)


def _refused(error: Any, command: str | None) -> UsageError:
    """Return what Typer says of typed words: where, what is wrong, and the command whose help says what is right."""
    commands, context = [command] if command and error.ctx is None else [], error.ctx
    while context is not None and context.parent is not None:
        commands.insert(0, str(context.info_name))
        context = context.parent
    hint = " ".join(["autotune", *commands, "--help"])
    if not commands and getattr(error, "option_name", None) and not error.possibilities:
        hint = f"an option stands after its command: autotune COMMAND {error.option_name}; {hint}"
    option = max(getattr(getattr(error, "param", None), "opts", None) or [""], key=len)
    if option.startswith("-") and error.message:
        return UsageError(_number(error) or error.message.rstrip("."), where=option, hint=hint)
    said = error.format_message().rstrip(".")
    said = re.sub(r" \(Possible options: (.*)\)$", r" (did you mean \1?)", said)
    said = re.sub(r"\.? Did you mean (.*)\?$", r" (did you mean \1?)", said)
    return UsageError(said[:1].lower() + said[1:], hint=hint)


def _number(error: Any) -> str:
    """Return what is wrong with a number and its bounds, or "" if what was refused is not a number."""
    kind = getattr(error.param, "type", error.param)  # older versions of Typer keep the bounds there
    least, most = getattr(kind, "min", None), getattr(kind, "max", None)
    told = re.match(r"'?(.*?)'? is not ", error.message)
    found: list[Any] = getattr(error.__cause__, "errors", list)()
    if least is None or not (found or told):
        return ""
    value = found[0]["input"] if found else told[1] if told else ""
    bounds = f"of at least {least}" if most is None else f"from {least} to {most}"
    return f"{str(value)!r:.60} is not a whole number {bounds}"
