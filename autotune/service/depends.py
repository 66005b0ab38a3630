"""What routes and pages take of a request, as FastAPI gives it: the open server, who asks, numbers and names."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query

from autotune.service.callers import Caller, allowed
from autotune.service.state import Service, service_of

Opened = Annotated[Service, Depends(service_of)]
Reader = Annotated[Caller, Depends(allowed("read"))]
Writer = Annotated[Caller, Depends(allowed("write"))]
Submitter = Annotated[Caller, Depends(allowed("run"))]
Admin = Annotated[Caller, Depends(allowed("admin"))]
Before = Annotated[int | None, Query(ge=1, le=2**63 - 1)]
SearchId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
