"""What a plain OpenAI-compatible server refuses, and how it says so: errors as bodies, in streams, as answers.

What can't be read in a body is refused where it is read (`request`).
"""

from __future__ import annotations

from deepdraft.simulate.ask import Ask, Refused, Shape
from deepdraft.simulate.dialects.answer import Answer, json_answer
from deepdraft.simulate.dialects.traits import Event, Traits


class Refusals(Traits):
    """Nested errors: {"error": {"message": ..., "type": ..., "code": ...}}."""

    def error(self, refused: Refused, shape: Shape = "chat") -> Event:
        """The body of an HTTP error; `shape` is that of the request."""
        return {"error": self.error_object(refused)}

    def error_object(self, refused: Refused) -> Event:
        """What stands under "error", also in streams."""
        return {
            "message": refused.message,
            "type": refused.kind or _error_kind(refused.status),
            "param": None,
            "code": refused.code,
            **refused.extra,
        }

    def stream_error(self, message: str) -> Event:
        """The error object that comes in a started stream."""
        return {"error": self.error_object(Refused(500, message, kind="server_error", code=500))}

    def not_found(self, path: str) -> Answer:
        """No such path."""
        message = f"Invalid URL (path {path})"
        return json_answer(self.error(Refused(404, message, kind="invalid_request_error")), 404)

    def unauthorized(self) -> Answer:
        """No key, or a wrong one."""
        message = "Incorrect API key provided."
        refused = Refused(401, message, kind="invalid_request_error", code="invalid_api_key")
        return json_answer(self.error(refused), 401)

    def loading(self) -> Answer:
        """Not ready yet."""
        return json_answer(
            {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}, status=503
        )

    def check_limits(self, ask: Ask) -> None:
        """Raise Refused when prompt and max_tokens don't fit into context or pool."""
        limit = self.physics.hard_limit_len
        wanted = len(ask.prompt_ids) + (ask.max_tokens or 1)
        if wanted > limit:
            raise Refused(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested {wanted} tokens "
                f"({len(ask.prompt_ids)} in the messages, {ask.max_tokens or 1} in the completion). Please reduce "
                "the length of the messages or completion.",
                kind="invalid_request_error",
                code="context_length_exceeded",
            )


def _error_kind(status: int) -> str:
    return "invalid_request_error" if status < 500 else "server_error"
