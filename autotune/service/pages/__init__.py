"""The pages for browsers, beside the API: `router` is mounted at `/` by `app.create_app`, after the routes of `/v1`.

A page takes `service: Service = request.app.state.service` and asks `service.views` the same functions that the JSON
routes ask, so that each page is to be had as JSON under the same name below /v1.
"""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(include_in_schema=False)
