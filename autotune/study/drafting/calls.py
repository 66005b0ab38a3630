"""The values of calls: of OpenCL's functions, and of the text's own."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.study.drafting.findings import Pointer
from autotune.study.drafting.functions import Function
from autotune.study.drafting.reading import EXTENT
from autotune.study.drafting.scopes import Kernel
from autotune.study.drafting.terms import Sum
from autotune.study.drafting.touching import addressed, atomic_kind, is_understood, touched
from autotune.study.drafting.trees import Tree, folded
from autotune.study.drafting.values import Values

IDS = {
    "get_global_id": "gid", "get_group_id": "wid", "get_local_id": "lid", "get_global_size": "gsz",
    "get_local_size": "lsz", "get_num_groups": "ngr",
}  # fmt: skip
_EXTENTS = {"get_image_width": 0, "get_image_height": 1, "get_image_depth": 2, "get_image_array_size": 2}
_CONVERTED = re.compile(r"(convert_(half|float|double)|(convert|as)_u?(char|short|int|long))\d*(_sat)?(_rt[ezpn])?")
_DEEPEST = 5
"""The most calls within one another to walk through."""


class Calls(Values, ABC):
    """The walk through calls."""

    def __init__(self, kernel: Kernel, *, through: bool) -> None:
        super().__init__(kernel, through=through)
        self._depth = 0

    @abstractmethod
    def function(self, function: Function, given: Mapping[str, Any]) -> Any:
        """Walk through a body; return its value if it has one return statement, else None."""

    def _of_call(self, called: Tree, *parts: Tree) -> Any:
        name = str(called[1]) if called[0] == "name" else ""
        if name in IDS and len(parts) == 1:
            return self._id(name, folded(parts[0]))
        if name == "get_global_offset":
            self.found.ids.begun = True
            return Sum()
        if name in _EXTENTS and len(parts) == 1:
            return Sum.of(f"{EXTENT}{_EXTENTS[name]}")
        if name == "get_image_dim":
            return tuple(Sum.of(f"{EXTENT}{axis}") for axis in range(3))  # only volumes use the third
        if (kind := atomic_kind(name)) and (place := addressed(*parts[:1])) is not None:
            return self._atomic(kind, place, parts[1:])
        given = [*map(self._of, parts)]
        match name, given:
            case "min", [_, _]:
                return self._minimum([each for each in given if isinstance(each, Sum)])
            case "clamp", [_, _, Sum() as most]:
                return self._minimum([most])
            case "select", [first, second, _]:
                return self._one_of(first, second)
            case "max", [_, _]:
                sums = [each for each in given if isinstance(each, Sum) and each.number is None]
                return sums[0] if len(sums) == 1 else None
            case "mad24", [Sum() as one, Sum() as other, Sum() as more]:
                return one * other + more
            case "mul24", [Sum() as one, Sum() as other]:
                return one * other
            case "abs", [Sum() as one]:
                return one
            case _, [value] if _CONVERTED.fullmatch(name):
                return value if isinstance(value, (Sum, tuple)) else None
        if name in ("barrier", "work_group_barrier"):
            self.found.barriers += 1
            self.found.parted |= {*self.found.turning}
        self._touched(name, given)
        return self._called(name, given)

    def _id(self, function: str, axis: int | None) -> Sum | None:
        if axis not in (0, 1, 2):
            self.found.ids.lose()
            return None
        self.found.ids.note(function, axis)
        return Sum.of(f"{IDS[function]}#{axis}")

    def _called(self, name: str, given: Sequence[Any]) -> Any:
        """Walk through a function of the text; return its value, None if it is not known."""
        function = self._kernel.functions.get(name)
        if function is None and not is_understood(name):
            self._ask_apart(*given)
        if function is None or self._depth >= _DEEPEST:
            if not is_understood(name):
                self.found.unread |= {each.name for each in given if isinstance(each, Pointer)}
            return None
        self._depth += 1
        found = self.function(function, dict(zip(function.takes, given, strict=False)))
        self._depth -= 1
        return found

    def _atomic(self, kind: str, tree: Tree, given: Sequence[Tree]) -> None:
        """Walk through the element or member whose address an atomic function takes: it is read or assigned."""
        for part in given[1:]:
            self._of(part)
        if kind == "read":
            self._of(tree)
        else:
            stored = given[0] if given else ("number", "1")
            self._of_assign("=" if kind == "write" else "+=", tree, stored)

    def _touched(self, name: str, given: Sequence[Any]) -> None:
        """Note what OpenCL's own functions read and write."""
        for pointer, place, kind in touched(name, given, self._kernel.widths):
            if isinstance(place, tuple):
                self.found.note_mention(pointer.name, place, kind)
            else:
                self._at(pointer._replace(rows=()), place, kind)
