"""What a kernel's text says of its indices: where each argument is read and written, and what bounds the variables.

The statements are walked through once, in order, as if every branch were taken; a function that is called is walked
through with what it is given. Nothing here is proof: shapes.py makes proposals of it, which say that they are.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from autotune.study.drafting.syntax import QUALIFIERS, NotRead, Tree, closing, expression, folded, is_type, split, whole
from autotune.study.drafting.terms import Sum, quotient, remainder

IDS = {
    "get_global_id": "gid", "get_group_id": "wid", "get_local_id": "lid", "get_global_size": "gsz",
    "get_local_size": "lsz", "get_num_groups": "ngr",
}  # fmt: skip
EXTENT = "image extent "
"""How the extent of an image along an axis is called until it has a name."""

_EXTENTS = {"get_image_width": 0, "get_image_height": 1, "get_image_depth": 2}
_MOST_STEPS = 20_000
_DEEPEST = 5
_FARTHEST = 4000
"""Tokens of a block that are looked through for changes of a variable."""

_MODIFIED = ("=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<=", ">>=")


class Pointer(NamedTuple):
    """A place in an argument."""

    name: str
    offset: Sum


class Mention(NamedTuple):
    """An argument at a place, or an image at its coordinates: `read`, `write` or `both`."""

    name: str
    places: tuple[Sum, ...]
    kind: str


@dataclass
class Reading:
    """All that was found in one kernel.

    `guards`: pairs of a sum with a variable in it and the known sum below which it stays. `loops`: where a variable
    begins and by how much it grows. `contents`: the argument and place that a name was read from. `between`: variables
    that run from one content of an argument to the next, with its name.
    `axes`: whose ids are asked for; `spread`: along which work-groups differ.
    """

    mentions: list[Mention] = field(default_factory=list)
    guards: list[tuple[Sum, Sum]] = field(default_factory=list)
    loops: dict[str, tuple[Sum, Sum | None]] = field(default_factory=dict)
    contents: dict[str, tuple[str, Sum]] = field(default_factory=dict)
    between: dict[str, str] = field(default_factory=dict)
    axes: set[int] = field(default_factory=set)
    spread: set[int] = field(default_factory=set)

    def groups(self) -> dict[int, Sum]:
        """Return the extents of a work-group where places are counted group by group: `group * TILE + item`."""
        found: dict[int, Sum] = {}
        sums = [start for start, _ in self.loops.values()] + [varying for varying, _ in self.guards]
        for each in (*sums, *(index for mention in self.mentions for index in mention.places)):
            for axis in (0, 1, 2):
                group, item = each.factor_of(f"wid#{axis}"), each.factor_of(f"lid#{axis}")
                extent = group.over(item) if group.known and item.known and item else None
                if extent is not None and extent.names and not (axis in found and found[axis] != extent):
                    found[axis] = extent
        return found


class Function(NamedTuple):
    """A function's arguments by name, and the tokens of its body."""

    takes: tuple[str, ...]
    body: Sequence[str]


def functions_of(tokens: Sequence[str]) -> dict[str, Function]:
    """Return the functions that a text defines."""
    found, at = dict[str, Function](), 0
    while at < len(tokens):
        if tokens[at] != "{":
            at += 1
            continue
        end = closing(tokens, at)
        if at and tokens[at - 1] == ")":
            start, depth = at - 1, 0
            while start >= 0:
                depth += (tokens[start] == ")") - (tokens[start] == "(")
                if depth == 0:
                    break
                start -= 1
            parts = split(tokens[start + 1 : at - 1])
            takes = tuple(next((w for w in reversed(part) if re.fullmatch(r"[A-Za-z_]\w*", w)), "") for part in parts)
            found.setdefault(tokens[start - 1], Function(takes, tokens[at + 1 : end]))
        at = end + 1
    return found


def read(functions: Mapping[str, Function], entry: str, pointers: Collection[str], known: Collection[str]) -> Reading:
    """Return what is found in a kernel. `pointers`: its buffers and images; `known`: names that stay as they are."""
    walk = _Walk(functions, known)
    function = functions[entry]
    given: dict[str, Any] = {name: Pointer(name, Sum()) for name in function.takes if name in pointers}
    walk.function(function, given)
    return walk.found


class _Walk:
    def __init__(self, functions: Mapping[str, Function], known: Collection[str]) -> None:
        self.found = Reading()
        self._functions, self._known = functions, known
        self._scopes: list[dict[str, Any]] = [{}]
        self._rest: Sequence[str] = ()  # of the block, from the statement on
        self._minima: dict[str, list[Sum]] = {}
        self._returned: list[Any] = []
        self._count = self._steps = self._depth = 0

    # -- statements -------------------------------------------------------------------------------

    def function(self, function: Function, given: Mapping[str, Any]) -> Any:
        """Walk through a body; return what it returns, if that is one value."""
        before = self._scopes, self._rest, self._returned
        self._scopes, self._returned = [dict(given)], []
        self._block(function.body)
        returned = self._returned
        self._scopes, self._rest, self._returned = before
        return returned[0] if len(returned) == 1 else None

    def _block(self, tokens: Sequence[str]) -> None:
        at = 0
        while at < len(tokens) and self._steps < _MOST_STEPS:
            at = self._statement(tokens, at)

    def _statement(self, tokens: Sequence[str], at: int) -> int:
        """Walk through one statement and return the place behind it."""
        self._steps += 1
        if at >= len(tokens):
            return at
        token = tokens[at]
        if token == "{":
            end = closing(tokens, at)
            self._scopes.append({})
            self._block(tokens[at + 1 : end])
            self._scopes.pop()
            return end + 1
        if token in ("for", "if", "while", "switch", "_Pragma") and tokens[at + 1 : at + 2] == ["("]:
            end = closing(tokens, at + 1)
            inside = tokens[at + 2 : end]
            if token == "for":
                return self._loop(inside, tokens, end + 1)
            if token != "_Pragma":
                self._value(inside, bound=token == "while")
            return end + 1  # what follows is a statement like any other
        if token in ("else", "do"):
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

    def _loop(self, inside: Sequence[str], tokens: Sequence[str], at: int) -> int:
        self._scopes.append({})
        self._rest = [*inside, *tokens[at : at + _FARTHEST]]
        parts = [*split(inside, ";"), [], [], []][:3]
        self._simple(parts[0])
        self._value(parts[1], bound=True)
        for step in split(parts[2]):
            self._value(step)
        at = self._statement(tokens, at)
        self._scopes.pop()
        return at

    def _simple(self, tokens: Sequence[str]) -> None:
        words = list(tokens)
        while words and (words[0] in QUALIFIERS or words[0] == "__attribute__"):
            words = words[closing(words, 1) + 1 :] if words[0] == "__attribute__" else words[1:]
        named = len(words) > 1 and re.fullmatch(r"[A-Za-z_]\w*", words[0]) is not None
        if named and (words[1] == "*" or re.fullmatch(r"[A-Za-z_]\w*", words[1])) and self._names_type(words[0], words):
            for part in split(words[1:]):
                self._declared([word for word in part if word not in QUALIFIERS])
            return
        for part in split(words):
            self._value(part)

    def _names_type(self, word: str, words: Sequence[str]) -> bool:
        return is_type(word) or ((words[1] != "*" or "=" in words[2:5]) and self._lookup(word) is None)

    def _declared(self, words: list[str]) -> None:
        while words[:1] == ["*"]:
            words = words[1:]
        if not words:
            return
        name, rest = words[0], words[1:]
        while rest[:1] == ["["]:
            rest = rest[closing(rest, 0) + 1 :]
        value = self._value(rest[1:]) if rest[:1] == ["="] and rest[1:2] != ["{"] else None
        stated, changed = rest[:1] == ["="], _changes(name, self._rest)
        if not stated and changed == 1:
            self._scopes[-1][name] = None  # its one assignment is to come
            return
        if isinstance(value, Pointer) and changed:
            value = Pointer(value.name, value.offset + self._fresh(name))
        elif changed and (value is None or isinstance(value, Sum)):
            value = self._begun(name, Sum() if value is None else value)
        self._scopes[-1][name] = value

    # -- values -----------------------------------------------------------------------------------

    def _value(self, tokens: Sequence[str], *, bound: bool = False) -> Any:
        """Walk through an expression; return its value, None where that is no sum. `bound`: of a loop."""
        if not tokens:
            return None
        try:
            return self._of(expression(tokens), bound)
        except (NotRead, RecursionError):
            return None

    def _fresh(self, name: str) -> Sum:
        self._count += 1
        return Sum.of(f"{name}#{self._count}")

    def _begun(self, name: str, value: Sum) -> Sum:
        """A variable that begins with a value and changes."""
        atom = self._fresh(name)
        self.found.loops[next(iter(atom.names))] = (value, None)
        return atom

    def _lookup(self, name: str) -> Any:
        for scope in reversed(self._scopes):
            if name in scope:
                return scope[name]
        return Sum.of(name) if name in self._known else None

    def _of(self, tree: Tree, bound: bool = False) -> Any:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            raise NotRead
        operator, parts = tree[0], tree[1:]
        if operator == "name":
            return self._lookup(str(parts[0]))
        if operator == "number":
            number = whole(str(parts[0]))
            return None if number is None else Sum.of(number)
        return getattr(self, f"_of_{_METHODS.get(operator, 'binary')}")(operator, parts, bound)

    def _of_vector(self, _: str, parts: Any, bound: bool) -> Any:
        return tuple(self._of(part) for part in parts)

    def _of_unary(self, _: str, parts: Any, bound: bool) -> Any:
        sign, inner = parts
        if sign in ("++", "--"):
            self._stepped(inner, Sum.of(1) if sign == "++" else None)
            return self._of(inner)
        value = self._of(inner, bound)
        if sign == "*" and isinstance(value, Pointer):
            return self._at(value, Sum())
        if sign == "&":
            return self._place(inner)
        return -value if sign == "-" and isinstance(value, Sum) else value if sign == "+" else None

    def _of_cond(self, _: str, parts: Any, bound: bool) -> Any:
        self._of(parts[0])
        first, second = self._of(parts[1]), self._of(parts[2])
        known = folded(parts[0]) if "name" not in repr(parts[0]) else None
        return first if first == second or known else second if known == 0 else None

    def _of_member(self, _: str, parts: Any, bound: bool) -> Any:
        value = self._of(parts[0])
        if isinstance(value, Pointer):
            return self._at(value, Sum())
        place = "xyzw".find(str(parts[1]))
        return value[place] if type(value) is tuple and 0 <= place < len(value) else None

    def _of_index(self, _: str, parts: Any, bound: bool) -> Any:
        base, index = self._of(parts[0]), self._of(parts[1])
        if isinstance(base, Pointer):
            return self._at(base, index)
        return base if isinstance(base, Sum) and not any("@" in name for name in base.names) else None

    def _at(self, base: Pointer, index: Any, kind: str = "read") -> Any:
        place = base.offset + (index if isinstance(index, Sum) else self._fresh("any"))
        self.found.mentions.append(Mention(base.name, (place,), kind))
        content = self._fresh(f"{base.name}@")
        self.found.contents[next(iter(content.names))] = (base.name, place)
        return content

    def _of_assign(self, _: str, parts: Any, bound: bool) -> Any:
        sign, left, right = parts
        value = self._of(right)
        root = left
        while root[0] in ("index", "member") or (root[0] == "unary" and root[1] in ("*", "&")):
            root = root[2] if root[0] == "unary" else root[1]
        if root is not left:
            before = len(self.found.mentions)
            self._of(left)
            made = self.found.mentions[before:]
            if made and isinstance(self._of_root(root), Pointer):
                self.found.mentions[before + len(made) - 1] = made[-1]._replace(kind="write" if sign == "=" else "both")
            elif root[0] == "name" and sign == "=":  # a local array of numbers that are all alike
                self._set(str(root[1]), value)
            return value
        if left[0] == "name":
            if sign == "=":
                self._set(str(left[1]), value)
            else:
                self._stepped(left, value if sign == "+=" and isinstance(value, Sum) else None)
        return value

    def _of_root(self, root: Tree) -> Any:
        return self._lookup(str(root[1])) if root[0] == "name" else self._of(root)

    def _set(self, name: str, value: Any) -> None:
        for scope in reversed(self._scopes):
            if name in scope:
                if scope[name] is None:
                    scope[name] = value
                elif isinstance(value, Sum):  # from here on it is another variable
                    scope[name] = self._begun(name, value)
                return

    def _stepped(self, tree: Tree, step: Sum | None) -> None:
        value = self._lookup(str(tree[1])) if tree[0] == "name" else None
        for name in value.names if isinstance(value, Sum) else ():
            if name in self.found.loops and step is not None:
                self.found.loops[name] = (self.found.loops[name][0], step)

    def _place(self, tree: Tree) -> Any:
        """What the address of something points to."""
        if tree[0] == "index" and isinstance(base := self._of(tree[1]), Pointer):
            index = self._of(tree[2])
            return Pointer(base.name, base.offset + (index if isinstance(index, Sum) else self._fresh("any")))
        return None

    # -- operators --------------------------------------------------------------------------------

    def _of_binary(self, operator: str, parts: Any, bound: bool) -> Any:
        left, right = self._of(parts[0], bound), self._of(parts[1], bound)
        if isinstance(left, Pointer) and operator in "+-" and isinstance(right, Sum):
            return Pointer(left.name, left.offset + (right if operator == "+" else -right))
        if not isinstance(left, Sum) or not isinstance(right, Sum):
            one = left if isinstance(left, Sum) else right
            return self._unread(one) if isinstance(one, Sum) and operator in _ARITHMETIC else None
        if operator in ("<", "<=", ">", ">="):
            self._compared(operator, left, right, bound)
            return None
        if operator in ("/", "%", ">>", "<<", "&") and right.known and right:
            power = Sum.of(2**right.number) if right.number is not None and 0 <= right.number < 31 else None
            if operator in ("/", "%"):
                found = quotient(left, right) if operator == "/" else remainder(left, right)
                if operator == "%" and not found.known:
                    self.found.guards.append((found, right))
                return found
            if operator == "&":
                masked = self._fresh("masked")
                self.found.guards.append((masked, right + 1))
                return masked
            if power is not None:
                return quotient(left, power) if operator == ">>" else left * power
        made = {"+": left.__add__, "-": left.__sub__, "*": left.__mul__}.get(operator)
        return self._unread(left, right) if made is None else made(right)

    def _unread(self, *parts: Sum) -> Sum:
        """A variable of which no more is known than whose work it is."""
        ids = sorted({name for part in parts for name in re.findall(r"(?:gid|wid)#[012]", str(part))})
        return self._fresh(f"({' '.join(ids)})")

    def _compared(self, operator: str, left: Sum, right: Sum, bound: bool) -> None:
        """Note below what a variable stays, whether the comparison lets it pass or turns it away."""
        passing, turned = left - right, right - left
        pairs = {"<": (passing, turned - 1), ">=": (turned - 1, passing), "<=": (passing - 1, turned)}
        forms = pairs.get(operator, (turned, passing - 1))
        for n, form in enumerate(forms):
            for each in self._without_minima(form):
                self._guard(each, plain_number=bound and n == 0)

    def _without_minima(self, form: Sum) -> list[Sum]:
        for name in form.names & self._minima.keys():
            return [each for part in self._minima[name] for each in self._without_minima(form.with_value(name, part))]
        return [form]

    def _guard(self, form: Sum, *, plain_number: bool) -> None:
        """Note that a sum is less than 0: its variables, each a positive multiple, stay below the rest."""
        varying, rest = form - form.fixed, -form.fixed
        ends = {name for name in varying.names if name in self.found.contents and varying.factor_of(name) == Sum.of(-1)}
        if ends:
            array = self.found.contents[min(ends)][0]
            for name in (varying.names - ends) & self.found.loops.keys():
                begun = self.found.loops[name][0].names
                if any(array == self.found.contents[each][0] for each in begun & self.found.contents.keys()):
                    self.found.between[name] = array
        elif varying and all(factor > 0 for factor in varying.terms.values()) and (rest.names or plain_number):
            self.found.guards.append((varying, rest))

    # -- calls ------------------------------------------------------------------------------------

    def _of_call(self, _: str, parts: Any, bound: bool) -> Any:
        name = str(parts[0][1]) if parts[0][0] == "name" else ""
        if name in IDS and len(parts) == 2:
            axis = folded(parts[1])
            if axis not in (0, 1, 2):
                return None
            self.found.axes.add(axis)
            if name in ("get_global_id", "get_group_id"):
                self.found.spread.add(axis)
            return Sum.of(f"{IDS[name]}#{axis}")
        if name in _EXTENTS and len(parts) == 2:
            return Sum.of(f"{EXTENT}{_EXTENTS[name]}")
        given = [self._of(part) for part in parts[1:]]
        if name == "min" and len(given) == 2:
            return self._minimum([each for each in given if isinstance(each, Sum)])
        if name == "clamp" and len(given) == 3 and isinstance(given[2], Sum):
            return self._minimum([given[2]])
        if name == "max" and len(given) == 2:
            sums = [each for each in given if isinstance(each, Sum) and each.number is None]
            return sums[0] if len(sums) == 1 else None
        if name in ("mad24", "mul24", "convert_int", "as_int", "abs") and all(isinstance(one, Sum) for one in given):
            product = given[0] * given[1] if len(given) > 1 else given[0]
            return product + given[2] if len(given) > 2 else product
        self._touched(name, given)
        function = self._functions.get(name)
        if function is None or self._depth >= _DEEPEST:
            return None
        self._depth += 1
        found = self.function(function, dict(zip(function.takes, given, strict=False)))
        self._depth -= 1
        return found

    def _minimum(self, parts: list[Sum]) -> Sum:
        atom = self._fresh("min")
        (name,) = atom.names
        self._minima[name] = parts
        self.found.guards += [(atom, part + 1) for part in parts if part.known]
        return atom

    def _touched(self, name: str, given: Sequence[Any]) -> None:
        """Note what OpenCL's own functions read and write."""
        pointers = [each for each in given if isinstance(each, Pointer)]
        if found := re.fullmatch(r"(read|write)_image\w+", name):
            places = next((each for each in given[1:] if type(each) is tuple), None)
            alone = next((each for each in given[1:] if isinstance(each, Sum)), None)
            index = places if places is not None else () if alone is None else (alone,)
            if pointers and all(isinstance(each, Sum) for each in index):
                self.found.mentions.append(Mention(pointers[0].name, tuple(index), found[1]))
        elif name.startswith(("atomic_", "atom_")) and pointers:
            self._at(pointers[0], Sum(), "both")
        elif (found := re.fullmatch(r"v(load|store)a?(?:_half)?(2|3|4|8|16)?(?:_\w+)?", name)) and pointers:
            width = int(found[2] or 1)
            at = next((each for each in given if isinstance(each, Sum)), None)
            last = at * Sum.of(width) + (width - 1) if at is not None else None
            self._at(pointers[0], last, "read" if found[1] == "load" else "write")
        elif name.startswith("async_work_group") and len(pointers) == 2:
            count = given[2] if len(given) > 2 and isinstance(given[2], Sum) and given[2].known else Sum.of(1)
            self._at(pointers[0], count - 1, "write")
            self._at(pointers[1], count - 1)


_ARITHMETIC = ("+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>")
_METHODS = {
    "vector": "vector", "unary": "unary", "cond": "cond", "member": "member", "index": "index", "assign": "assign",
    "call": "call",
}  # fmt: skip


def _changes(name: str, tokens: Sequence[str]) -> int:
    """Return how often a name is assigned or changed after its declaration: two for what others may change."""
    found = 0
    for place, token in enumerate(tokens):
        if token != name:
            continue
        before, after = tokens[place - 1] if place else "", tokens[place + 1] if place + 1 < len(tokens) else ""
        declared = before in ("*", ",") or (before[:1].isalpha() and before not in ("else", "do", "return"))
        if before == "&" and place > 1 and tokens[place - 2] in ("(", ","):
            found += 2
        elif before in ("++", "--") or after in ("++", "--", *_MODIFIED):
            found += not (after == "=" and declared)
    return found
