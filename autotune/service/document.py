"""The API's document: FastAPI's, in OpenAPI 3.1, completed with what FastAPI does not know of the answers."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from autotune.service import answered

_LINE = {"type": "string"}

_WIDTHS = {"integer": "int64", "number": "double"}

_HEADERS: dict[str, dict[str, Any]] = {
    "401": {"WWW-Authenticate": {"schema": _LINE}},
    "429": {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}},
    "503": {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}},
}
"""Headers of each status, on any route."""


def document_of(app: FastAPI, root: str) -> dict[str, Any]:
    """Return the document of an application that is served below the path `root` of its site."""
    told = FastAPI.openapi(app) | ({"servers": [{"url": root}]} if root else {})
    told["components"]["schemas"] |= answered.schemas()
    told["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    told["security"] = [{"token": []}, {}]  # reading may be open to everybody
    for path in told["paths"].values():
        for operation in path.values():
            for status, answer in operation["responses"].items():
                _complete(status, answer)
    _plainly(told)
    return told


def _plainly(part: Any) -> None:
    """Rewrite the whole document, with the same meaning, so that generators of clients accept it.

    Numbers get a width: without one, generators take int32 and float32, too small for memory in bytes and for times. A
    mapping uses `additionalProperties`, with the pattern of its names beside it: they do not understand
    `patternProperties`.
    """
    if isinstance(part, dict):
        kind = part.get("type")
        if isinstance(kind, str) and kind in _WIDTHS:
            part.setdefault("format", _WIDTHS[kind])
        if "patternProperties" in part:
            [(pattern, part["additionalProperties"])] = part.pop("patternProperties").items()
            part["propertyNames"] = {**part.get("propertyNames", {}), "pattern": pattern}
    for one in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        _plainly(one)


def _complete(status: str, answer: dict[str, Any]) -> None:
    """Complete an answer: its headers, errors as JSON on all routes, a stream as text (items need OpenAPI 3.2)."""
    if status in _HEADERS:
        answer["headers"] = {**answer.get("headers", {}), **_HEADERS[status]}
    content = answer.get("content", {})
    if status >= "400" and content:
        answer["content"] = content = {"application/json": next(iter(content.values()))}
    for kind in content.values():
        if kind.pop("itemSchema", None):
            kind["schema"] = _LINE
        kind["schema"] = answered.shown(kind["schema"])
