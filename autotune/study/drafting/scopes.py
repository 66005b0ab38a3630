"""The variables of a kernel during the walk through it: their values, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autotune.study.drafting.findings import Loop, Pointer
from autotune.study.drafting.functions import Function
from autotune.study.drafting.reading import Reading
from autotune.study.drafting.syntax import changes
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.trees import Tree


class Kernel(NamedTuple):
    """A kernel to walk through.

    `given`: its buffers and images, and byvalue.py's values of its vectors and structs; `known`: what names stand for;
    `widths`: see vectors.py.
    """

    functions: Mapping[str, Function]
    entry: str
    given: Mapping[str, Any]
    known: Mapping[str, str]
    widths: Mapping[str, str]


@dataclass
class Block:
    """The values of a block's variables; `opened`: the number of conditions and loops around the block.

    `plain`: those of the variables that are changed only in this block, by one statement after another.
    """

    values: dict[str, Any] = field(default_factory=dict)
    opened: int = 0
    plain: set[str] = field(default_factory=set)


class Scopes:
    """Nested scopes, and the findings of the walk. `through`: whether items are counted through along all axes."""

    def __init__(self, kernel: Kernel, *, through: bool) -> None:
        self.found = Reading()
        self._kernel, self._through = kernel, through
        self._scopes = [Block()]
        self._branches = 0  # the number of conditions and loops around the current statement
        self._in_head = False  # whether in the start or the step of a loop's head
        self._in_condition = False  # whether in the condition of a loop
        self._rest: Sequence[str] = ()  # the tokens of the block from the current statement on
        self._once: set[str] = set()  # variables that change once after their declaration
        self._count = 0

    def _fresh(self, name: str) -> Sum:
        self._count += 1
        return Sum.of(f"{name}.#{self._count}")  # never equal to an id, whatever the kernel's variables are named

    def _begun(self, name: str, value: Sum) -> Sum:
        """Return a new variable that begins with a value and changes."""
        atom = self._fresh(name)
        self.found.loops[str(atom)] = Loop(value)
        return atom

    def _block_of(self, name: str) -> Block | None:
        """Return the innermost block that has a variable of that name."""
        for block in reversed(self._scopes):
            if name in block.values:
                return block
        return None

    def _lookup(self, name: str) -> Any:
        if (block := self._block_of(name)) is not None:
            return block.values[name]
        known = self._kernel.known.get(name)
        return None if known is None else Sum.of(int(known) if known.isdigit() else known)

    def _set(self, name: str, value: Any) -> None:
        if (block := self._block_of(name)) is None:
            return
        within, before = block.opened == self._branches, block.values[name]
        once = name in block.plain or (within and changes(name, self._rest) == 1)
        if once and isinstance(before, Sum) and str(before) in self._once:  # up to here it has its first value
            begun = self.found.loops[str(before)].start
            self.found.either[str(before)] = (begun, begun)
        if isinstance(before, Pointer) and isinstance(value, Pointer):  # the variable keeps its own type
            value = before._replace(offset=value.offset, name=value.name, type_name=value.type_name)
        elif isinstance(before, Pointer):
            value = before.moved(self._fresh(name))
        elif type(before) is tuple:
            value = value if within else (None,) * len(before)
        elif before is not None and not once:
            if not isinstance(value, Sum):
                return
            changed = self._begun(name, value)  # from here on it is another variable
            if block.opened < self._branches and not self._in_head:  # if not taken, it keeps its old value
                self.found.either[str(changed)] = (before, value)
            value = changed
        block.values[name] = value

    def _is_plain(self, name: str) -> bool:
        """Whether a variable is changed only in its own block, by one statement after another."""
        block = self._block_of(name)
        return block is not None and name in block.plain

    def _put(self, name: str, value: Any) -> None:
        """Give a known name a value from here on."""
        if (block := self._block_of(name)) is not None:
            block.values[name] = value

    def _stepped(self, tree: Tree, step: Sum | None, *, falls: bool) -> None:
        value = self._lookup(str(tree[1])) if tree[0] == "name" else None
        if isinstance(value, Pointer):
            self._put(str(tree[1]), value.moved(self._fresh(str(tree[1])) if step is None or falls else step))
        for name in value.names & self.found.loops.keys() if isinstance(value, Sum) else ():
            loop = self.found.loops[name]
            loop.moved = True
            if falls and self._in_head:
                loop.fall = step or Sum()
            elif step is not None and not falls:
                loop.step = step
