"""The parts of answers: values, sizes, instants."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Value = float | str
"""The value of a parameter or choice."""

Values = dict[str, Value]
Size = dict[str, int]
Interval = Annotated[list[float], Field(min_length=2, max_length=2)]
Instant = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
