"""The answers about studies."""

from __future__ import annotations

from pydantic import BaseModel

from autotune.service.answered.words import Instant, Size, Value, Values


class StudyFrom(BaseModel):
    """Whose uploaded text is used for the name of a study."""

    asked_by: str
    search: str
    created: Instant


class OwnStudy(BaseModel):
    """A study of the server, or what is wrong with it in `error`."""

    study: str
    about: str
    sizes: Size
    choices: dict[str, list[Value]]
    parameters: list[str]
    trials: int
    error: str


class Parameter(BaseModel):
    """The values of a parameter."""

    values: list[Value]
    default: Value
    about: str


class Constraint(BaseModel):
    """A condition that valid configurations fulfil."""

    require: str
    reason: str


class WholeStudy(BaseModel):
    """A study with its kernel's text."""

    study: str
    study_from: StudyFrom | None
    about: str
    sizes: Size
    size_lists: dict[str, list[Size]]
    choices: dict[str, list[Value]]
    parameters: dict[str, Parameter]
    constraints: list[Constraint]
    kernel: str
    kernel_hash: str
    study_hash: str


class Checked(BaseModel):
    """What a study is at a size on a device."""

    study: str
    about: str
    sizes: Size
    choices: Values
    parameters: dict[str, list[Value]]
    valid_configurations: int
    default: Values
    notes: list[str]
