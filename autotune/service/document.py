"""The API's document: FastAPI's, as OpenAPI 3.1 has it, with what FastAPI does not know of the answers."""

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
"""Headers of a status, on whichever route."""


def document_of(app: FastAPI, root: str) -> dict[str, Any]:
    """Return the document of an application that is called below the path `root` of its site."""
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
    """Say the same so that generators of clients take it, in the whole document.

    Numbers have a width: memory in bytes fits no int32, nor a time a float32, which they would take. A mapping is told
    by `additionalProperties`, with the pattern of its names beside it: of `patternProperties` they make nothing.
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
    """Have an answer tell its kind and headers, errors in JSON on all routes; a stream as text: items are of 3.2."""
    if status in _HEADERS:
        answer["headers"] = {**answer.get("headers", {}), **_HEADERS[status]}
    content = answer.get("content", {})
    if status >= "400" and content:
        answer["content"] = content = {"application/json": next(iter(content.values()))}
    for kind in content.values():
        if kind.pop("itemSchema", None):
            kind["schema"] = _LINE
        kind["schema"] = answered.shown(kind["schema"])
