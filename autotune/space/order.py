"""In which order the parameters are bound."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence


def binding_order(sizes: Mapping[str, int], scopes: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the parameters in the order to bind them.

    `sizes` gives the number of values of each parameter, `scopes` the parameters of each constraint as
    they stand in its text. Greedy: next is the parameter that leaves the fewest combinations of bound
    parameters which unfinished constraints still need; then the one that finishes more constraints, has
    fewer values, stands earlier in a constraint and in the study. Parameters linked by constraints, directly
    or through others, stay together.
    """
    names = list(sizes)
    bit = {name: 1 << position for position, name in enumerate(names)}
    masks = [sum(bit[name] for name in set(scope)) for scope in scopes]
    place = {name: min((list(s).index(name) for s in scopes if name in s), default=0) for name in names}
    bound = 0
    order: list[str] = []

    def cost(name: str) -> tuple[float, int, int, int, int]:
        after = bound | bit[name]
        needed = 0
        for mask in masks:
            if mask & ~after:
                needed |= mask & after
        width = sum(math.log(sizes[each]) for each in names if bit[each] & needed)
        finished = sum(1 for mask in masks if mask & bit[name] and not mask & ~after)
        return round(width, 9), -finished, sizes[name], place[name], names.index(name)

    while len(order) < len(names):
        begun = 0
        for mask in masks:
            if mask & bound and mask & ~bound:
                begun |= mask & ~bound
        rest = [name for name in names if not bit[name] & bound]
        name = min([name for name in rest if bit[name] & begun] or rest, key=cost)
        order.append(name)
        bound |= bit[name]
    return tuple(order)
