"""The NumPy functions that a reference may call, and beside each the rule that sizes its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from autotune.study.arrays import products, sizes
from autotune.study.arrays.bounds import Size


class Function(NamedTuple):
    """A function and its rule, which takes the same arguments."""

    call: Callable[..., Any]
    size: Callable[..., Size]


_RULES: dict[Callable[..., Size], str] = {
    sizes.unary: "abs arccos arcsin arctan ceil cos cosh exp exp2 floor log log10 log1p log2 sign sin sinh sqrt square "
    "tan tanh trunc",
    sizes.binary: "arctan2 hypot maximum minimum",
    sizes.where: "where",
    sizes.clip: "clip",
    sizes.round_: "round",
    sizes.astype: "astype",
    sizes.reduction: "argmax argmin max mean min prod std sum var",
    sizes.trace: "trace",
    sizes.cumulative: "cumprod cumsum",
    sizes.ordered: "argsort sort",
    sizes.roll: "roll",
    sizes.triangle: "tril triu",
    sizes.diff: "diff",
    sizes.take: "take",
    sizes.repeat: "repeat",
    sizes.tile: "tile",
    sizes.pad: "pad",
    sizes.concatenate: "concatenate",
    sizes.stack: "stack",
    sizes.arange: "arange",
    sizes.filled: "ones zeros",
    sizes.full: "full",
    sizes.view_along: "expand_dims flip squeeze",
    sizes.reshape: "reshape",
    sizes.swapaxes: "swapaxes",
    sizes.rot90: "rot90",
    sizes.transpose: "transpose",
    products.outer: "outer",
    products.kron: "kron",
    products.inner: "inner",
    products.dot: "dot",
    products.vdot: "vdot",
    products.matmul: "matmul",
    products.tensordot: "tensordot",
    products.convolve: "convolve",
    products.cross: "cross",
    products.einsum: "einsum",
}

FUNCTIONS: dict[str, Function] = {
    name: Function(getattr(np, name), rule) for rule, names in _RULES.items() for name in names.split()
}
"""By their NumPy names."""
