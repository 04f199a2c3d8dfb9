"""Signs by which engines give themselves away that several of them share: the owner of a listed model, a version, and
the families of a metrics page. Each adapter's `recognised` says which signs are its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepdraft.adapters.json_value import object_of, text_of
from deepdraft.adapters.server import Server


def is_owned_by(model_cards: Sequence[dict[str, Any]], owner: str) -> bool:
    """Whether the model list names this owner."""
    return any(card.get("owned_by") == owner for card in model_cards)


async def stated_version(server: Server) -> str | None:
    """What GET /version says; None where there is no such route."""
    reply = await server.try_get("/version")
    return text_of(object_of(None if reply is None else reply.json).get("version"))


async def has_metrics(server: Server, prefix: str, path: str = "/metrics") -> bool:
    """Whether the metrics page has families whose names begin so."""
    reply = await server.try_get(path)
    return reply is not None and reply.status == 200 and f"\n{prefix}" in f"\n{reply.text}"
