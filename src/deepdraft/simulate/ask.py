"""A generation request in the terms of no dialect: what a dialect reads out of a body, and what the engine needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Shape = Literal["chat", "completion", "native"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What one request asks for. The prompt has the chat template in it and is cut where the server cuts it."""

    route: str
    shape: Shape
    prompt_ids: list[int]
    prompt_text: str
    is_stream: bool
    max_tokens: int | None
    """None: until the model ends by itself."""
    min_tokens: int = 0
    ignores_eos: bool = False
    wants_usage: bool = False
    wants_continuous_usage: bool = False
    wants_token_ids: bool = False
    wants_progress: bool = False
    wants_timings: bool = False
    wants_cached_details: bool = False
    wants_spec_details: bool = False
    uses_cache: bool = True
    cache_namespace: str = ""


class Refused(Exception):
    """A request that gets an HTTP error in the dialect's shape; `extra` goes into the error object."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str | None = None,
        code: int | str | None = None,
        extra: dict[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.code = code
        self.extra = extra or {}
