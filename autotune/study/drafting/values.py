"""The values of C's expressions as sums, and what they read, write and compare of a kernel's arguments."""

from __future__ import annotations

import re
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autotune.study.drafting.byvalue import spread, swizzled, with_component
from autotune.study.drafting.findings import Comparison, Pointer
from autotune.study.drafting.guarding import Guards
from autotune.study.drafting.scopes import Kernel
from autotune.study.drafting.syntax import NotRead
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.touching import beside_fraction, bytes_of
from autotune.study.drafting.trees import Tree, expression, folded, whole
from autotune.study.drafting.vectors import elements

_ARITHMETIC = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
_BELOW = Sum.of(-(2**31))
"""A place before all others, at which images with a border are read."""
MOST_STEPS = 20_000


class Values(Guards, ABC):
    """The walk through expressions, within the scopes of the walk through statements."""

    def __init__(self, kernel: Kernel, *, through: bool) -> None:
        super().__init__(kernel, through=through)
        self._returned: list[Any] = []
        self._steps = 0

    def _value(self, tokens: Sequence[str], *, of_loop: bool = False) -> Any:
        """Return the value of an expression, None if unknown. `of_loop`: whether it is a loop's condition."""
        if not tokens:
            return None
        around, self._in_condition = self._in_condition, of_loop
        try:
            return self._of(expression(tokens))
        except (NotRead, RecursionError):
            if {"get_global_id", "get_group_id"} & {*tokens}:  # how the id is used is not known
                self.found.ids.lose()
            pointers = [value for token in {*tokens} if isinstance(value := self._lookup(token), Pointer)]
            self.found.unread |= {pointer.name for pointer in pointers}
            return None
        finally:
            self._in_condition = around

    def _of(self, tree: Tree) -> Any:
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise NotRead
        operator, *parts = tree
        match operator:
            case "name":
                return _BELOW if parts[0] == "INT_MIN" else self._lookup(str(parts[0]))
            case "number":
                number = whole(str(parts[0]))
                return None if number is None else Sum.of(number)
            case "text":
                return None
            case "sizeof":
                return Sum.of(size) if (size := bytes_of(str(parts[0]))) else None
            case "unary":
                value = self._of_unary(*parts)
            case "vector" | "cond" | "member" | "index" | "call" | "cast" | "assign":
                around, self._in_condition = self._in_condition, False
                value = getattr(self, f"_of_{operator}")(*parts)
                self._in_condition = around
            case _:
                value = self._of_binary(operator, *parts)
        return self._unread(value) if isinstance(value, Sum) and value.is_long else value

    def _of_vector(self, *parts: Tree) -> tuple[Any, ...]:
        return tuple(map(self._of, parts))

    def _of_unary(self, sign: str, inner: Tree) -> Any:
        if sign in ("++", "--"):
            if inner[0] == "name":
                self._stepped(inner, Sum.of(1) if sign == "++" else None, falls=sign == "--")
            else:  # an element is incremented
                self._of_assign("+=", inner, ("number", "1"))
            return self._of(inner)
        value = self._of(inner)
        if sign == "*" and isinstance(value, Pointer):
            return self._at(value, Sum())
        if sign == "&":
            return self._place(inner)
        return -value if sign == "-" and isinstance(value, Sum) else value if sign == "+" else None

    def _of_cond(self, condition: Tree, one: Tree, other: Tree) -> Any:
        before = len(self.found.comparisons)
        self._of(condition)
        made, mentioned = self.found.comparisons[before:], len(self.found.mentions)
        first, second = self._of(one), self._of(other)
        self.found.close(made)
        if len(self.found.mentions) == mentioned:
            self._leave_out(made, first, second)
        known = folded(condition) if "name" not in repr(condition) else None
        return self._one_of(first, second) if known is None else second if known == 0 else first

    def _leave_out(self, comparisons: Sequence[Comparison], first: Any, second: Any) -> None:
        """Forget guards of a condition that bound neither of its values: `y < r ? 0 : y - r` ends no y at r."""
        for each in comparisons:
            value = second if each.turns_away else first
            unbound = isinstance(value, Sum) and each.guard.varying.names.isdisjoint(value.names)
            if unbound and each.guard in self.found.guards:
                self.found.guards.remove(each.guard)

    def _one_of(self, first: Any, second: Any) -> Any:
        """Return a variable for one of two values, as a condition decides; the value if both are equal."""
        if first == second:
            return first
        if not isinstance(first, Sum) or not isinstance(second, Sum):
            return None
        either = self._unread(first, second)
        self.found.either[str(either)] = (first, second)
        return either

    def _of_cast(self, kind: str, inner: Tree, *extents: Tree) -> Any:
        value = self._of(inner)
        if not isinstance(value, Pointer):
            return value
        return self._seen_as(value, kind)._replace(rows=self._extents(map(self._of, extents)))

    def _extents(self, told: Iterable[Any]) -> tuple[Sum, ...]:
        """Return the extents of an array that a pointer points to."""
        return tuple(each if isinstance(each, Sum) else self._fresh("any") for each in told)

    def _seen_as(self, value: Pointer, kind: str) -> Pointer:
        """Return a pointer cast to another type, whose elements are several of the argument's, or parts of them."""
        mine, other = bytes_of(value.type_name), bytes_of(kind)
        if kind == value.type_name or (mine and other and max(mine, other) % min(mine, other) == 0):
            width = elements(kind, value.type_name, self._kernel.widths)
            return value._replace(width=width, parts=max(mine // (other or 1), 1), seen=kind)
        return value.moved(self._fresh("any"))._replace(seen=kind)

    def _of_member(self, of: Tree, name: str) -> Any:
        value = self._of(of)
        if isinstance(value, Pointer):
            return self._at(value, Sum())
        if isinstance(value, Mapping):
            return value.get(name)
        if isinstance(value, Sum) and value.names and value.names <= self.found.contents.keys():
            return value  # a member read from a buffer's struct counts as the buffer's content
        return swizzled(value, name) if type(value) is tuple else None

    def _of_index(self, array: Tree, place: Tree) -> Any:
        base, index = self._of(array), self._of(place)
        self.found.note_cell(array, index)
        if isinstance(base, Pointer):
            return self._at(base, index)
        if isinstance(base, list):
            number = index.number if isinstance(index, Sum) else None
            return base[number] if number is not None and 0 <= number < len(base) else None
        return base if isinstance(base, Sum) and not any("@" in name for name in base.names) else None

    def _at(self, base: Pointer, index: Any, kind: str = "read") -> Any:
        index = index if isinstance(index, Sum) else self._fresh("any")
        if base.rows:
            return base.moved(index)._replace(rows=base.rows[1:])
        place = self._with_ids(base.moved(index).offset + base.width - 1)  # the last place that is used
        self.found.seen.setdefault(base.name, set()).add(base.seen)
        self.found.note_mention(base.name, (place,), kind)
        content = self._fresh(f"{base.name}@")
        self.found.contents[str(content)] = base.name
        return content

    def _of_assign(self, sign: str, left: Tree, right: Tree) -> Any:
        if sign == "=" and left[0] == "name" and right[0] in ("+", "-") and right[1] == left:
            sign, right = f"{right[0]}=", right[2]  # `i = i + n` steps it as `i += n` does
        value = self._of(right)
        if left[0] == "name":
            self._assign(sign, left, value, right)
            return value
        root = left
        while root[0] in ("index", "member", "cast") or (root[0] == "unary" and root[1] in ("*", "&")):
            root = root[2] if root[0] in ("unary", "cast") else root[1]
        return value if root is left else self._assign_part(sign, left, root, value)

    def _assign(self, sign: str, left: Tree, value: Any, right: Tree) -> None:
        """Give a variable a value, or step it."""
        name = str(left[1])
        if sign == "=":
            self._set(name, value)
        elif type(before := self._lookup(name)) is tuple:
            self._set(name, self._combined(sign[:-1], before, value))
        elif isinstance(before, Sum) and self._is_plain(name):
            self._set(name, self._of_binary(sign[:-1], left, right))
        else:
            step = value if sign in ("+=", "-=") and isinstance(value, Sum) else None
            self._stepped(left, step, falls=sign in ("-=", "/=", ">>="))

    def _assign_part(self, sign: str, left: Tree, root: Tree, value: Any) -> Any:
        """Note that memory is written, or change a component of a variable, the `root`; return the value."""
        before = len(self.found.mentions)
        self._of(left)
        made = self.found.mentions[before:]
        if made and isinstance(self._of(root), Pointer):
            self._ask_apart(value)
            last = made[-1]._replace(kind="write" if sign == "=" else "both")
            self.found.mentions[last.number] = last
        elif left[0] == "member" and type(of := self._of(left[1])) is tuple and left[1][0] == "name":
            value = value if sign == "=" else self._combined(sign[:-1], self._of(left), value)
            self._put(str(root[1]), with_component(of, str(left[2]), self._lasting(str(root[1]), value)))
        elif root[0] == "name" and sign == "=":  # a local array: taken as if all its numbers were this one
            self._set(str(root[1]), value)
        return value

    def _place(self, tree: Tree) -> Any:
        """Return the pointer for the address of an element, `&x[i]`; None for others."""
        if tree[0] == "index" and isinstance(base := self._of(tree[1]), Pointer):
            index = self._of(tree[2])
            return base.moved(index if isinstance(index, Sum) else self._fresh("any"))
        return None

    def _of_binary(self, operator: str, left: Tree, right: Tree) -> Any:
        before = len(self.found.comparisons)
        if operator in ("+", "-") and (pixel := beside_fraction(left, right)) is not None:
            return self._of(pixel)
        one, other = self._of(left), self._of(right)
        if operator in ("&&", "||"):
            self.found.settle(self.found.comparisons[before:], both=operator == "&&")
        return self._combined(operator, one, other)

    def _combined(self, operator: str, left: Any, right: Any) -> Any:
        """Return the result of an operator on two values."""
        if isinstance(left, Pointer) and operator in ("+", "-") and not isinstance(right, Pointer):
            by = right if isinstance(right, Sum) else self._fresh("any")
            if operator == "+" and left.parts > 1 and str(by) in self._takes:
                self.found.shifts.add(str(by))
                return left
            return left.moved(by if operator == "+" else -by)
        if tuple in (type(left), type(right)):
            pairs = zip(*spread(left, right), strict=False)
            return tuple(self._combined(operator, one, other) for one, other in pairs)
        if not isinstance(left, Sum) or not isinstance(right, Sum):
            one = left if isinstance(left, Sum) else right
            return self._unread(one) if isinstance(one, Sum) and operator in _ARITHMETIC else None
        if operator in ("<", "<=", ">", ">="):
            self._compared(operator, left, right)
            return None
        if operator in ("==", "!="):
            self.found.note_lone(left - right, equal=operator == "==")
        if operator in (">>", "<<"):
            self.found.exponents |= right.names
        if operator in ("/", "%", ">>", "<<", "&") and right.known and right:
            self._ask_apart(left)
            match operator:
                case "/":
                    return self._quotient(left, right)
                case "%":
                    return self._remainder(left, right)
                case "&":
                    return self._masked(left, right)
            if (power := self._power(right)) is not None:
                return self._quotient(left, power) if operator == ">>" else left * power
        if operator == "-" and (divisor := self._divided_by(left, right)) is not None:
            return self._remainder(left, divisor)
        made = {"+": left.__add__, "-": left.__sub__, "*": left.__mul__}.get(operator)
        return self._unread(left, right) if made is None else self._with_ids(made(right))

    def _power(self, exponent: Sum) -> Sum | None:
        """Return a power of two; None if it may be large."""
        if exponent.names and exponent.names.isdisjoint(self._takes):  # only macros, which are not large
            return Sum.of(f"(2 ** {exponent})" if len(exponent.terms) == 1 else f"(2 ** ({exponent}))")
        return Sum.of(2**exponent.number) if exponent.number is not None and 0 <= exponent.number < 31 else None

    def _lasting(self, name: str, value: Any) -> Any:
        """Return a variable's value from an assignment on: unknown if it is in a branch or loop inside its block."""
        block = self._block_of(name)
        within = block is not None and block.opened == self._branches
        return value if within or not isinstance(value, Sum) else self._unread(value)

    def _ask_apart(self, *values: Any) -> None:
        """Note that ids along axes are used for more than counting the items of all axes."""
        for value in values:
            if type(value) is tuple:
                self._ask_apart(*value)
            elif isinstance(value, Sum):
                self.found.ids.apart |= {int(axis) for axis in re.findall(r"[gw]id#([12])", " ".join(value.names))}

    def _unread(self, *parts: Sum) -> Sum:
        """Return a variable of which only the ids in it are known."""
        self._ask_apart(*parts)
        ids = sorted({name for part in parts for name in re.findall(r"(?:gid|wid)#[012]", str(part))})
        return self._fresh(f"({' '.join(ids)})")
