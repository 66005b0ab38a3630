"""The application: `create_app(Config(...))` is what uvicorn serves, and what tests call."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache

from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from autotune import __version__
from autotune.errors import AutotuneError
from autotune.service import answers, pages, routes
from autotune.service.callers import Callers
from autotune.service.config import Config, require_safe
from autotune.service.document import document_of
from autotune.service.guard import Guard
from autotune.service.state import Service, service_of


def create_app(config: Config, failed: Callable[[AutotuneError], None] | None = None) -> FastAPI:
    """Return the application of a server; it opens the database when it starts and ends what runs when it closes.

    `failed` is called with the error that keeps it from starting; without it, the error is raised.
    The API is below /v1, its document at /v1/openapi.json, the pages (`pages.router`) at /.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                service = app.state.service = Service(config)
                stack.push_async_callback(service.close)
                require_safe(config, any(token.valid for token in service.store.tokens()))
                await service.start()
            except AutotuneError as error:
                if failed is None:
                    raise
                failed(error)
            yield

    def callers() -> Callers:
        service: Service = app.state.service
        return service.callers

    async def best(request: Request) -> Response:
        return await service_of(request).lookups.best(request)

    app = FastAPI(
        title="autotune",
        version=__version__,
        description="Searches for the fastest configurations of OpenCL kernels, and what they found.",
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=answers.Visible,
        lifespan=lifespan,
        middleware=[Middleware(Guard, config=config, callers=callers)],
    )
    # Added before FastAPI's own route of that path, which only documents it.
    app.router.routes.append(Route("/v1/best", best, methods=["GET"]))
    app.include_router(routes.router)
    document = cache(lambda: document_of(app, config.root))
    app.openapi = document  # type: ignore[method-assign]
    app.include_router(pages.router)
    answers.install(app)
    pages.install(app)
    return app
