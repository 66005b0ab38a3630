"""Arguments under names that a study's expressions can hold."""

from __future__ import annotations

import keyword
import re
from dataclasses import replace

from autotune.study.drafting.proposal import Sketch
from autotune.study.drafting.uses import words


def nameable(sketch: Sketch) -> Sketch:
    """Return a sketch with other names for the arguments that no expression can name: `in` is a word of Python."""
    names = {one.name for told in sketch.signatures.values() for one in told if keyword.iskeyword(one.name)}
    called = {name: f"{name}_" for name in names if f"{name}_" not in words(sketch.source)}
    known = words(sketch.source)
    for told in sketch.signatures.values():  # PoCL's headers put a prefix before what OpenCL has a function of
        mangled = {one.name: one.name.removeprefix("_cl_") for one in told if one.name not in known}
        called |= {name: plain for name, plain in mangled.items() if plain in known}
    if not called:
        return sketch
    source = re.sub(r"[A-Za-z_]\w*", lambda found: called.get(found[0], found[0]), sketch.source)
    signatures = {
        entry: [replace(one, name=called.get(one.name, one.name)) for one in told]
        for entry, told in sketch.signatures.items()
    }
    return replace(sketch, source=source, signatures=signatures)
