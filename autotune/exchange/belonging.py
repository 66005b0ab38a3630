"""What another tool's trials belong to: the device and the size that the file or the user names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from autotune.devices import list_devices
from autotune.errors import DeviceError, SetupError, UsageError
from autotune.exchange.clblast import PRECISIONS
from autotune.exchange.document import Document
from autotune.lookup import Meant, device_meant, stored_devices
from autotune.model import Value
from autotune.text import is_value, parse_choices, parse_size

HINT = "say --device: an index, a name that is stored, or a fingerprint such as nvidia-h200-132cu-140g"


def device_of(document: Document, selector: str | None, database: str | None) -> Meant:
    """Return the device model that a file is of: the one selected, else the only one here or stored that has its name.

    Raises UsageError if the file names no device, DeviceError if not exactly one known device has its name, SetupError.
    """
    if selector is not None:
        return device_meant(selector, database)
    if not document.device.strip():
        raise UsageError("does not say which device it is of", hint=HINT)
    try:
        here = {info.fingerprint: info for info in list_devices()}
    except SetupError:
        here = {}
    known = {fingerprint: info.name for fingerprint, info in here.items()} | dict(stored_devices(database))
    found = [fingerprint for fingerprint, name in known.items() if _is_same(name, document.device)]
    if len(found) != 1:
        what = "no device here or stored has" if not found else f"{len(found)} devices here or stored have"
        raise DeviceError(f"is of {document.device!r:.80}, a name that {what}", hint=HINT)
    return Meant(found[0], here.get(found[0]))


def _is_same(here: str, there: str) -> bool:
    """Whether two names are of one device: they have the same words."""
    ours, theirs = (set(re.findall(r"[a-z0-9]+", name.lower())) for name in (here, there))
    return bool(ours) and bool(theirs) and ours == theirs


def require_element(document: Document, own: str) -> None:
    """Raise UsageError if a file's numbers have another type than `own`, that of the study with its choices."""
    if document.element and own in PRECISIONS and own != document.element:
        hint = "say --choice for the study's own, where it has one"
        raise UsageError(f"is of {document.element}, and the study is of {own}", hint=hint)


def choices_of(document: Document, given: Sequence[str], offered: Mapping[str, Sequence[Value]]) -> dict[str, Value]:
    """Return a file's choices: those given, else those that all its trials share, else the study's first values.

    Raises UsageError for a value that is not offered.
    """
    chosen = parse_choices(given, offered)
    named = {item.partition("=")[0].strip() for text in given for item in text.split(",")}
    for name, value in document.throughout.items():
        if name in offered.keys() - named:
            found = [one for one in offered[name] if value == one or is_value(str(value), one)]
            if not found:
                what = f"{name} cannot be {value!r:.80}"
                raise UsageError(what, where="what it has throughout", hint="say --choice")
            chosen[name] = found[0]
    return chosen


def size_of(document: Document, given: Sequence[str], sizes: Mapping[str, int]) -> tuple[dict[str, int], str]:
    """Return a file's size and the source of it: the size given, else what the file says, else the study's default.

    Raises UsageError for a size that the study does not have.
    """
    if given:
        return parse_size(given, sizes), "--size"
    told = {name.lower(): value for name, value in {**document.throughout, **document.size}.items()}
    extents = document.extents
    if len(set(extents)) == 1 and len(sizes) in (1, len(extents)):  # the order of different numbers is unknown
        told = dict.fromkeys((name.lower() for name in sizes), extents[0]) | told
    if sizes and all(name.lower() in told for name in sizes):
        said = [f"{name}={told[name.lower()]}" for name in sizes]
        try:
            return parse_size(said, sizes), "the file"
        except UsageError as error:
            raise UsageError(error.what, where="the size that it names", hint="say --size") from None
    if extents and sorted(extents) != sorted(sizes.values()):
        shown = ", ".join(map(str, extents))
        return dict(sizes), f"the study's default: {shown:.80} in the file has no names, say --size if it is another"
    return dict(sizes), "the study's default"
