"""Ollama, by its OpenAI routes. Names and traps: docs/reference/servers.md.

It reuses prompts and does not tell; a prompt longer than its context is cut silently. Only unique leading words keep
a request cold, and only the count of prompt tokens shows a cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.field import INCLUDE_USAGE
from deepdraft.adapters.json_value import object_of, whole
from deepdraft.adapters.server import Server
from deepdraft.records import Capabilities


class OllamaAdapter(Adapter):
    """An Ollama server."""

    engine = "ollama"
    optional_fields: ClassVar[Mapping[str, Any]] = {INCLUDE_USAGE: True}
    health_path = "/api/version"

    @classmethod
    async def recognised(cls, server: Server, model_cards: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
        """By /api/version."""
        version = object_of(await server.try_json("/api/version")).get("version")
        return ("GET /api/version", {"version": version}) if isinstance(version, str) else None

    async def inspect(self, answers: Mapping[str, Any]) -> Capabilities:
        """From /api/show and /api/ps."""
        model = self._capabilities.model
        shown = object_of(await self._server.try_json("/api/show", {"model": model})) if model else {}
        running = object_of(await self._server.try_json("/api/ps"))
        known = replace(self._capabilities, version=answers.get("version"))
        self._capabilities = ollama_capabilities(known, shown, running)
        return self._capabilities


def ollama_capabilities(known: Capabilities, shown: Mapping[str, Any], running: Mapping[str, Any]) -> Capabilities:
    """What /api/show tells of the model, and /api/ps of the loaded one: only a loaded model has a context length."""
    entries = [object_of(entry) for entry in running.get("models") or []]
    loaded = next((entry for entry in entries if known.model in (entry.get("name"), entry.get("model"))), {})
    doubts = [*known.doubts, "a prompt longer than the context is cut silently; a reused prompt is not told"]
    if not loaded:
        doubts.append(
            "the model is not loaded yet: the first request waits for it, and its context length is unknown"
        )
    details = object_of(shown.get("details"))
    settings = {key: value for key, value in {**details, **loaded}.items() if key != "expires_at"}
    parameters = shown.get("parameters")
    if isinstance(parameters, str) and parameters:
        settings["parameters"] = parameters
    return replace(
        known,
        max_context_len=whole(loaded.get("context_length")),
        prefix_cache="yes",
        has_counters="no",
        settings=settings,
        doubts=tuple(doubts),
    )
