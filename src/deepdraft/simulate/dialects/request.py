"""Reads a body of a plain OpenAI-compatible server into an Ask: fields, prompt, chat template, limits asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.simulate.ask import Ask, Refused, Shape
from deepdraft.simulate.dialects.traits import Event, Traits
from deepdraft.simulate.text import template_pieces

_OPENAI_FIELDS = frozenset(
    (
        "model",
        "messages",
        "prompt",
        "stream",
        "stream_options",
        "max_tokens",
        "max_completion_tokens",
        "temperature",
        "top_p",
        "n",
        "stop",
        "seed",
        "user",
        "presence_penalty",
        "frequency_penalty",
        "logprobs",
        "top_logprobs",
        "logit_bias",
        "response_format",
        "tools",
        "tool_choice",
        "suffix",
        "echo",
        "best_of",
        "parallel_tool_calls",
        "metadata",
        "store",
        "service_tier",
        "reasoning_effort",
    )
)


class RequestReading(Traits):
    """Bodies of the chat and completions routes."""

    def ask(self, route: str, shape: Shape, body: Event) -> Ask:
        """Read a body. Raises Refused when it can't be read."""
        self.check_fields(body, shape)
        pieces, ids = self.prompt(shape, body)
        if not ids:
            raise Refused(400, "The prompt is empty.", kind="invalid_request_error")
        truncate_to = self.confounds.truncate_prompt_to
        if truncate_to is not None:
            ids = ids[:truncate_to]
        text = "".join(pieces[: len(ids)]) if pieces is not None else self.engine.tokenizer.decode(ids)
        options = body.get("stream_options") or {}
        ignores_eos = bool(body.get("ignore_eos", False))
        return Ask(
            route=route,
            shape=shape,
            prompt_ids=ids,
            prompt_text=text,
            is_stream=bool(body.get("stream", False)),
            max_tokens=self.max_tokens(shape, body),
            min_tokens=int(body.get("min_tokens") or 0),
            ignores_eos=ignores_eos,
            wants_usage=bool(options.get("include_usage", False)),
            wants_continuous_usage=self.has_continuous_usage and bool(options.get("continuous_usage_stats", False)),
            wants_token_ids=self.has_token_ids and bool(body.get("return_token_ids", False)),
            **self.extras(body),
        )

    def check_fields(self, body: Event, shape: Shape) -> None:
        """Raise Refused for fields the server does not know, where it minds."""
        policy = self.confounds.unknown_fields
        if policy == "dialect":
            policy = self.default_unknown_fields
        if policy == "ignored":
            return
        unknown = sorted(set(body) - _OPENAI_FIELDS)
        if unknown and policy == "422":
            raise Refused(422, f"Unexpected fields in the request: {set(unknown)}")
        if unknown:
            raise Refused(400, f"{unknown[0]}: Extra inputs are not permitted", kind="BadRequestError", code=400)

    def extras(self, body: Event) -> dict[str, Any]:
        """Further fields of the Ask that only this dialect reads."""
        return {}

    def max_tokens(self, shape: Shape, body: Event) -> int | None:
        """The output limit that was asked for, at least 1."""
        value = body.get("max_completion_tokens") or body.get("max_tokens")
        if value is None:
            return None if shape == "chat" else self.default_completion_tokens
        if not isinstance(value, int) or value < 1:
            raise Refused(400, f"max_tokens must be at least 1, got {value}.", kind="invalid_request_error")
        return value

    def prompt(self, shape: Shape, body: Event) -> tuple[list[str] | None, list[int]]:
        """The prompt's pieces (None when it came as ids) and ids, chat template included."""
        if shape == "chat":
            pieces = self.chat_pieces(body)
            return pieces, self.engine.tokenizer.ids(pieces)
        return self.text_prompt(body.get("prompt"))

    def text_prompt(self, prompt: Any) -> tuple[list[str] | None, list[int]]:
        """A prompt given as text, token ids, or a list of one of these."""
        if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], list | str):
            prompt = prompt[0]
        if isinstance(prompt, str):
            pieces = self.engine.tokenizer.pieces(prompt)
            return pieces, self.engine.tokenizer.ids(pieces)
        if isinstance(prompt, list) and all(isinstance(token_id, int) for token_id in prompt):
            if not self.takes_token_ids:
                raise Refused(422, "prompt: Input should be a valid string")
            return None, prompt
        raise Refused(400, "prompt must be text or a list of token ids.", kind="invalid_request_error")

    def chat_pieces(self, body: Event) -> list[str]:
        """The pieces of the messages with the template around them."""
        messages = body.get("messages")
        if not isinstance(messages, list) or not messages:
            raise Refused(400, "messages must be a list of messages.", kind="invalid_request_error")
        head, tail = template_pieces(self.confounds.template_len)
        pieces = list(head)
        for position, message in enumerate(messages):
            if not isinstance(message, dict):
                raise Refused(400, "a message must be an object.", kind="invalid_request_error")
            if position:
                pieces.append("\n")
            pieces += self.engine.tokenizer.pieces(_message_text(message.get("content")))
        return pieces + tail


def _message_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
    return ""
