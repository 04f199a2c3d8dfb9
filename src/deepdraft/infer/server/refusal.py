"""An answer that is an error: OpenAI's body, its types and its status codes.

    {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}

What the engine refuses is an error of `infer.errors`; this is where it gets a status.
"""

from __future__ import annotations

import math
from typing import Any, Self

import msgspec
from starlette.responses import Response

from deepdraft.errors import DeepdraftError
from deepdraft.infer.errors import ContextTooLong, InvalidRequest, PoolTooSmall, QueueFull, ShuttingDown

INVALID_REQUEST = "invalid_request_error"
SERVER_ERROR = "server_error"
_RETRY_DRAINING_S = 5.0


class EngineDied(DeepdraftError):
    """The engine's thread ended by an error; only a new process helps."""

    exit_code = 4


class Refused(DeepdraftError):
    """Why a request gets an error instead of an answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = INVALID_REQUEST,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        """`kind` is the body's `type`, `param` the field at fault, `code` OpenAI's word for the fault, if any."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s

    @classmethod
    def of(cls, error: DeepdraftError, *, param: str | None = None) -> Self:
        """As an answer; `param` is the field that holds the prompt."""
        message = f"{error.message} ({error.hint})" if error.hint else error.message
        if isinstance(error, cls):
            return error
        if isinstance(error, ContextTooLong):
            return cls(400, _too_long(error), param=param, code="context_length_exceeded")
        if isinstance(error, PoolTooSmall):
            return cls(400, message, param=param, code="kv_pool_exceeded")
        if isinstance(error, InvalidRequest):
            is_prompt = error.parameter in ("prompt", "messages")
            return cls(400, message, param=param or error.parameter if is_prompt else error.parameter)
        if isinstance(error, QueueFull):
            return cls(503, message, kind=SERVER_ERROR, code="queue_full", retry_after_s=error.retry_after_s)
        if isinstance(error, ShuttingDown):
            return cls(503, error.message, kind=SERVER_ERROR, code="draining", retry_after_s=_RETRY_DRAINING_S)
        if isinstance(error, EngineDied):
            return cls(503, error.message, kind=SERVER_ERROR, code="engine_died")
        return cls(500, message, kind=SERVER_ERROR)

    @property
    def content(self) -> dict[str, Any]:
        """The body, also of an error in a stream."""
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        """The whole answer."""
        headers = {}
        if self.retry_after_s is not None:
            headers["retry-after"] = str(math.ceil(self.retry_after_s))
        if self.status == 401:
            headers["www-authenticate"] = "Bearer"
        return json_response(self.content, self.status, headers)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(msgspec.json.encode(content), status, headers, "application/json")


def _too_long(error: ContextTooLong) -> str:
    """In the words that clients of OpenAI's own API look for."""
    wanted = error.num_prompt_tokens + error.max_tokens
    return (
        f"This model's maximum context length is {error.max_context_len} tokens. However, you requested {wanted} "
        f"tokens ({error.num_prompt_tokens} in the prompt, {error.max_tokens} for the completion)."
    )
