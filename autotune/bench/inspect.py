"""What a compiler tells about a kernel's source: the arguments of its kernels, and the text of its macros."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.bench.kernels import ask
from autotune.bench.messages import Inspect, Inspected
from autotune.bench.report import Fault, first_error, located
from autotune.devices import BackendError, BuildError, KernelArgument, Session, open_session
from autotune.model import DeviceInfo, Outcome

_ENTRY = "autotune_macros"

_ROOM = 2**16
"""Bytes of the buffer for the text of all macros."""

_MOST = 512
"""If there are more names of possible macros than this, none is asked for."""


def inspect(device: DeviceInfo, message: Inspect) -> Inspected:
    """Compile a source and return what is in it. Raises Fault with the log if it does not build, BackendError."""
    session = open_session(device)
    try:
        found, parts = _signatures(session, message)
    except BuildError as error:
        log = located(error.detail, message.source)
        raise Fault(Outcome.COMPILE_ERROR, first_error(log) or str(error), detail=log) from None
    macros = {name: text for part in parts for name, text in _macros(session, message, part).items()}
    return Inspected(found, macros)


def _signatures(
    session: Session, message: Inspect
) -> tuple[dict[str, tuple[KernelArgument, ...]], Sequence[Sequence[str]]]:
    """Return each kernel's arguments, and the names in the parts in which to ask for them. Raises BuildError.

    What is built here also tells about the macros; the driver then has that build in its cache.
    """
    names = message.names if len(message.names) <= _MOST else ()
    parts: Sequence[Sequence[str]] = [names] if names else []
    try:
        found = session.signatures(_telling(message.source, names), message.options)
    except BuildError:
        if not parts:
            raise
        found, parts = session.signatures(message.source, message.options), _halves(names)
    return {entry: tuple(arguments) for entry, arguments in found.items() if entry != _ENTRY}, parts


def _macros(session: Session, message: Inspect, names: Sequence[str]) -> dict[str, str]:
    """Return the preprocessor's text for each name: a kernel that holds the texts is built, run and read back.

    A macro whose text cannot be made a string (it has a comma or an open quote) breaks that build. The names are then
    asked for in halves, so that the other macros are found. A name that is not a macro is left out.
    """
    found = np.zeros(_ROOM, np.uint8)
    try:
        ask(session, _telling(message.source, names), message.options, _ENTRY, found)
    except BackendError:
        return {name: text for half in _halves(names) for name, text in _macros(session, message, half).items()}
    lines = found.tobytes().partition(b"\0")[0].decode(errors="replace").splitlines()
    pairs = (line.partition("=")[::2] for line in lines)
    return {name: value.strip() for name, value in pairs if name in names and value.strip() != name}


def _telling(source: str, names: Sequence[str]) -> str:
    """Return a source with a kernel added that tells the names' texts.

    Its variables have our prefix, since even an `i` may be a macro.
    """
    if not names:
        return source
    text = "\n".join(f'"{name}=" AUTOTUNE_TEXT({name}) "\\n"' for name in names)
    return f"""{source}
#define AUTOTUNE_TEXT_(x) #x
#define AUTOTUNE_TEXT(x) AUTOTUNE_TEXT_(x)
constant char autotune_text[] = {text};
kernel void {_ENTRY}(global char *autotune_to)
{{
    for (int autotune_i = 0; autotune_i < (int)sizeof(autotune_text) && autotune_i < {_ROOM}; ++autotune_i)
        autotune_to[autotune_i] = autotune_text[autotune_i];
}}
"""


def _halves(names: Sequence[str]) -> list[Sequence[str]]:
    half = len(names) // 2
    return [names[:half], names[half:]] if half else []
