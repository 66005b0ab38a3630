"""What a compiler tells of a kernel's text: the arguments of its kernels, and what its macros stand for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from autotune.bench.kernels import ask
from autotune.bench.messages import Inspect, Inspected
from autotune.bench.report import Fault, first_error, located
from autotune.devices import BackendError, BuildError, Session, open_session
from autotune.model import DeviceInfo, Outcome

_ROOM = 2**16
"""Bytes for the text of all macros."""


def inspect(device: DeviceInfo, message: Inspect) -> Inspected:
    """Compile and look. Raises Fault with the log where it does not build, BackendError."""
    session = open_session(device)
    try:
        found = session.signatures(message.source, message.options)
    except BuildError as error:
        log = located(error.detail, message.source)
        raise Fault(Outcome.COMPILE_ERROR, first_error(log) or str(error), detail=log) from None
    macros = _macros(session, message.source, message.options, message.names)
    return Inspected({entry: tuple(arguments) for entry, arguments in found.items()}, macros)


def _macros(session: Session, source: str, options: Sequence[str], names: Sequence[str]) -> dict[str, str]:
    """Return what the preprocessor makes of each name, as text: a kernel is built that holds it, and read.

    A macro whose text does not stand in a string (it has a comma or an open quote) is asked for in vain: by halves,
    so that the others are found. A name that is no macro is left out.
    """
    if not names or len(names) > 512:
        return {}
    text = "\n".join(f'"{name}=" AUTOTUNE_TEXT({name}) "\\n"' for name in names)
    asked = f"""{source}
#define AUTOTUNE_TEXT_(x) #x
#define AUTOTUNE_TEXT(x) AUTOTUNE_TEXT_(x)
constant char autotune_text[] = {text};
kernel void autotune_macros(global char *out)
{{
    for (int i = 0; i < (int)sizeof(autotune_text) && i < {_ROOM}; ++i) out[i] = autotune_text[i];
}}
"""
    found = np.zeros(_ROOM, np.uint8)
    try:
        ask(session, asked, options, "autotune_macros", found)
    except BackendError:
        half = len(names) // 2
        if not half:
            return {}
        return {
            **_macros(session, source, options, names[:half]),
            **_macros(session, source, options, names[half:]),
        }
    lines = found.tobytes().partition(b"\0")[0].decode(errors="replace").splitlines()
    pairs = (line.partition("=")[::2] for line in lines)
    return {name: value.strip() for name, value in pairs if name in names and value.strip() != name}
