"""The dialect of a plain OpenAI-compatible server, and what the other dialects change of it.

A dialect reads bodies into `Ask`s, refuses what its engine would refuse in its own words, and shapes tokens into
events: one module each. It holds no state of requests and never waits.
"""

from __future__ import annotations

from deepdraft.simulate.ask import Shape
from deepdraft.simulate.dialects.answer import Answer, Endpoint, Query, json_answer, text_answer
from deepdraft.simulate.dialects.refusal import Refusals
from deepdraft.simulate.dialects.request import RequestReading
from deepdraft.simulate.dialects.stream_event import StreamEvents
from deepdraft.simulate.dialects.traits import Event


class OpenAiDialect(RequestReading, Refusals, StreamEvents):
    """Plain OpenAI: nested errors, usage in its own chunk when asked, a finish chunk with an empty delta."""

    def generation_routes(self) -> dict[str, Shape]:
        """Paths that generate, by POST."""
        return {"/v1/chat/completions": "chat", "/v1/completions": "completion"}

    def endpoints(self) -> dict[tuple[str, str], Endpoint]:
        """Every other endpoint, by method and path."""
        return {("GET", "/v1/models"): self.models, ("GET", "/health"): self.health}

    async def health(self, query: Query) -> Answer:
        """Alive."""
        return text_answer("")

    async def models(self, query: Query) -> Answer:
        """The model list."""
        return json_answer({"object": "list", "data": [self.model_card()]})

    def model_card(self) -> Event:
        """The one model."""
        return {
            "id": self.surface.model,
            "object": "model",
            "created": int(self.engine.started_at_s),
            "owned_by": self.owned_by,
        }
