"""A form for a search, of a study of the server or of one's own, which is checked first; errors show their line."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from autotune.errors import AutotuneError, UsageError
from autotune.identity import Value
from autotune.lookup import DEFAULT_STUDY
from autotune.samplers import DEFAULT_SAMPLER, SAMPLERS
from autotune.service import submit as submitting
from autotune.service import views
from autotune.service.answers import problem_of, status_of
from autotune.service.callers import allowed, caller_of, require_role
from autotune.service.depends import Opened, Reader
from autotune.service.pages.common import SIGN_IN, Word, go, show
from autotune.service.shapes import Check, Submit
from autotune.service.state import Service
from autotune.text import parse_choices, parse_duration, parse_size

router = APIRouter()

OWN = "own"
"""The choice in the form for a study of one's own."""

_MOST_FIELDS = 400
Form = dict[str, str]


@router.get("/submit")
def form(
    request: Request, service: Opened, caller: Reader, study: Word = "", device: Word = "", size: Word = ""
) -> Response:
    """The form, empty or as a page links to it."""
    known = service.studies.names()
    usual = DEFAULT_STUDY if DEFAULT_STUDY in known else next(iter(known), OWN)
    given = {"study": study or usual, "device": device, "size": size}
    return _show(request, service, given)


@router.get("/submit/study")
def fields(
    request: Request, service: Opened, caller: Reader, study: Annotated[str, Query(max_length=80)] = ""
) -> Response:
    """The fields that depend on the study."""
    return show(request, "study-fields.html", {"one": _study(service, study)}, given=_Given({"study": study}))


@router.post("/submit")
async def submit(request: Request, service: Opened) -> Response:
    """Check the filled-in form, or queue the search; a caller without (or no longer with) the role gets it back."""
    require_role(caller_of(request), "read")
    given = {
        name: value for name, value in (await request.form(max_fields=_MOST_FIELDS)).items() if isinstance(value, str)
    }
    only_check = given.get("do") == "check"
    try:
        caller = await allowed("run")(request)
        asked = asked_for(given, service)
        if only_check:
            checked = await submitting.check(
                service, caller, Check(**asked.model_dump(include=set(Check.model_fields)))
            )
            return _answer(request, service, given, checked=checked)
        told = await submitting.submit(service, caller, asked, given.get("once") or None)
        return go(f"/searches/{told['id']}")
    except AutotuneError as error:
        status, told = status_of(error), problem_of(error)
        if status == 401:
            told["hint"] = SIGN_IN
        return _answer(request, service, given, status=status, error=placed(told, given))


def asked_for(given: Form, service: Service) -> Submit:
    """Return what a filled-in form asks for. Raises UsageError, naming the field, for what cannot be read."""
    own = given.get("study") == OWN
    shape: dict[str, Any] = {"device": given.get("device") or None, "sampler": given.get("sampler") or DEFAULT_SAMPLER}
    if own:
        files = {given.get("kernel_name", "").strip() or _kernel_in(given.get("toml", "")): given.get("kernel", "")}
        shape["upload"] = {
            "study": _unix(given.get("toml", "")),
            "files": {name: _unix(text) for name, text in files.items()},
        }
        shape["size"] = _sizes(given.get("size", ""))
        shape["choices"] = _pairs(given.get("choices", ""))
    else:
        one = service.studies.load(given.get("study", ""))
        shape["study"] = given.get("study")
        size = given.get("size", "").strip()
        shape["size"] = parse_size(size, one.sizes) if size else {}
        named = [f"{name}={given['choice:' + name]}" for name in one.choices if given.get("choice:" + name)]
        shape["choices"] = parse_choices(named, one.choices)
    shape["budget"] = {
        "trials": _whole(given.get("trials", ""), "trials"),
        "seconds": parse_duration(given["timeout"], where="time") if given.get("timeout", "").strip() else None,
        "until_stale": _whole(given.get("until_stale", ""), "without a better one"),
    }
    shape["seed"] = _whole(given.get("seed", ""), "seed", least=0)
    shape |= {name: given.get(name) == "on" for name in ("fresh", "retry_failed", "cold")}
    try:
        return Submit(**shape)
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(str(first["msg"]), where=".".join(map(str, first["loc"]))) from None


def _kernel_in(toml: str) -> str:
    """Return the name of the kernel's file in a study."""
    named = re.search(r"""^[ \t]*kernel[ \t]*=[ \t]*["']([^"'\n]+)["']""", toml, re.MULTILINE)
    return named[1] if named else "kernel.cl"


def placed(told: dict[str, str], given: Form) -> dict[str, Any]:
    """Return an error with the `line` of the study's text that it is about, and the text around it."""
    text = _unix(given.get("toml", "")) if given.get("study") == OWN else ""
    number = line_of(text, told)
    lines = text.split("\n")
    around = range(max(1, number - 2), min(len(lines), number + 2) + 1) if number else ()
    return {
        **told,
        "line": number,
        "around": [{"number": at, "text": lines[at - 1], "here": at == number} for at in around],
    }


def line_of(text: str, told: dict[str, str]) -> int | None:
    """Return the line of a TOML text that an error is about: the line that it names, or the line of its key."""
    if not text:
        return None
    named = re.search(r"TOML: .*\bline (\d+)", told["error"])
    if named and int(named[1]) <= text.count("\n") + 1:
        return int(named[1])
    where = re.sub(r"^\S*\.toml:?", "", told["where"]).strip()
    if not where and (path := re.match(r"([\w.\[\]-]+):", told["error"])):  # as errors of the schema name it
        where = path[1]
    keys = [part for part in re.split(r"[\s:.\[\]]+", where) if part]
    found, start = None, 0
    lines = text.split("\n")
    for key in keys:
        at = next((place for place in range(start, len(lines)) if _is_of(lines[place], key)), None)
        if at is not None:
            found, start = at + 1, at
    return found


def _is_of(line: str, key: str) -> bool:
    """Whether a line of TOML is the heading of a key's table, or sets the key; in time that is linear in the line."""
    line, quoted = line.lstrip(), re.escape(key)
    if not line.startswith("["):
        return re.match(rf'"?{quoted}"?\s*=', line) is not None
    heading, closed, _ = line.partition("]")
    return bool(closed) and "#" not in heading and re.search(rf"\b{quoted}\b", heading) is not None


def _answer(
    request: Request, service: Service, given: Form, *, status: int = 200, checked: Any = None, error: Any = None
) -> Response:
    """Return the result of a check; only that part of the page if htmx asks for it."""
    if request.headers.get("hx-request"):
        return show(request, "checked.html", {"checked": checked, "error": error})
    return _show(request, service, given, status=status, checked=checked, error=error)


def _show(
    request: Request, service: Service, given: Form, *, status: int = 200, checked: Any = None, error: Any = None
) -> Response:
    samplers = [name for name, entry in SAMPLERS.items() if entry.is_here]
    data = {
        "studies": service.studies.names(), "devices": views.devices(service)["here"],
        "one": _study(service, given.get("study", "")), "checked": checked, "error": error, "samplers": samplers,
    }  # fmt: skip
    return show(request, "submit.html", data, status, given=_Given(given), own=OWN)


class _Given(dict[str, str]):
    """The values of a filled-in form; all other fields are empty."""

    def __missing__(self, name: str) -> str:
        return ""


def _study(service: Service, name: str) -> dict[str, Any] | None:
    if name == OWN or name not in service.studies.names():
        return None
    try:
        return views.study(service, name)
    except AutotuneError as error:
        return {"study": name, "error": str(error), "about": "", "sizes": {}, "choices": {}, "parameters": {}}


def _unix(text: str) -> str:
    return text.replace("\r\n", "\n")  # browsers send form text with \r\n


def _whole(text: str, where: str, least: int = 1) -> int | None:
    text = text.replace(",", "").strip()
    if not text:
        return None
    if not text.isdecimal() or len(text) > 12 or int(text) < least:
        raise UsageError(f"{text!r:.40} is not a whole number of at least {least}", where=where)
    return int(text)


def _sizes(text: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, value in _pairs(text).items():
        if not isinstance(value, int):
            raise UsageError(f"{name}={value} is not a size", where="size", hint="write M=1024,N=512")
        found[name] = value
    return found


def _pairs(text: str) -> dict[str, Value]:
    found: dict[str, Value] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if not equals or not name or not value:
            raise UsageError(f"{part!r:.60} names nothing", where="size, choices", hint="write NAME=VALUE,NAME=VALUE")
        found[name] = int(value) if re.fullmatch(r"-?\d{1,18}", value) else value
    return found
