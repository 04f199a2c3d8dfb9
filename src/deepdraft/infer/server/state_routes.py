"""What the server says of itself: health, models, settings, metrics; and the one thing it can be told, to flush."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from deepdraft.infer.server.refusal import Refused, json_response
from deepdraft.infer.server.service import Service
from deepdraft.version import VERSION

_PROMETHEUS_TEXT = "text/plain; version=0.0.4; charset=utf-8"


async def health(service: Service, request: Request) -> Response:
    """200 while the engine's thread lives. Never waits for it."""
    if service.worker.failure is not None:
        return Refused.of(service.worker.failure).response()
    return json_response({"status": "ok"})


async def ready(service: Service, request: Request) -> Response:
    """200 while new requests are taken."""
    if service.worker.failure is not None:
        return Refused.of(service.worker.failure).response()
    if service.worker.is_draining:
        return json_response({"status": "draining"}, 503)
    return json_response({"status": "ready"})


async def models(service: Service, request: Request) -> Response:
    """Every name of the one model."""
    cards = [_card(service, name) for name in service.facts.model_names]
    return json_response({"object": "list", "data": cards})


async def model(service: Service, request: Request) -> Response:
    """One name. Raises Refused (404)."""
    name = request.path_params["name"]
    service.check_model(name)
    return json_response(_card(service, name))


async def server_info(service: Service, request: Request) -> Response:
    """Effective settings, pool, and the state as of the last step."""
    return json_response({**service.facts.settings, "state": _state(service)})


async def version(service: Service, request: Request) -> Response:
    """The package's version."""
    return json_response({"version": VERSION, "engine": "deepdraft"})


async def metrics(service: Service, request: Request) -> Response:
    """Prometheus text."""
    return Response(service.metrics.page(), headers={"content-type": _PROMETHEUS_TEXT})


async def flush_cache(service: Service, request: Request) -> Response:
    """Empty the radix cache. Raises Refused (400) while requests are open."""
    if not await service.worker.flush():
        raise Refused(400, f"the cache is in use: {service.worker.num_open} requests are open", code="cache_in_use")
    return json_response({"success": True, "message": "Cache flushed."})


def _card(service: Service, name: str) -> Mapping[str, Any]:
    facts = service.facts
    return {
        "id": name,
        "object": "model",
        "created": facts.created_s,
        "owned_by": "deepdraft",
        "root": facts.model,
        "parent": None if name == facts.model else facts.model,
        "max_model_len": facts.max_context_len,
    }


def _state(service: Service) -> Mapping[str, Any]:
    worker = service.worker
    stats = worker.stats
    engine = {}
    if stats is not None:
        engine = {
            "num_running": stats.num_running,
            "num_waiting": stats.num_waiting,
            "free_pages": stats.num_free_pages,
            "held_pages": stats.num_held_pages,
            "cached_pages": stats.num_cached_pages,
        }
    return {"is_draining": worker.is_draining, "num_open": worker.num_open, **engine}
