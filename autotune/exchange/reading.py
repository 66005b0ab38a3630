"""From the bytes of another tool's file to a document: unpacked, its format recognised by what it holds."""

from __future__ import annotations

import io
import json
import zlib
from codecs import BOM_UTF8
from collections.abc import Mapping
from gzip import BadGzipFile, GzipFile
from typing import IO, Any

from autotune.errors import UsageError
from autotune.exchange import kernel_tuner
from autotune.exchange.clblast import CLBlast, Tuner
from autotune.exchange.document import Document, Reader
from autotune.exchange.kernel_tuner import KernelTuner
from autotune.exchange.ktt import Ktt
from autotune.exchange.pyatf import PyAtf
from autotune.exchange.t4 import T4

READERS: Mapping[str, Reader] = {
    "kernel-tuner": KernelTuner(),
    "t4": T4(),
    "clblast": CLBlast(),
    "cltune": Tuner(),
    "ktt": Ktt(),
    "pyatf": PyAtf(),
}
"""The formats that are read, by their names; docs/architecture.md says what a new one needs, and what tests it."""

MOST_BYTES = 2**28
"""The most bytes of a file, unpacked. The largest files of a public collection have 60 MB."""

UNPACKING = (BadGzipFile, EOFError, zlib.error)
"""What unpacking raises if a file is damaged or cut off."""

_GZIP = b"\x1f\x8b"
_GZIP_ALONE = 16 + zlib.MAX_WBITS
_LINE = 2**16


def is_packed(beginning: bytes) -> bool:
    """Whether a file with this beginning was packed by gzip."""
    return beginning.startswith(_GZIP)


def is_foreign(beginning: bytes) -> bool:
    """Whether a file with this beginning is another tool's, not lines of our own, which each hold one JSON object."""
    if is_packed(beginning):
        try:
            beginning = zlib.decompressobj(_GZIP_ALONE).decompress(beginning, _LINE)
        except zlib.error:
            return True
    text = beginning.removeprefix(BOM_UTF8).lstrip()
    first = text.split(b"\n", 1)[0].strip()
    if not first.startswith(b"{") or first.startswith(b'{"format":'):
        return False
    try:
        found = json.loads(first)
    except (ValueError, RecursionError):
        return first == b"{" or len(first) >= _LINE or text.rstrip() != first
    return isinstance(found, dict) and any(reader.recognises(found) for reader in READERS.values())


def read(file: IO[bytes], where: str, format: str | None = None) -> tuple[str, Document]:
    """Return the name of a file's format, and what the file says.

    `format`: its format, or None to recognise it. Raises UsageError at `where` for a file of no known format, or one
    that is not what its format says.
    """
    try:
        document, cut = _parsed(_text(file))
        name = _recognised(document) if format is None else format
        if cut and name != kernel_tuner.FORMAT:
            raise UsageError("is not JSON: it is cut off")
        found = READERS[name].read(document)
    except UsageError as error:
        error.hint = error.hint or "nothing was imported"
        raise error.at(where) from None
    found.left_out["cut off at the end of the file"] += cut
    return name, found


def _text(file: IO[bytes]) -> str:
    """Return the text of a file, unpacked if gzip packed it. Raises UsageError."""
    data = file.read(MOST_BYTES + 1)
    try:
        if is_packed(data):
            data = GzipFile(fileobj=io.BytesIO(data)).read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageError(f"is larger than {MOST_BYTES >> 20} MiB")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError("is not text in UTF-8") from None
    except UNPACKING as error:
        raise UsageError(f"cannot be unpacked: {error}") from None


def _parsed(text: str) -> tuple[dict[str, Any], int]:
    """Return the JSON object, and how many entries at the end of a cache left open were cut off. Raises UsageError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number with thousands of digits is a ValueError too
        try:
            return kernel_tuner.closed(text)
        except ValueError:
            hint = f"import --study reads the JSON of {', '.join(READERS)}, not CSV; nothing was imported"
            raise UsageError(f"is not JSON: {error}", hint=hint) from None
    if not isinstance(found, dict):
        raise UsageError("is not a JSON object")
    return found, 0


def _recognised(document: Mapping[str, Any]) -> str:
    names = [name for name, reader in READERS.items() if reader.recognises(document)]
    if len(names) != 1:
        what = f"can be {' or '.join(names)}" if names else "has no known format"
        raise UsageError(what, hint=f"say --from {'|'.join(names or READERS)}; nothing was imported")
    return names[0]
