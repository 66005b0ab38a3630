"""How kernels use each argument: which they read, write, leave alone, and as which type they take it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from autotune.devices import KernelArgument
from autotune.study.drafting.branches import asked_by_directives
from autotune.study.drafting.proposal import Proposal


def in_memory(one: KernelArgument) -> bool:
    """Whether an argument is a buffer or an image (compilers may report images as private)."""
    return one.address == "global" or bool(one.access)


class Accesses:
    """How the launched kernels use all arguments."""

    def __init__(self, proposal: Proposal) -> None:
        self._of = proposal
        self._left_alone = _left_alone(proposal)
        self.untouched = _untouched(proposal, self._left_alone)

    def access(self, one: KernelArgument) -> str:
        """Return how the kernels use an argument; `scratch` if one kernel writes it and a later one reads it."""
        if one.name in self.untouched:
            return "in"
        if one.access:
            return {"read_only": "in", "write_only": "out"}.get(one.access, "inout")
        if one.const or one.address == "constant":
            return "in"
        kinds = [each for each in self._of.kinds(one.name) if each]
        if len(kinds) > 1 and kinds[0] == {"write"} and kinds[-1] == {"read"}:
            return "scratch"
        if not kinds:
            return self._written(one.name)
        return {frozenset({"write"}): "out", frozenset({"read"}): "in"}.get(frozenset().union(*kinds), "inout")

    def overwritten(self, entry: str) -> tuple[str, str] | None:
        """Return a buffer that a kernel writes without reading, and the earlier kernel that wrote it; or None.

        The earlier kernel may only seem to write it. As nothing reads the buffer between the two, one kernel is an
        alternative or an optional step.
        """
        for name, one in self._of.arguments.items():
            if in_memory(one) and self.kinds(entry, name) == {"write"}:
                before = (other for other in reversed(self._before(entry)) if self.kinds(other, name))
                if (last := next(before, None)) is not None and self.kinds(last, name) != {"read"}:
                    return name, last
        return None

    def _before(self, entry: str) -> list[str]:
        launched = list(self._of.launched)
        return launched[: launched.index(entry)]

    def kinds(self, entry: str, name: str) -> set[str]:
        """Return how one kernel uses an argument; `both` if its text was not understood and nothing forbids that."""
        left = self._left_alone.get(entry, ())
        taken = [one for one in self._of.sketch.signatures[entry] if one.name == name and name not in left]
        known = self._of.shapes[entry].reading.kinds(name)
        said = {"read_only": "read", "write_only": "write"}
        return known or {"read" if one.const else said.get(one.access, "both") for one in taken}

    def in_text(self, name: str) -> str:
        """Return the name of an argument in the text."""
        return next((called[name] for called in self._of.sketch.called.values() if name in called), name)

    def taken_as(self, name: str) -> str:
        """Return a remark if kernels take a buffer as different types, of which the study can have only one; or ""."""
        told = {
            entry: one.type_name
            for entry in self._of.launched
            for one in self._of.sketch.signatures[entry]
            if one.name == name
        }
        if name in self._of.cast:
            return "its type: void in the kernel, which casts it"
        mine = self._of.arguments[name].type_name
        other = next((entry for entry, kind in told.items() if kind != mine and kind.endswith("*")), None)
        return "" if other is None else f"{other} takes it as {told[other].removesuffix('*')}"

    def _written(self, name: str) -> str:
        """Return `out` if every mention in the bodies stores to an element, else `inout`."""
        name, bodies = self.in_text(name), self._of.text[self._of.text.find("{") :]
        mentions = re.findall(rf"\b{name}\b(?!\s*[,)])", bodies)
        stores = re.findall(rf"\b{name}\s*\[[^;=]*\]\s*=(?!=)", bodies)
        return "out" if stores and len(stores) == len(mentions) else "inout"


def _left_alone(of: Proposal) -> dict[str, set[str]]:
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


def _untouched(of: Proposal, left: Mapping[str, Collection[str]]) -> set[str]:
    """Return the buffers that no kernel uses; none of them if then no output would be left."""
    buffers = {one.name: one.const for one in of.arguments.values() if one.address in ("global", "constant")}
    met = {
        one.name for entry in of.launched for one in of.sketch.signatures[entry] if one.name not in left.get(entry, ())
    }
    outputs = {name for name, const in buffers.items() if not const}
    return buffers.keys() - met if outputs & met else set()  # without an output, the text is not complete
