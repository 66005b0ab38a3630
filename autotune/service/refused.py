"""A refusal with its status, separate from answers.py for a process that looks at a study and must not load that."""

from __future__ import annotations

from autotune.errors import AutotuneError


class Refused(AutotuneError):
    """A request that is refused, with the status of the answer."""

    def __init__(self, status: int, what: str, *, where: str = "", hint: str = "", detail: str = "") -> None:
        super().__init__(what, where=where, hint=hint, detail=detail)
        self.status = status
