"""The pages for browsers, beside the API: `router` is mounted at `/` by `app.create_app`, after the routes of `/v1`.

A page takes `service: Opened` (depends.py) and calls the same functions of `service.views` as the JSON routes. With
`Accept: application/json`, a page returns its data.

    common.py    templates, static files, JSON or HTML, errors as pages
    results.py   home, best configurations, one problem and what was learned of it, comparisons
    searches.py  searches, one search as it goes on; trials, one trial
    submit.py    a form for a search, checked before it runs
    admin.py     signing in; tokens and workers
    snippets.py  a best in the forms in which people use it
    lessons.py   what reports tell of stored problems, kept while nothing changes
"""

from __future__ import annotations

from fastapi import APIRouter

from autotune.service.pages import admin, results, searches, submit
from autotune.service.pages.common import install, static

PARTS = (results, searches, submit, admin)
"""The files that have routes."""

router = APIRouter(include_in_schema=False)
router.get("/static/{version}/{name:path}", name="static")(static)
for part in PARTS:
    router.include_router(part.router)
