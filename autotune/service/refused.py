"""A refusal with its status, for who must not load what answers take: a process that looks at a study."""

from __future__ import annotations

from autotune.errors import AutotuneError


class Refused(AutotuneError):
    """An answer that is none, with the status it goes out as."""

    def __init__(self, status: int, what: str, *, where: str = "", hint: str = "", detail: str = "") -> None:
        super().__init__(what, where=where, hint=hint, detail=detail)
        self.status = status
