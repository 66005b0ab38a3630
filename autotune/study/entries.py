"""The types of the entries in a study's tables: names, values, expressions; each is checked when it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, StrictFloat, StrictInt, StrictStr, Tag

from autotune.identity import name_fault, value_fault


def refusing(fault: Callable[[Any], str]) -> AfterValidator:
    """Return a validator that refuses an entry if `fault` returns a message for it."""

    def check(entry: Any) -> Any:
        if found := fault(entry):
            raise ValueError(found)
        return entry

    return AfterValidator(check)


Value = Annotated[StrictInt | StrictFloat | StrictStr, refusing(value_fault)]
Text = StrictInt | StrictFloat | Annotated[StrictStr, Field(min_length=1)]
"""An expression, or a number that stands for itself."""
Name = Annotated[StrictStr, refusing(name_fault)]
Values = Annotated[list[Value], Field(min_length=1, max_length=4096)]
WholeNumber = Annotated[StrictInt, Field(ge=1, le=2**31 - 1)]


def given(entry: Any, depth: int = 0) -> Any:
    """Return an argument's value if it is an expression, a list (vector, array) or a table (struct) of them."""
    inner = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list | tuple) else ()
    if entry is None and depth == 0:
        return None
    if depth > 8 or (not isinstance(entry, int | float | str | dict | list | tuple) or isinstance(entry, bool)):
        raise ValueError("is not an expression, list or table of them")
    if isinstance(entry, str | dict | list | tuple) and not entry:
        raise ValueError("is empty")
    for part in inner:
        given(part, depth + 1)
    for name in entry if isinstance(entry, dict) else ():
        if fault := name_fault(name):
            raise ValueError(fault)
    return entry


Dimensions = Annotated[list[Text], Field(min_length=1, max_length=3)]
Sources = Annotated[
    Annotated[StrictStr, Tag("one of them")]
    | Annotated[list[StrictStr], Field(min_length=1, max_length=100), Tag("several")],
    Discriminator(lambda entry: "several" if isinstance(entry, list | tuple) else "one of them"),
]
"""Files of OpenCL C: one, or several that are compiled as one text."""
