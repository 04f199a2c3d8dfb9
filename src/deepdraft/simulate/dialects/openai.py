"""The dialect of a plain OpenAI-compatible server, and what the other dialects change of it.

A dialect reads bodies into `Ask`s, refuses what its engine would refuse in its own words, and shapes tokens into
events. It holds no state of requests and never waits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from email.utils import formatdate
from typing import Any, ClassVar

from deepdraft.simulate.ask import Ask, Refused, Shape
from deepdraft.simulate.dialects.answer import Answer, Endpoint, Query, json_answer, text_answer
from deepdraft.simulate.engine import Engine, Generation, Token
from deepdraft.simulate.spec import EventsPer, RoleChunk, SimulateSpec, UnknownFields, UsagePlacement, UsageWhen
from deepdraft.simulate.text import template_pieces
from deepdraft.simulate.truth import TokenKind

Event = dict[str, Any]


class OpenAiDialect:
    """Plain OpenAI: nested errors, usage in its own chunk when asked, a finish chunk with an empty delta."""

    owned_by: ClassVar[str] = "openai"
    server_header: ClassVar[str] = "deepdraft-simulate"
    stream_content_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    takes_token_ids: ClassVar[bool] = True
    default_completion_tokens: ClassVar[int | None] = 16
    public_paths: ClassVar[frozenset[str]] = frozenset({"/health"})
    """Paths that need no key."""

    def __init__(self, spec: SimulateSpec, engine: Engine) -> None:
        self.spec = spec
        self.engine = engine
        self.physics = spec.physics
        self.confounds = spec.confounds
        self.surface = spec.surface

    # --- endpoints

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

    # --- what is refused, and how it is said

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

    def key_for(self, path: str) -> str | None:
        """The key a path wants; None: none."""
        return None if path in self.public_paths else self.surface.api_key

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

    # --- reading a request

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

    # --- what a stream is like

    @property
    def has_continuous_usage(self) -> bool:
        """Whether continuous_usage_stats is understood."""
        return self._supported(self.confounds.continuous_usage, self.default_continuous_usage)

    @property
    def has_token_ids(self) -> bool:
        """Whether return_token_ids is understood."""
        return self._supported(self.confounds.token_ids, self.default_token_ids)

    @staticmethod
    def _supported(switch: str, default: bool) -> bool:
        return default if switch == "dialect" else switch == "yes"

    default_unknown_fields: ClassVar[UnknownFields] = "ignored"
    default_continuous_usage: ClassVar[bool] = False
    default_token_ids: ClassVar[bool] = False
    default_role_chunk: ClassVar[RoleChunk] = "with_first_token"
    default_events_per: ClassVar[EventsPer] = "step"
    finish_rides_on_text: ClassVar[frozenset[Shape]] = frozenset()
    """Shapes whose last text event carries the finish_reason."""
    reports_cached_tokens: ClassVar[bool] = True
    """Whether usage has cached tokens unless told otherwise."""

    def sends_done(self, shape: Shape) -> bool:
        """Whether [DONE] ends a stream unless told otherwise."""
        return True

    def usage_placement(self, shape: Shape) -> UsagePlacement:
        """Where usage goes unless told otherwise."""
        return "own_chunk"

    def usage_when(self, shape: Shape) -> UsageWhen:
        """When usage is given unless told otherwise."""
        return "asked"

    def shows_cached_in_usage(self) -> bool:
        """Whether usage tells of cached tokens."""
        report = self.confounds.cached_tokens_report
        return self.reports_cached_tokens if report == "dialect" else report in ("usage", "zero")

    def shows_cached_in_counters(self) -> bool:
        """Whether the metrics tell of cached tokens."""
        return self.confounds.cached_tokens_report != "nothing"

    def shown_cached(self, num_tokens: int) -> int:
        """Cached tokens as the server says them."""
        return 0 if self.confounds.cached_tokens_report == "zero" else num_tokens

    def common_headers(self) -> list[tuple[str, str]]:
        """Headers of every answer, in front of the others."""
        return [("date", formatdate(usegmt=True)), ("server", self.server_header)]

    def stream_headers(self, generation: Generation) -> list[tuple[str, str]]:
        """Headers of a streamed answer, after the common ones."""
        return [("content-type", self.stream_content_type), ("x-request-id", generation.truth.request_id)]

    # --- events; `usage` in each is put in where given

    def usage(self, generation: Generation, num_tokens: int, *, is_final: bool = True) -> Event:
        """The usage object after `num_tokens` output tokens."""
        prompt_tokens = generation.prompt_len + self.confounds.usage_prompt_offset
        content: Event = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": num_tokens,
            "total_tokens": prompt_tokens + num_tokens,
        }
        if is_final and self.shows_cached_in_usage():
            content["prompt_tokens_details"] = {"cached_tokens": self.shown_cached(generation.cached_len)}
        num_reasoning = sum(1 for token in generation.output[:num_tokens] if token.kind == "reasoning")
        if is_final and num_reasoning:
            content["completion_tokens_details"] = {"reasoning_tokens": num_reasoning}
        return content

    def head(self, generation: Generation) -> Event:
        """The fields every event of a stream has."""
        is_chat = generation.ask.shape == "chat"
        return {
            "id": ("chatcmpl-" if is_chat else "cmpl-") + generation.truth.request_id,
            "object": "chat.completion.chunk" if is_chat else "text_completion",
            "created": int(generation.created_s),
            "model": self.surface.model,
        }

    def choice(self, generation: Generation, content: Event, finish_reason: str | None, is_token: bool) -> Event:
        """A choice around a delta (chat) or text (completions)."""
        return {"index": 0, **content, "logprobs": None, "finish_reason": finish_reason}

    def role_event(self, generation: Generation) -> Event:
        """The chunk that holds only the role."""
        return self._event(generation, {"delta": {"role": "assistant", "content": ""}})

    def empty_event(self, generation: Generation, content: str | None) -> Event:
        """A chunk without text: content null or ""."""
        if generation.ask.shape == "chat":
            return self._event(generation, {"delta": {"content": content}})
        return self._event(generation, {"text": content})

    def progress_event(self, generation: Generation, processed: int, elapsed_s: float) -> Event:
        """A chunk that tells how much of the prompt is done."""
        event = self.empty_event(generation, "")
        event["prompt_progress"] = {
            "total": generation.prompt_len,
            "cache": self.shown_cached(generation.cached_len),
            "processed": processed,
            "time_ms": int(elapsed_s * 1000),
        }
        return event

    def text_event(
        self,
        generation: Generation,
        tokens: Sequence[Token],
        num_sent: int,
        finish_reason: str | None,
    ) -> Event:
        """Tokens of one kind; `num_sent` is how many were sent before them."""
        text = "".join(token.text for token in tokens)
        if generation.ask.shape == "chat":
            is_first_tool = num_sent == 0 or generation.output[num_sent - 1].kind != "tool"
            content: Event = {"delta": self.delta(tokens[0].kind, text, is_first_tool)}
        else:
            content = {"text": text}
        event = self._event(generation, content, finish_reason, is_token=True)
        if generation.ask.wants_token_ids:
            choice = event["choices"][0]
            choice["token_ids"] = [token.token_id for token in tokens]
            if num_sent == 0:
                choice["prompt_token_ids"] = generation.ask.prompt_ids
        if generation.ask.wants_continuous_usage:
            event["usage"] = self.usage(generation, num_sent + len(tokens), is_final=False)
        return event

    def delta(self, kind: TokenKind, text: str, is_first_tool: bool) -> Event:
        """The delta of a chat chunk."""
        if kind == "reasoning":
            return {self.confounds.reasoning_key: text}
        if kind == "tool":
            call: Event = {"index": 0, "function": {"arguments": text}}
            if is_first_tool:
                call |= {"id": "call_0", "type": "function"}
                call["function"] = {"name": "answer", "arguments": text}
            return {"tool_calls": [call]}
        return {"content": text}

    def finish_event(self, generation: Generation, usage: Event | None) -> Event:
        """The chunk with the finish_reason and no text."""
        content: Event = {"delta": {}} if generation.ask.shape == "chat" else {"text": ""}
        event = self._event(generation, content, self.finish_reason(generation))
        if usage is not None:
            event["usage"] = usage
        return event

    def usage_event(self, generation: Generation, usage: Event) -> Event:
        """The chunk without choices."""
        return {**self.head(generation), "choices": [], "usage": usage}

    def before_usage_events(self, generation: Generation) -> list[Event]:
        """Chunks between the finish and the usage that the request asked for."""
        return []

    def finish_reason(self, generation: Generation) -> str:
        """As the response says it."""
        if generation.finish_reason == "stop" and generation.output[-1].kind == "tool":
            return "tool_calls"
        return generation.finish_reason

    def _event(
        self, generation: Generation, content: Event, finish_reason: str | None = None, *, is_token: bool = False
    ) -> Event:
        return {
            **self.head(generation),
            "choices": [self.choice(generation, content, finish_reason, is_token)],
        }

    # --- answers that are no streams

    def full_answer(self, generation: Generation, usage: Event | None) -> Event:
        """The whole answer at once."""
        by_kind: dict[TokenKind, str] = {"reasoning": "", "content": "", "tool": ""}
        for token in generation.output:
            by_kind[token.kind] += token.text
        if generation.ask.shape == "chat":
            message: Event = {"role": "assistant", "content": by_kind["content"] or None}
            if by_kind["reasoning"]:
                message[self.confounds.reasoning_key] = by_kind["reasoning"]
            if by_kind["tool"]:
                message["tool_calls"] = self.delta("tool", by_kind["tool"], True)["tool_calls"]
            content: Event = {"message": message}
        else:
            content = {"text": by_kind["content"]}
        event = self._event(generation, content, self.finish_reason(generation), is_token=True)
        if generation.ask.shape == "chat":
            event["object"] = "chat.completion"
        if usage is not None:
            event["usage"] = usage
        return event


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


def _error_kind(status: int) -> str:
    return "invalid_request_error" if status < 500 else "server_error"


def _message_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, Mapping))
    return ""
