"""The variables of a kernel during the walk through it: their values, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.study.drafting.reading import Pointer, Reading
from autotune.study.drafting.syntax import Tree, changes
from autotune.study.drafting.terms import Sum


class Scopes:
    """Nested scopes, and the findings of the walk."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self.found = Reading()
        self._known = known
        self._scopes: list[dict[str, Any]] = [{}]
        self._branches = 0  # the number of conditions and loops around the current statement
        self._opened: list[int] = [0]  # that number for each scope when it was opened
        self._plain: list[set[str]] = [set()]  # the variables of each scope that are `_is_plain`
        self._in_head = False  # whether in the start or the step of a loop's head
        self._rest: Sequence[str] = ()  # the tokens of the block from the current statement on
        self._once: set[str] = set()  # variables that change once after their declaration
        self._count = 0

    def _fresh(self, name: str) -> Sum:
        self._count += 1
        return Sum.of(f"{name}.#{self._count}")  # never equal to an id, whatever the kernel's variables are named

    def _begun(self, name: str, value: Sum) -> Sum:
        """Return a new variable that begins with a value and changes."""
        atom = self._fresh(name)
        self.found.loops[next(iter(atom.names))] = (value, None)
        return atom

    def _lookup(self, name: str) -> Any:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        known = self._known.get(name)
        return None if known is None else Sum.of(int(known) if known.isdigit() else known)

    def _set(self, name: str, value: Any) -> None:
        for scope, opened in zip(reversed(self._scopes), reversed(self._opened), strict=True):
            if name in scope:
                once = self._is_plain(name) or (opened == self._branches and changes(name, self._rest) == 1)
                before = scope[name]
                if once and isinstance(before, Sum) and str(before) in self._once:  # up to here it has its first value
                    begun = self.found.loops[str(before)][0]
                    self.found.either[str(before)] = (begun, begun)
                if isinstance(before, Pointer) and isinstance(value, Pointer):  # the variable keeps its own type
                    scope[name] = before._replace(offset=value.offset, name=value.name, type_name=value.type_name)
                elif type(before) is tuple:
                    scope[name] = value if opened == self._branches else (None,) * len(before)
                elif before is None or (once and not isinstance(before, Pointer)):
                    scope[name] = value
                elif isinstance(before, Pointer):
                    scope[name] = scope[name].moved(self._fresh(name))
                elif isinstance(value, Sum):  # from here on it is another variable
                    scope[name] = changed = self._begun(name, value)
                    if opened < self._branches and not self._in_head:  # if not taken, it keeps its old value
                        self.found.either[str(changed)] = (before, value)
                return

    def _is_plain(self, name: str) -> bool:
        """Whether a variable is changed only in its own block, by one statement after another."""
        within = (plain for scope, plain in zip(self._scopes[::-1], self._plain[::-1], strict=True) if name in scope)
        return name in next(within, ())

    def _is_within(self, name: str) -> bool:
        """Whether a variable was declared in the current branch or loop."""
        scopes = zip(reversed(self._scopes), reversed(self._opened), strict=True)
        return next((opened == self._branches for scope, opened in scopes if name in scope), False)

    def _put(self, name: str, value: Any) -> None:
        """Give a known name a value from here on."""
        for scope in reversed(self._scopes):
            if name in scope:
                scope[name] = value
                return

    def _stepped(self, tree: Tree, step: Sum | None, *, falls: bool) -> None:
        value = self._lookup(str(tree[1])) if tree[0] == "name" else None
        if isinstance(value, Pointer):
            self._put(str(tree[1]), value.moved(self._fresh(str(tree[1])) if step is None or falls else step))
        for name in value.names if isinstance(value, Sum) else ():
            self.found.moved.add(name)
            if name in self.found.loops and falls and self._in_head:
                self.found.falling[name] = step
            if name in self.found.loops and step is not None and not falls:
                self.found.loops[name] = (self.found.loops[name][0], step)
