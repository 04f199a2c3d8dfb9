"""Request bodies as OpenAI, vLLM, SGLang and llama.cpp define them, as far as this server obeys them.

Only types are checked here; ranges are `sampling`'s work. Unknown fields are ignored, as OpenAI-compatible servers
do; those that would change the output if they were obeyed are refused by `unsupported`.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class StreamOptions(Struct, frozen=True, kw_only=True):
    """What a stream says beside its text."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationBody(Struct, frozen=True, kw_only=True):
    """What both generating routes take. None: not said."""

    model: str | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    n: int | None = None
    best_of: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_token_ids: bool | None = None
    add_special_tokens: bool | None = None


class CompletionBody(GenerationBody, frozen=True, kw_only=True):
    """POST /v1/completions."""

    prompt: str | list[str | int | list[int]]
    echo: bool | None = None
    logprobs: int | None = None


class ContentPart(Struct, frozen=True, kw_only=True):
    """One part of a message; only `text` is taken."""

    type: str
    text: str | None = None


class Message(Struct, frozen=True, kw_only=True):
    """One message of a conversation."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class ChatBody(GenerationBody, frozen=True, kw_only=True):
    """POST /v1/chat/completions."""

    messages: list[Message]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeBody(Struct, frozen=True, kw_only=True):
    """POST /tokenize, in vLLM's form (`prompt` or `messages`) or llama.cpp's (`content`)."""

    model: str | None = None
    prompt: str | None = None
    messages: list[Message] | None = None
    content: str | None = None
    add_special_tokens: bool | None = None
    add_special: bool | None = None
    add_generation_prompt: bool | None = None
    tools: list[dict[str, Any]] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(Struct, frozen=True, kw_only=True):
    """POST /detokenize."""

    model: str | None = None
    tokens: list[int]
