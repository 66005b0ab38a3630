"""The answers about the server itself: its devices, its tokens."""

from __future__ import annotations

from pydantic import BaseModel, Field

from autotune.service.answered.words import Instant


class Health(BaseModel):
    """The server is there."""

    status: str
    version: str


class Me(BaseModel):
    """Who a token says you are."""

    name: str | None
    role: str | None


class Device(BaseModel):
    """A device of the server. Memory in bytes, `clock` in MHz."""

    fingerprint: str = Field(description="Its model: what results belong to.")
    number: str = Field(description="What selects it on the server.")
    queue: str
    index: int
    name: str
    vendor: str
    platform: str
    driver: str
    kind: str
    opencl_version: str
    compute_units: int
    memory: int
    local_memory: int
    constant_memory: int
    max_allocation: int
    max_work_group_size: int
    max_work_item_sizes: list[int]
    clock: int
    extensions: list[str]
    uuid: str
    pci: str
    compute_capability: str
    backend: str
    sub_group_size: int = Field(description="0: the driver does not tell.")
    images: bool


class Model(BaseModel):
    """A stored device model."""

    fingerprint: str
    name: str


class Devices(BaseModel):
    """Devices here, models with results, and what keeps more devices from being here."""

    here: list[Device]
    stored: list[Model]
    amiss: list[str]


class StoredToken(BaseModel):
    """A token without its secret."""

    name: str
    role: str
    created: Instant
    expires: Instant | None
    revoked: Instant | None
    valid: bool


class AddedToken(BaseModel):
    """A new token, which is shown only this once."""

    name: str
    token: str


class Revoked(BaseModel):
    """The name of a token that has ended."""

    name: str


class Imported(BaseModel):
    """How many trials were added."""

    imported: int
