"""What routes and pages take from a request, as FastAPI gives it: the open server, the caller, numbers and names."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query, Request

from autotune.service.callers import Caller, allowed
from autotune.service.state import Service, service_of
from autotune.text import require_known

Opened = Annotated[Service, Depends(service_of)]
Reader = Annotated[Caller, Depends(allowed("read"))]
Writer = Annotated[Caller, Depends(allowed("write"))]
Submitter = Annotated[Caller, Depends(allowed("run"))]
Admin = Annotated[Caller, Depends(allowed("admin"))]
Before = Annotated[int | None, Query(ge=1, le=2**63 - 1)]
Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
SearchId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]


def require_asked(request: Request) -> None:
    """Raise UsageError if a query names what its route does not take: the answer would be to another question."""
    takes = [field.alias for field in request.scope["route"].dependant.query_params]
    hint = "" if takes else "this takes none; leave it out"
    require_known("question", (name[:60] for name in request.query_params), takes, hint=hint)
