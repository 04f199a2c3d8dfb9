"""The dialect of `transformers serve` (bytes as recorded from 5.24.0).

The role chunk comes as soon as the request is read, usage rides in the finish chunk, there is no [DONE], unknown
fields are a 422, and a prefix that is reused is nowhere reported.
"""

from __future__ import annotations

from typing import Any, ClassVar

from deepdraft.simulate.ask import Ask, Refused, Shape
from deepdraft.simulate.dialects.answer import Answer, Query, json_answer
from deepdraft.simulate.dialects.openai import OpenAiDialect
from deepdraft.simulate.dialects.traits import Event
from deepdraft.simulate.engine import Generation
from deepdraft.simulate.spec import RoleChunk, UnknownFields, UsagePlacement, UsageWhen


class TransformersDialect(OpenAiDialect):
    """As `transformers serve` speaks."""

    owned_by: ClassVar[str] = "local"
    server_header: ClassVar[str] = "uvicorn"
    takes_token_ids: ClassVar[bool] = False
    default_role_chunk: ClassVar[RoleChunk] = "early"
    default_unknown_fields: ClassVar[UnknownFields] = "422"
    reports_cached_tokens: ClassVar[bool] = False

    async def health(self, query: Query) -> Answer:
        return json_answer({"status": "ok"})

    def model_card(self) -> Event:
        return {
            "owned_by": self.owned_by,
            "id": self.surface.model,
            "object": "model",
            "created": 0,
            "status": {"value": "loaded"},
        }

    def error(self, refused: Refused, shape: Shape = "chat") -> Event:
        return {"detail": refused.message}

    def not_found(self, path: str) -> Answer:
        return json_answer({"detail": "Not Found"}, 404)

    def unauthorized(self) -> Answer:
        return json_answer({"detail": "Unauthorized"}, 401)

    def check_limits(self, ask: Ask) -> None:
        """Nothing is refused: the model goes on past its context, or the machine runs out of memory."""

    def sends_done(self, shape: Shape) -> bool:
        return False

    def usage_placement(self, shape: Shape) -> UsagePlacement:
        return "finish_chunk"

    def usage_when(self, shape: Shape) -> UsageWhen:
        return "always"

    def head(self, generation: Generation) -> Event:
        is_chat = generation.ask.shape == "chat"
        request_id = generation.truth.request_id
        dashed = "-".join((request_id[:8], request_id[8:12], request_id[12:16], request_id[16:20], request_id[20:]))
        return {
            "id": dashed,
            "created": int(generation.created_s),
            "model": self.surface.model,
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            **({"system_fingerprint": ""} if is_chat else {}),
        }

    def choice(self, generation: Generation, content: Event, finish_reason: str | None, is_token: bool) -> Event:
        finish: dict[str, Any] = {"finish_reason": finish_reason} if finish_reason else {}
        return {**finish, **content, "index": 0}

    def role_event(self, generation: Generation) -> Event:
        return self._event(generation, {"delta": {"role": "assistant"}})

    def full_answer(self, generation: Generation, usage: Event | None) -> Event:
        event = super().full_answer(generation, usage)
        event.pop("system_fingerprint", None)
        return event
