"""The requests, as the API's own document shows them; sizes and lists are bounded as they enter."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from autotune.identity import STUDY_NAME
from autotune.samplers import DEFAULT_SAMPLER, SAMPLERS
from autotune.store import ROLES
from autotune.tuner import DEFAULT_SECONDS, GAIN_TRIALS


def _whole(given: Any) -> Any:
    return int(given) if isinstance(given, float) and given.is_integer() else given


Integer = Annotated[StrictInt, BeforeValidator(_whole)]
"""An integer. JSON has one kind of number: 64.0, as some languages write every number, is an integer in JSON Schema
too.
"""

Name = Annotated[StrictStr, Field(max_length=64, pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]
StudyName = Annotated[StrictStr, Field(pattern=f"^{STUDY_NAME}$")]
Value = StrictInt | float | Annotated[StrictStr, Field(max_length=1000)]
_ONE_OR_LIST = WithJsonSchema({"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "string"}]}})
"""A single value is accepted too, but the document does not say so: generators make no Java for a value or a list."""

Whole = Annotated[Integer, Field(ge=1, le=2**31 - 1)]


_MOST_VALUES = 10_000
"""Names and values of one request: each wrong one is an error of its own, which takes time to report."""


class _Shape(BaseModel):
    # Empty defaults come from a factory: with a default in the document, generated clients fail or require a value.
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _bounded(cls, given: Any) -> Any:
        left, looked_at = _MOST_VALUES, [given]
        while looked_at:
            one = looked_at.pop()
            parts = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
            left -= len(parts)
            if left < 0:
                raise PydanticCustomError("too_many", f"a request may hold {_MOST_VALUES:,} values")
            looked_at += parts
        return given


_KERNEL = "kernel void twice(const int N, global float *x) { if (get_global_id(0) < N) x[get_global_id(0)] *= 2; }"
_STUDY = """name = "twice"
kernel = "twice.cl"
[sizes]
N = 1000
[parameters]
WG = { values = [32, 64] }
[arguments]
x = { type = "float", shape = ["N"], access = "inout" }
[[launch]]
entry = "twice"
global = ["round_up(N, WG)"]
local = ["WG"]
arguments = ["N", "x"]
[reference]
numpy = { x = "2 * x" }
"""


class Upload(_Shape):
    """A study of the user's: the text of its TOML file, and of each file that it names, under that name.

    A file has the name that it has from the study's folder, `inc/a.h`; in the `kernels` beside it, `../kernels/a.cl`.
    """

    study: Annotated[StrictStr, Field(max_length=2**22, examples=[_STUDY])]
    files: dict[Annotated[StrictStr, Field(max_length=400)], Annotated[StrictStr, Field(max_length=2**22)]] = Field(
        default_factory=dict, examples=[{"twice.cl": _KERNEL}]
    )


class Budget(_Shape):
    __doc__ = f"""When to stop, whichever comes first.

    Without any, after about {DEFAULT_SECONDS:g} seconds; the server has limits of its own.
    """

    trials: Annotated[Integer, Field(ge=1, le=10**9)] | None = None
    seconds: Annotated[float, Field(gt=0, le=1e9)] | None = None
    until_stale: Annotated[Integer, Field(ge=1, le=10**9)] | None = None
    least_gain: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        default=None, description=f"Stop once the sampler expects less from the next {GAIN_TRIALS} trials: 0.01 is 1 %."
    )


class Check(_Shape):
    """A study by name or uploaded, at a size and with choices (the rest at their defaults), on a device."""

    study: StudyName | None = Field(default=None, description="The name of a study of the server.")
    upload: Upload | None = None
    device: Annotated[StrictStr, Field(max_length=200)] | None = Field(
        default=None, description="Number, fingerprint or part of the name of a device of the server; its best if none."
    )
    size: dict[Name, Whole] = Field(default_factory=dict, max_length=64)
    choices: dict[Name, Value] = Field(default_factory=dict, max_length=64)


class Submit(Check):
    """A search to run."""

    budget: Budget = Field(default_factory=Budget)
    sampler: Literal[tuple(SAMPLERS)] = DEFAULT_SAMPLER  # type: ignore[valid-type]
    seed: Annotated[Integer, Field(ge=0, le=2**32 - 1)] | None = None
    fix: dict[Name, Annotated[list[Value] | Value, _ONE_OR_LIST]] = Field(default_factory=dict, max_length=256)
    start: list[dict[Name, Value]] = Field(default_factory=list, max_length=100)
    retry_failed: bool = False
    fresh: bool = False
    cold: bool = False
    run_limit: Annotated[float, Field(gt=0, le=3600)] | None = None
    build_limit: Annotated[float, Field(gt=0, le=3600)] | None = None


class NewToken(_Shape):
    """A token to be made."""

    name: Annotated[StrictStr, Field(max_length=64)]
    role: Literal[ROLES]  # type: ignore[valid-type]
    days: Annotated[float, Field(gt=0, le=36500)] | None = None
