"""Rename arguments that a study cannot name.

They have no name, a word of Python or of shells, a name in another alphabet, or the name of a different argument.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence
from dataclasses import replace

from autotune.devices import KernelArgument
from autotune.identity import name_fault
from autotune.study.drafting.sketch import Sketch
from autotune.study.drafting.syntax import names_in
from autotune.study.drafting.touching import components


def nameable(sketch: Sketch) -> Sketch:
    """Return a sketch with other names for the arguments that no study can name: `in` is a word of Python."""
    known, called = names_in(sketch.source), dict[str, str]()
    signatures = {
        entry: [replace(one, name=one.name or f"unnamed_{place}") for place, one in enumerate(told)]
        for entry, told in sketch.signatures.items()
    }
    sketch = replace(sketch, signatures=signatures)
    for name in sorted({one.name for told in sketch.signatures.values() for one in told}):
        if keyword.iskeyword(name) or name_fault(name):
            plain = f"{name[:60]}_" if name.isascii() else re.sub(r"[^\x00-\x7f]", "_", name[:60])
            while plain in known:
                plain += "_"
            called[name] = plain
            known.add(plain)
    for told in sketch.signatures.values():  # PoCL's headers put a prefix before names of OpenCL's functions
        mangled = {one.name: one.name.removeprefix("_cl_") for one in told if one.name not in known}
        called |= {name: plain for name, plain in mangled.items() if plain in known}
    if not called:
        return sketch
    source = re.sub(r"[^\W\d]\w*", lambda found: called.get(found[0], found[0]), sketch.source)
    signatures = {
        entry: [replace(one, name=called.get(one.name, one.name)) for one in told]
        for entry, told in sketch.signatures.items()
    }
    return replace(sketch, source=source, signatures=signatures)


def told_apart(sketch: Sketch, launched: Sequence[str]) -> Sketch:
    """Return a sketch with distinct names for arguments that have one name but different sorts.

    Such are a `float` and an `int`, or buffers of these. `called` maps the new names to each kernel's own.
    """
    sorts, taken = dict[str, tuple[str, str]](), names_in(sketch.source)
    signatures, called = dict(sketch.signatures), dict[str, dict[str, str]]()
    for entry in launched:
        arguments = list[KernelArgument]()
        for one in sketch.signatures[entry]:
            name, sort = one.name, _sort(one)
            while sorts.setdefault(name, sort) != sort or (name != one.name and name in taken):
                name = f"{name}_{sort[1] or sort[0]}" if name == one.name else f"{name}_"
            if name != one.name:
                called.setdefault(entry, {})[name] = one.name
            arguments.append(replace(one, name=name))
        signatures[entry] = arguments
    return replace(sketch, signatures=signatures, called=called)


def _sort(one: KernelArgument) -> tuple[str, str]:
    """Return memory and type, without sign and width: arguments that are alike in these can be one in the study."""
    kind = one.type_name.removesuffix("*").removeprefix("struct ").strip()
    if one.address == "private":
        return "private", "int" if kind == "uint" else re.sub(r"\W", "_", kind)
    of = components(kind)[0] or re.sub(r"\W", "_", kind)
    return one.address, of[1:] if of in ("uchar", "ushort", "uint", "ulong") else of
