"""A server and what is known of it by now: the ground an adapter stands on. Asks one thing, whether it is well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from deepdraft.adapters.message import error_message
from deepdraft.adapters.server import Server
from deepdraft.records import Capabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What the user decided about talking to the server."""

    endpoint: str = "auto"
    """auto, chat, completions, native"""
    server_log: Path | None = None
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    keep_cache: bool = False
    """Leave the server's prefix cache in use."""


class KnownServer:
    """One server, what the user decided about it, and its capabilities as far as they are known."""

    engine: ClassVar[str] = "openai"
    health_path: ClassVar[str] = "/health"

    def __init__(self, server: Server, capabilities: Capabilities, setup: Setup) -> None:
        self._server = server
        self._capabilities = capabilities
        self._setup = setup
        self._health_path = self.health_path

    @property
    def capabilities(self) -> Capabilities:
        """What the server is and can tell, as far as it is known now."""
        return self._capabilities

    @property
    def setup(self) -> Setup:
        """What the user decided."""
        return self._setup

    @property
    def server(self) -> Server:
        """The server itself."""
        return self._server

    def learn(self, **found: Any) -> None:
        """Add to the capabilities, by the names of their fields."""
        self._capabilities = replace(self._capabilities, **found)

    def doubt(self, *sentences: str) -> None:
        """Add sentences to what could not be established, each once."""
        known = self._capabilities.doubts
        self.learn(doubts=known + tuple(s for s in dict.fromkeys(sentences) if s not in known))

    async def health(self, *, limit_s: float = 10.0) -> str | None:
        """None when the server is well, else what is wrong in one sentence. Generates nothing."""
        reply = await self._server.try_get(self._health_path, limit_s=limit_s)
        if reply is not None and reply.status in (404, 405, 501):
            reply = await self._server.try_get("/v1/models", limit_s=limit_s)
        if reply is None:
            return f"the server did not answer within {limit_s:g} s"
        return None if reply.status < 400 else error_message(reply.status, reply.body)
