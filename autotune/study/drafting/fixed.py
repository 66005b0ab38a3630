"""The numbers that a kernel fixes by itself, and which of them a study might set if they had an #ifndef around them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from autotune.study.drafting.branches import asking, flags, undefined
from autotune.study.drafting.functions import reached
from autotune.study.drafting.nouns import COUNT_NAME, TASK_NAME
from autotune.study.drafting.repeats import codes
from autotune.study.drafting.scanning import number_of
from autotune.study.drafting.syntax import tokens_of

if TYPE_CHECKING:
    from autotune.study.drafting.proposal import Proposal

_MOST = 4096
"""The largest tile or group."""

_MOST_TOLD = 8
"""The most macros to list."""


def own_to_tune(of: Proposal) -> list[str]:
    """Return the kernel's own numbers that may decide how work is divided, rather than what is computed or how much."""
    named = [name for name in _own(of, _MOST) if not TASK_NAME.match(name) and not COUNT_NAME.match(name)]
    return _met(of, named)


def _asked(of: Proposal, names: Iterable[str]) -> list[str]:
    """Return the names that are not given and, if the kernel can be read, that the preprocessor meets."""
    names = [name for name in names if name not in of.given]
    return names if of.code.tokens() is None else [name for name in names if name in of.code.asked]


def hints(of: Proposal, *, tunable: bool) -> Iterator[str]:
    """Yield hints for the user about numbers that the kernel fixes, and about macros that nothing defines.

    Numbers that might be tuned are mentioned only if something else is `tunable` already.
    """
    if tunable and (own := own_to_tune(of)):
        cure = f"#ifndef {own[0]} before its #define and #endif after it make one tunable, or a size"
        yield f"the kernel fixes {some(own)}: {cure}"
    if sizes := _met(of, [name for name in _own(of, 2**31) if COUNT_NAME.match(name)]):
        cure = f"#ifndef {sizes[0]} before its #define and #endif after it make one a size"
        yield f"the kernel fixes {some(sizes)}: {cure}"
    if names := _asked(of, undefined(of.sketch.source)):
        what = f"an #if uses {some(names)}, which nothing defines, so 0"
        yield f"{what}: autotune new ... -D {names[0]}=0 makes it tunable"
    if names := _asked(of, flags(of.sketch.source)):
        what = f"the kernel asks whether {some(names)} {'is' if len(names) == 1 else 'are'} defined, which nothing does"
        yield f"{what}: autotune new ... -D {names[0]} drafts the kernel with it"


def _own(of: Proposal, most: int) -> list[str]:
    counts = {name: number_of(value) or 0 for name, value in of.own.items()}
    return [name for name, count in counts.items() if 1 < count <= most and not of.is_idle(name)]


def _met(of: Proposal, named: list[str]) -> list[str]:
    """Return the names that the launched kernels or conditions use, except those that only tell cases apart."""
    if (tokens := of.code.tokens(named)) is None:
        return named
    asked = tokens_of(asking(of.text))
    met = (reached(tokens, of.launched) | {*asked}) - codes([*tokens, *asked], named)
    return [name for name in named if name in met]


def some(names: Sequence[str]) -> str:
    """Return names as a list in text, shortened after the first `_MOST_TOLD`."""
    return ", ".join(names[:_MOST_TOLD]) + (", ..." if len(names) > _MOST_TOLD else "")
