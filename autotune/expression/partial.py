"""Trees with what is known already put in: constants by their values, finished parts by a new name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune.expression.nodes import Both, Choice, Constant, Either, Name, Node
from autotune.expression.scalars import FaultError, truth


def put_in(tree: Node, constants: Mapping[str, Any]) -> Node:
    """Return `tree` with the constants' values in it, computed as far as they reach.

    A part that cannot be computed (a zero divisor) stays as it is, to fail if it is ever needed.
    """

    def value(part: Node) -> Node | None:
        try:
            return Constant(part.scalar(constants))
        except FaultError:
            return None

    return reduce(tree, frozenset(constants), value)


def reduce(tree: Node, known: frozenset[str], replacement: Callable[[Node], Node | None]) -> Node:
    """Return `tree` with its largest parts over `known` names replaced; where it gives None, parts of those."""
    if isinstance(tree, Constant):
        return tree
    if tree.names <= known:
        replaced = replacement(tree)
        if replaced is not None:
            return replaced
    if not tree.parts:
        return tree
    return _simplify(tree.with_parts(tuple(reduce(part, known, replacement) for part in tree.parts)))


def _simplify(node: Node) -> Node:
    """Drop what constant parts decide, and nothing that could fail before them."""
    if isinstance(node, Choice):
        decided = _truth(node.parts[0])
        return node if decided is None else node.parts[1] if decided else node.parts[2]
    if not isinstance(node, Both | Either):
        return node
    ends = isinstance(node, Either)  # the truth value that ends the chain
    parts: list[Node] = []
    for part in node.parts:
        decided = _truth(part)
        if decided is None or decided is ends:
            parts.append(part)
        if decided is ends:
            break
    if not parts:
        return Constant(not ends)
    if len(parts) == 1 and _truth(parts[0]) is ends:
        return Constant(ends)
    return node.with_parts(tuple(parts))


def _truth(node: Node) -> bool | None:
    if not isinstance(node, Constant):
        return None
    try:
        return truth(node.value)
    except FaultError:
        return None


def is_name(node: Node) -> bool:
    """Whether a node is a bare name: nothing to compute."""
    return isinstance(node, Name)
