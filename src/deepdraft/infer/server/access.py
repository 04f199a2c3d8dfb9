"""At the door: every request gets an id, and needs the API key where one is set.

Open without a key: /health and /ready, which load balancers ask. Everything else needs it, /metrics and /server_info
too, since they tell of other people's requests and of the machine.
"""

from __future__ import annotations

import hashlib
import hmac
import uuid
from typing import cast

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deepdraft.infer.server.refusal import Refused

OPEN_PATHS = frozenset({"/health", "/ready"})
_ID_KEY = "deepdraft_request_id"


def request_id(scope: Scope) -> str:
    """The id of the HTTP request, as in its x-request-id header."""
    return cast(str, scope[_ID_KEY])


class Entrance:
    """ASGI middleware. `api_key` None lets everyone in."""

    def __init__(self, app: ASGIApp, *, api_key: str | None) -> None:
        self._app = app
        self._key_hash = None if api_key is None else _hash(api_key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """As ASGI has it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        found = uuid.uuid4().hex
        scope[_ID_KEY] = found

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = found
            await send(message)

        if self._is_let_in(scope):
            await self._app(scope, receive, send_with_id)
            return
        refused = Refused(401, "Incorrect API key provided.", code="invalid_api_key")
        await refused.response()(scope, receive, send_with_id)

    def _is_let_in(self, scope: Scope) -> bool:
        if self._key_hash is None or scope["path"] in OPEN_PATHS:
            return True
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        # Hashes have one length, so the comparison tells nothing of the key's.
        is_same = hmac.compare_digest(_hash(key.strip().encode("latin-1", "replace")), self._key_hash)
        return scheme.lower() == "bearer" and is_same


def _hash(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
