"""The answers, as the API's own document shows them; clients are generated from it.

`views/` makes these answers as plain data, which is sent as it is: no answer is ever an instance of these classes.
Fields may be added later, so no class forbids more. Times are nanoseconds, instants ISO 8601 in UTC.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from autotune.service.answered.results import (
    Best,
    Cell,
    CellBest,
    Comparison,
    HistoryRow,
    Launch,
    StoredBest,
    StoredProblem,
    Trial,
    Trials,
    WholeTrial,
)
from autotune.service.answered.searches import (
    BestSoFar,
    Finalist,
    GivenBudget,
    Home,
    Points,
    Progress,
    Result,
    Search,
    Searches,
    ShortTrial,
)
from autotune.service.answered.server import (
    AddedToken,
    Device,
    Devices,
    Health,
    Imported,
    Me,
    Model,
    Revoked,
    StoredToken,
)
from autotune.service.answered.studies import Checked, Constraint, OwnStudy, Parameter, StudyFrom, WholeStudy


class Shows:
    """Makes the document show `kind` for a route that returns plain data: `-> Annotated[Json, Shows(Search)]`."""

    def __init__(self, kind: type[BaseModel]) -> None:
        self._kind = kind

    def __get_pydantic_json_schema__(self, *_: Any) -> dict[str, Any]:
        """Return a mark that `shown` replaces: pydantic would put the schema of the kind here, without its name."""
        return {_MARK: self._kind.__name__}


_MARK = "x-shows"
_PLACE = "#/components/schemas/"


def shown(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an answer with references to the kinds that `Shows` names in it."""
    if _MARK in schema:
        return {"$ref": _PLACE + schema[_MARK]}
    return {**schema, "items": shown(schema["items"])} if "items" in schema else schema


def schemas() -> dict[str, Any]:
    """Return the schemas of all kinds, by their names."""
    kinds = [one for one in globals().values() if isinstance(one, type) and issubclass(one, BaseModel)]
    _, told = models_json_schema(
        [(one, "serialization") for one in kinds if one is not BaseModel], ref_template=_PLACE + "{model}"
    )
    found: dict[str, Any] = told["$defs"]
    return found
