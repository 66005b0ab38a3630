"""Which buffers kernels take but do not use: neither read nor written, whatever the parameters are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from autotune.study.drafting.branches import asked_by_directives
from autotune.study.drafting.proposal import Proposal


def left_alone(of: Proposal) -> dict[str, set[str]]:
    """Return the buffers that each kernel takes and does not name, by kernel; none if the text was not read."""
    functions = of.code.functions()
    branches = asked_by_directives(of.text) & of.parameters.keys()  # other branches may name what this one does not
    found = dict[str, set[str]]()
    for entry in of.launched:
        called = of.sketch.called.get(entry, {})
        buffers = {one.name for one in of.sketch.signatures[entry] if one.address in ("global", "constant")}
        told = {name: called.get(name, name) for name in buffers}
        met = {*functions[entry].body} if entry in functions else {*told.values()}
        if branches:
            met |= {name for name in told.values() if len(re.findall(rf"\b{name}\b", of.text)) > 1}
        found[entry] = {name for name in buffers if told[name] not in met}
    return found


def untouched(of: Proposal, left: Mapping[str, Collection[str]]) -> set[str]:
    """Return the buffers that no kernel uses; none of them if then no output would be left."""
    buffers = {one.name: one.const for one in of.arguments.values() if one.address in ("global", "constant")}
    met = {
        one.name for entry in of.launched for one in of.sketch.signatures[entry] if one.name not in left.get(entry, ())
    }
    outputs = {name for name, const in buffers.items() if not const}
    return buffers.keys() - met if outputs & met else set()  # without an output, the text is not complete
