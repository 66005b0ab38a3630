"""What the contents of arrays decide: the places of other arrays, and where rows begin and end."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autotune.study.drafting.indices import row_by_numbers
from autotune.study.drafting.reading import Reading
from autotune.study.drafting.terms import Sum, quotient


def offsets(reading: Reading) -> list[str]:
    """Return the arrays whose contents say where the rows of others begin."""
    return [*dict.fromkeys(loop.through for loop in reading.loops.values() if loop.through)]


def places_in(
    reading: Reading, name: str, elements: Mapping[str, Sum], upper: Callable[[Sum], Sum | None]
) -> Sum | None:
    """Return the number of places that an array's contents index; None if they are no indices.

    `elements`: the number of elements of each argument; `upper`: returns the bound of a sum, or None.
    """
    least: Sum | None = None
    for mention in reading.mentions:
        for index in mention.places:
            for variable in sorted(index.names & reading.contents.keys()):
                factor = index.factor_of(variable)
                if reading.contents[variable] == name and mention.name in elements and factor.known:
                    row, rest = row_by_numbers(index, variable), index - Sum.of(variable) * factor
                    ahead = index.fixed if min(index.fixed.terms.values(), default=0) > 0 else Sum()
                    if rest.varying and (most := upper(rest)) is not None and most.known:
                        ahead = most - 1
                    places = quotient(Sum.of(row) if row else elements[mention.name] - ahead, factor)
                    fewer = least is None or min((least - places).terms.values(), default=0) > 0
                    least = places if fewer else least
    return least


def scatters(reading: Reading, name: str) -> bool:
    """Whether an array's contents are themselves places to write to, so that none may occur twice."""
    written = {index for mention in reading.mentions if mention.kind == "write" for index in mention.places}
    return any(array == name and Sum.of(variable) in written for variable, array in reading.contents.items())


def leads(reading: Reading, name: str) -> bool:
    """Whether an argument's contents decide which places are used: in an index, or as the start of a loop."""
    sums = [*(loop.start for loop in reading.loops.values()), *reading.places]
    return any(reading.contents.get(each) == name for value in sums for each in value.names)


def chosen_rows(reading: Reading, name: str) -> set[Sum]:
    """Return the lengths of an argument's rows that contents of another choose; empty if there are none."""
    places = [index for mention in reading.of(name) for index in mention.places]
    found = (index.factor_of(each) for index in places for each in index.names & reading.contents.keys())
    return {length for length in found if length.known}
