"""POST /v1/chat/completions: messages through the model's own chat template.

Tools are rendered by the template, but calls are not parsed out of what the model writes: a request that lets the
model call one is refused, since its client waits for `tool_calls` that would never come.
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from deepdraft.infer.request import Output
from deepdraft.infer.server.access import request_id
from deepdraft.infer.server.answering import Answering
from deepdraft.infer.server.body import decoded, read_body
from deepdraft.infer.server.job import Choice, Job, Json
from deepdraft.infer.server.logprobs import chat_logprobs
from deepdraft.infer.server.prompt import chat_prompt
from deepdraft.infer.server.protocol import ChatBody, StreamOptions
from deepdraft.infer.server.refusal import Refused
from deepdraft.infer.server.sampling import check_stream_options, num_choices, sampling_params
from deepdraft.infer.server.service import Service
from deepdraft.infer.server.unsupported import check_unsupported
from deepdraft.infer.tokenizer.tokenizer import Tokenizer


async def chat(service: Service, request: Request) -> ASGIApp:
    """The route. Raises Refused."""
    content = await read_body(request, service.max_body_bytes)
    body = decoded(content, ChatBody)
    check_unsupported(content)
    service.check_model(body.model)
    check_stream_options(body)
    _check_tools(body)
    is_new_name = body.max_completion_tokens is not None
    options = body.stream_options or StreamOptions()
    job = Job(
        form=ChatForm(service.tokenizer),
        num_prompts=1,
        num_choices=num_choices(body),
        prompts=lambda: [chat_prompt(body, service.tokenizer)],
        sampling=sampling_params(
            body,
            asked_max_tokens=body.max_completion_tokens if is_new_name else body.max_tokens,
            max_tokens_name="max_completion_tokens" if is_new_name else "max_tokens",
            num_logprobs=_num_logprobs(body),
        ),
        default_max_tokens=None,
        is_stream=bool(body.stream),
        wants_usage=bool(options.include_usage),
        wants_continuous_usage=bool(options.continuous_usage_stats),
        wants_token_ids=bool(body.return_token_ids),
    )
    return Answering(service, job, request_id(request.scope))


def _check_tools(body: ChatBody) -> None:
    if body.tool_choice not in (None, "none", "auto") or (body.tools and body.tool_choice != "none"):
        field = "tools" if body.tools else "tool_choice"
        raise Refused(
            400,
            f"{field}: tool calls are not supported; with tool_choice none the template shows the tools to the model",
            param=field,
            code="unsupported_parameter",
        )


def _num_logprobs(body: ChatBody) -> int | None:
    if body.logprobs:
        return body.top_logprobs or 0
    if body.top_logprobs:
        raise Refused(400, "top_logprobs is only allowed when logprobs is true", param="top_logprobs")
    return None


class ChatForm:
    """OpenAI's chat.completion."""

    id_prefix = "chatcmpl-"
    prompt_field = "messages"

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def object_name(self, *, is_stream: bool) -> str:
        """Of the whole answer or of each chunk."""
        return "chat.completion.chunk" if is_stream else "chat.completion"

    def opening(self, choice: Choice) -> Json | None:
        """The role."""
        return _delta(choice, {"role": "assistant", "content": ""}, None)

    def piece(self, choice: Choice, output: Output) -> Json:
        """The new text."""
        logprobs = chat_logprobs(output.logprobs, self._tokenizer) if output.logprobs else None
        return _delta(choice, {"content": output.text}, logprobs)

    def closing(self, choice: Choice) -> Json:
        """An empty delta, and why it ended."""
        return {**_delta(choice, {}, None), "finish_reason": choice.finish_reason}

    def whole(self, choice: Choice) -> Json:
        """The message."""
        message = {"role": "assistant", "content": "".join(choice.texts), "refusal": None}
        logprobs = chat_logprobs(choice.logprobs, self._tokenizer) if choice.logprobs else None
        return {
            "index": choice.index,
            "message": message,
            "logprobs": logprobs,
            "finish_reason": choice.finish_reason,
        }


def _delta(choice: Choice, delta: Json, logprobs: Json | None) -> Json:
    return {"index": choice.index, "delta": delta, "logprobs": logprobs, "finish_reason": None}
