"""What a generating route was asked for, and how far the answer is: what `answering` works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from deepdraft.infer.request import Output, RequestSpeculation, SamplingParams, TokenLogprob
from deepdraft.infer.server.drafting import usage_fields
from deepdraft.infer.server.prompt import Prompt

Json = dict[str, Any]


@dataclass(slots=True, kw_only=True)
class Choice:
    """One answer to one prompt, as far as it is."""

    index: int
    prompt: Prompt
    is_first_of_prompt: bool
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    speculation: RequestSpeculation | None = None
    """So far; None without a drafter."""
    logprob_offset: int = 0
    """Characters of the tokens whose log probabilities were given already; counted by /v1/completions."""

    def count(self, output: Output) -> None:
        """Note what both kinds of answers need at the end."""
        self.num_cached_tokens = output.num_cached_tokens
        self.num_output_tokens = output.num_output_tokens
        self.finish_reason = output.finish_reason
        self.speculation = output.speculation

    def keep(self, output: Output) -> None:
        """Keep what came for an answer in one piece."""
        self.texts.append(output.text)
        self.token_ids += output.token_ids
        self.logprobs += output.logprobs


class Form(Protocol):
    """How a route shapes its answers. `logprobs` come only where they were asked for."""

    @property
    def id_prefix(self) -> str:
        """Of the answer's id."""

    @property
    def prompt_field(self) -> str:
        """The body's field that holds the prompt."""

    def object_name(self, *, is_stream: bool) -> str:
        """The answer's `object`."""

    def opening(self, choice: Choice) -> Json | None:
        """A stream's choice before its first token, sent together with it."""

    def piece(self, choice: Choice, output: Output) -> Json:
        """What one step brought, in a stream."""

    def closing(self, choice: Choice) -> Json:
        """The end of a choice in a stream."""

    def whole(self, choice: Choice) -> Json:
        """A choice that is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What was asked for, checked but for the prompts."""

    form: Form
    num_prompts: int
    num_choices: int
    """Of each prompt."""
    prompts: Callable[[], Sequence[Prompt]]
    """Takes long: called in a thread."""
    sampling: SamplingParams
    default_max_tokens: int | None
    """None: as many as context and pool have room for."""
    is_stream: bool
    wants_usage: bool
    wants_continuous_usage: bool
    wants_token_ids: bool


def usage(choices: Sequence[Choice]) -> Json:
    """Tokens of the whole answer so far, and with a drafter what drafting did for it. A prompt with several choices
    counts once, and as cached is what its first choice found in the cache."""
    drafted = [choice.speculation for choice in choices if choice.speculation is not None]
    firsts = [choice for choice in choices if choice.is_first_of_prompt]
    num_prompt_tokens = sum(len(choice.prompt.token_ids) for choice in firsts)
    num_output_tokens = sum(choice.num_output_tokens for choice in choices)
    return {
        "prompt_tokens": num_prompt_tokens,
        "completion_tokens": num_output_tokens,
        "total_tokens": num_prompt_tokens + num_output_tokens,
        "prompt_tokens_details": {"cached_tokens": sum(choice.num_cached_tokens for choice in firsts)},
        **usage_fields(drafted),
    }
