"""Sessions that build a program once, however often it is asked for: most tests need the same few programs."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from functools import cache

from autotune.devices import Program, Session


def building_once(session: Session) -> Session:
    """Have a session keep what it builds. Programs are not changed; kernels are made anew."""
    build = cache(session.build)

    def built(source: str, options: Sequence[str] = ()) -> Program:
        return build(source, tuple(options))

    setattr(session, "build", built)  # noqa: B010  (a method, of this session alone)
    return session


def alike(session: Session) -> Session:
    """Return another session on the same context, with the same builds; it has launched nothing and may be changed."""
    found = copy(session)
    found.busy_ns()  # from here on it has its own list of launches
    return found
