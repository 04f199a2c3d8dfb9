"""Routes put together, and errors turned into answers."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from deepdraft.errors import DeepdraftError
from deepdraft.infer.server import chat, completions, state_routes, tokenize
from deepdraft.infer.server.access import Entrance
from deepdraft.infer.server.refusal import SERVER_ERROR, Refused
from deepdraft.infer.server.service import Service

Endpoint = Callable[[Service, Request], Awaitable[ASGIApp]]

_GET, _POST, _BOTH = ("GET",), ("POST",), ("GET", "POST")
_ROUTES: tuple[tuple[str, Endpoint, tuple[str, ...]], ...] = (
    ("/v1/completions", completions.complete, _POST),
    ("/v1/chat/completions", chat.chat, _POST),
    ("/v1/models", state_routes.models, _GET),
    ("/v1/models/{name:path}", state_routes.model, _GET),
    ("/health", state_routes.health, _GET),
    ("/ready", state_routes.ready, _GET),
    ("/server_info", state_routes.server_info, _GET),
    ("/version", state_routes.version, _GET),
    ("/metrics", state_routes.metrics, _GET),
    ("/flush_cache", state_routes.flush_cache, _BOTH),
    ("/tokenize", tokenize.tokenize, _POST),
    ("/detokenize", tokenize.detokenize, _POST),
)
_STOP_LIMIT_S = 5.0


def build_app(service: Service, *, api_key: str | None = None) -> Starlette:
    """The ASGI application; starts the engine's thread when it is started and stops it in the end."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        service.worker.start()
        yield
        service.texts.stop()
        service.worker.stop(_STOP_LIMIT_S)

    return Starlette(
        routes=[
            Route(path, partial(_answered, service, endpoint), methods=methods) for path, endpoint, methods in _ROUTES
        ],
        middleware=[Middleware(Entrance, api_key=api_key)],
        exception_handlers={HTTPException: partial(_http_error, service), Exception: partial(_fault, service)},
        lifespan=lifespan,
    )


async def _answered(service: Service, endpoint: Endpoint, request: Request) -> ASGIApp:
    """What the endpoint answers, be it an error of ours."""
    try:
        return await endpoint(service, request)
    except DeepdraftError as error:
        refused = Refused.of(error)
        service.metrics.refused(refused.status)
        return refused.response()
    except ClientDisconnect:
        return Response()  # nobody is left to read it


async def _http_error(service: Service, request: Request, error: Exception) -> Response:
    """No such path, or not by this method."""
    assert isinstance(error, HTTPException)
    service.metrics.refused(error.status_code)
    refused = Refused(error.status_code, f"{error.detail}: {request.method} {request.url.path}")
    response = refused.response()
    response.headers.update(error.headers or {})
    return response


async def _fault(service: Service, request: Request, error: Exception) -> Response:
    """A fault of ours; the traceback goes to the log, not to the client."""
    service.metrics.refused(500)
    return Refused(500, "internal error", kind=SERVER_ERROR).response()
