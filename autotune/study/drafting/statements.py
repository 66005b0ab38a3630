"""Walk through a kernel's statements once, in order, as if every branch were taken.

A called function is walked through with its arguments. Nothing here is proof: shapes.py makes proposals from it, which
are marked as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from autotune.study.drafting.calls import Calls
from autotune.study.drafting.findings import Comparison, Ids, Pointer
from autotune.study.drafting.functions import Function
from autotune.study.drafting.reading import Reading
from autotune.study.drafting.scopes import Block, Kernel
from autotune.study.drafting.syntax import (
    NAME,
    QUALIFIERS,
    changes,
    changes_plainly,
    closing,
    declarator,
    ended,
    is_type,
    split,
    step_of,
)
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.touching import bytes_of, components
from autotune.study.drafting.values import MOST_STEPS

_LEAVING = {"return", "continue", "break", "goto"}
_FARTHEST = 4000
"""The number of a block's tokens that are searched for changes of a variable."""


def read(kernel: Kernel) -> Reading:
    """Return the findings in a kernel: none if it cannot be read, except that groups may differ along each axis."""
    with suppress(RecursionError):
        if kernel.entry in kernel.functions:
            found = _Walk(kernel, through=True).whole()
            if found.ids.through and found.leave_out_through():
                return _Walk(kernel, through=False).whole()
            return found
    return Reading(Ids(spread={0, 1, 2}))


class _Walk(Calls):
    """The walk through statements."""

    def whole(self) -> Reading:
        """Walk through the kernel and return the findings."""
        function, told = self._kernel.functions[self._kernel.entry], self._kernel.given
        given = {name: told[name] for name in function.takes if told.get(name) is not None}
        self.function(function, given)
        if self._steps >= MOST_STEPS:  # the rest is not read
            self.found.unread |= {pointer.name for pointer in given.values() if isinstance(pointer, Pointer)}
            self.found.ids.lose()
        return self.found

    def function(self, function: Function, given: Mapping[str, Any]) -> Any:
        """Walk through a body; return its value if it has one return statement, else None."""
        before = self._scopes, self._rest, self._returned
        turning = len(self.found.turning)
        own = Block(dict(given), self._branches)
        self._scopes, self._returned = [own], []
        for name, extents in function.rows.items():
            if isinstance(value := given.get(name), Pointer):
                own.values[name] = value._replace(rows=self._extents(map(self._value, extents)))
        for name in function.takes:  # a number that the kernel takes and changes has other values from there on
            mine = name in self._kernel.known and name not in given
            if mine and changes(name, function.body) and changes_plainly(name, function.body):
                own.values[name] = Sum.of(self._kernel.known[name])
                own.plain.add(name)
        self._block(function.body)
        returned = self._returned
        self._scopes, self._rest, self._returned = before
        del self.found.turning[turning:]
        return returned[0] if len(returned) == 1 else None

    def _block(self, tokens: Sequence[str]) -> None:
        at = 0
        while at < len(tokens) and self._steps < MOST_STEPS:
            at = self._statement(tokens, at)

    def _statement(self, tokens: Sequence[str], at: int) -> int:
        """Walk through one statement and return the place after it."""
        self._steps += 1
        if at >= len(tokens):
            return at
        token = tokens[at]
        if token == "{":
            end = closing(tokens, at)
            self._scopes.append(Block(opened=self._branches))
            self._block(tokens[at + 1 : end])
            self._scopes.pop()
            return end + 1
        if token in ("for", "if", "while", "switch", "_Pragma") and tokens[at + 1 : at + 2] == ["("]:
            return self._loop(tokens, at) if token == "for" else self._conditional(tokens, at)
        if token == "do":
            self._leave_behind(tokens[at + 1 : at + 1 + _FARTHEST], 0)
            return self._perhaps(tokens, at + 1)
        if token == "else":  # whose `if` was not read
            return at + 1
        if token in ("case", "default"):
            return next((n for n in range(at, len(tokens)) if tokens[n] == ":"), len(tokens)) + 1
        end = at
        while end < len(tokens) and tokens[end] != ";":
            end = closing(tokens, end) + 1 if tokens[end] in "([{" else end + 1
        self._rest = tokens[at : at + _FARTHEST]
        if token == "return":
            self._returned.append(self._value(tokens[at + 1 : end]))
        else:
            self._simple(tokens[at:end])
        return end + 1

    def _conditional(self, tokens: Sequence[str], begun: int) -> int:
        """Walk through an `if` with its `else`, a `while` or a `switch`, and return the place after it."""
        token, end = tokens[begun], closing(tokens, begun + 1)
        if token == "while":
            self._leave_behind(tokens[begun : end + 1 + _FARTHEST], end + 1 - begun)
        head = tokens[begun + 2 : end] if token != "_Pragma" else ()
        made = self._compared_in(head, of_loop=token == "while")
        within = [len(self.found.mentions)]
        barriers = self.found.barriers
        at = self._perhaps(tokens, end + 1)  # within the scope of a loop around it
        while tokens[at : at + 1] == ["else"]:
            within.append(len(self.found.mentions))
            at = self._perhaps(tokens, at + 1)
        if len(within) > 1:
            self.found.note_rim(within)
        self._part(made, barriers, leaves=token == "if" and "return" in tokens[end + 1 : at])
        uses = len(self.found.mentions) > within[0]  # else it may set a flag
        if token != "if" or (uses and not _LEAVING & {*tokens[end + 1 : at]}):
            self.found.close(made, *within[1:2])
        return at

    def _loop(self, tokens: Sequence[str], at: int) -> int:
        """Walk through a `for`, and return the place after it."""
        end = closing(tokens, at + 1)
        inside, at = tokens[at + 2 : end], end + 1
        self._scopes.append(Block(opened=self._branches))
        self._rest = [*inside, *tokens[at : at + _FARTHEST]]
        parts = [*split(inside, ";"), [], [], []][:3]
        self._in_head = True
        self._simple(parts[0])
        self._in_head = False
        left = self._leave_behind([*inside, ";", *tokens[at : at + _FARTHEST]], len(inside) + 1)
        made = self._compared_in(parts[1], of_loop=True)
        steps = {name: loop.step for name, loop in self.found.loops.items()}
        barriers = self.found.barriers
        self._in_head = True
        for step in split(parts[2]):
            self._value(step)
        self._in_head = False
        stepped = [name for name, loop in self.found.loops.items() if name not in steps or steps[name] != loop.step]
        for name in [*stepped, *left] if stepped else ():
            self.found.loops[name].head = min(stepped)
        at = self._perhaps(tokens, at)
        self.found.close(made)
        self._part(made, barriers, leaves=False)
        self._scopes.pop()
        return at

    def _compared_in(self, condition: Sequence[str], *, of_loop: bool) -> list[Comparison]:
        """Walk through a condition and return the comparisons in it."""
        before = len(self.found.comparisons)
        self._value(condition, of_loop=of_loop)
        return self.found.comparisons[before:]

    def _part(self, comparisons: Sequence[Comparison], barriers: int, *, leaves: bool) -> None:
        """Note that comparisons keep some items from a barrier.

        It is one met since the count was `barriers` or, if the branch `leaves` the kernel, any later one.
        """
        sums = [each.guard.varying for each in comparisons]
        self.found.parted |= {*sums} if self.found.barriers > barriers else set()
        self.found.turning += sums if leaves else []

    def _perhaps(self, tokens: Sequence[str], at: int) -> int:
        """Walk through one statement that is executed never, once or often."""
        self._branches += 1
        at = self._statement(tokens, at)
        self._branches -= 1
        return at

    def _leave_behind(self, tokens: Sequence[str], body: int) -> list[str]:
        """Give new values to pointers and plain variables that a loop moves; return the variables for their steps.

        The values are unknown, or the starts plus the steps of the loop's turns. `body`: the place in the tokens where
        its body begins.
        """
        loop, stepped = tokens[: ended(tokens, body)], list[str]()
        names = {name for block in self._scopes for name in block.values}
        for name in sorted(names & {*loop}):
            value, pointed = self._lookup(name), isinstance(self._lookup(name), Pointer)
            if not (pointed or (isinstance(value, Sum) and self._is_plain(name))) or not changes(name, loop):
                continue
            told = step_of(name, loop, body) or ()
            reads = any(isinstance(self._lookup(word), Pointer) for word in told)
            step = self._value(told) if not reads else None
            known = isinstance(step, Sum) and step.known
            moved = self._fresh(name) if pointed and not known else self._begun(name, Sum() if known else value)
            self._put(name, value.moved(moved) if pointed else value + moved if known else moved)
            if known:
                stepped.append(str(moved))
                self.found.loops[str(moved)].step = step
        return stepped

    def _simple(self, tokens: Sequence[str]) -> None:
        words, shared = list(tokens), "local" in tokens[:3]
        while words and (words[0] in QUALIFIERS or words[0] == "__attribute__"):
            words = words[closing(words, 1) + 1 :] if words[0] == "__attribute__" else words[1:]
        named = len(words) > 1 and NAME.fullmatch(words[0]) is not None
        array = declarator(words[1:]).extents and words[0] not in self._kernel.functions
        told = words[1:2] == ["*"] or NAME.fullmatch("".join(words[1:2]))
        declares = named and (array or (told and self._names_type(words[0], words)))
        for part in split(words[1:] if declares else words):
            if declares:
                self._declared([word for word in part if word not in QUALIFIERS], words[0], shared=shared)
            else:
                self._value(part)

    def _names_type(self, word: str, words: Sequence[str]) -> bool:
        return is_type(word) or ((words[1] != "*" or "=" in words[2:5]) and self._lookup(word) is None)

    def _declared(self, words: list[str], kind: str, *, shared: bool) -> None:
        """Walk through the declaration of one variable; `shared`: whether it is in local memory."""
        pointed, (name, rows, length) = words[:1] == ["*"], declarator(words)
        while words[:1] == ["*"]:
            words = words[1:]
        if not words:
            return
        name, rest = (name, words[length:]) if name else (words[0], words[1:])
        extents = list[Any]()
        while rest[:1] == ["["]:
            extents.append(self._value(rest[1 : closing(rest, 0)]))
            rest = rest[closing(rest, 0) + 1 :]
        if extents:
            arrays = self.found.arrays if shared else self.found.private
            arrays[name] = [each if isinstance(each, Sum) else None for each in extents]
        width, stated = 1 if extents else components(kind)[1], rest[:1] == ["="]
        value = self._initial(rest[1:], vector=width > 1) if stated else None
        if value is None and width > 1 and not pointed:
            value = (None,) * width
        if (pointed or rows) and isinstance(value, Pointer):
            value = self._seen_as(value, kind) if bytes_of(kind) else value
            value = value._replace(rows=self._extents(map(self._value, rows)))
        self._begin(name, value, stated=stated)

    def _begin(self, name: str, value: Any, *, stated: bool) -> None:
        """Give a variable its first value; one that changes, unless it is followed plainly, is a loop's."""
        changed = changes(name, self._rest)
        if not stated and changed == 1:
            self._scopes[-1].values[name] = None  # its only assignment comes later
            return
        if plain := isinstance(value, Sum) and not self._in_head and changes_plainly(name, self._rest):
            self._scopes[-1].plain.add(name)
        if changed and not plain and (value is None or isinstance(value, Sum)):
            begun = self._begun(name, Sum() if value is None else value)
            self.found.loops[str(begun)].moved = stated and value is None  # its start is unknown
            self._once |= {str(begun)} if changed == 1 and value is not None else set()
            value = begun
        self._scopes[-1].values[name] = value

    def _initial(self, tokens: Sequence[str], *, vector: bool) -> Any:
        """Return a variable's initial value; values in braces are only known as the components of a vector."""
        if tokens[:1] != ["{"]:
            return self._value(tokens)
        parts = tuple(self._initial(part, vector=False) for part in split(tokens[1 : closing(tokens, 0)]))
        return parts if vector else None
