"""What was asked of the engine, and what it hands back. How far a request is inside the engine is `scheduler`'s."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from deepdraft.infer.control.decision import Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen and when to stop."""

    max_tokens: int
    min_tokens: int = 0
    """No end by EOS or a stop string before this many."""
    temperature: float = 1.0
    """0: greedy."""
    top_p: float = 1.0
    top_k: int | None = None
    presence_penalty: float = 0.0
    """Taken off the logit of every token that the output has already (OpenAI)."""
    frequency_penalty: float = 0.0
    """Taken off the logit of a token once for each time that the output has it (OpenAI)."""
    repetition_penalty: float = 1.0
    """Above 0: divides positive and multiplies other logits of tokens that the prompt or the output has (CTRL, Keskar
    et al., arXiv 1909.05858)."""
    seed: int | None = None
    """The random number of a token depends on the seed and the token's position alone, so a request gives the same
    output whatever shares its batch, and after preemption. None: a seed drawn for the request."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    num_logprobs: int | None = None
    """None: none; 0: of the chosen token; n: of the n likeliest as well."""

    @property
    def has_penalties(self) -> bool:
        """Whether the tokens ahead of one change how likely it is beyond what the model says."""
        return self.presence_penalty != 0 or self.frequency_penalty != 0 or self.repetition_penalty != 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt, already in tokens."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """A chosen token and how likely the model held it (natural logarithm, before temperature and filters)."""

    token_id: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()
    """(token id, logprob), likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpeculation:
    """What drafting did for one request so far. Seconds are its share, by rows, of all its decode and verify steps;
    the five of them sum up to that share."""

    num_rounds: int = 0
    """Verify steps with drafts of this request."""
    num_draft_tokens: int = 0
    """Nodes of its trees, roots not counted."""
    accepted_len_histogram: tuple[int, ...] = ()
    """Rounds by accepted_len, from 0 to the greatest there was."""
    is_simulated: bool = False
    """Acceptance was dictated: the output has no meaning."""
    draft_s: float = 0.0
    """Of the drafter: its own passes, and taking in what the target's passes computed."""
    build_s: float = 0.0
    """Of building trees and making room for them."""
    verify_s: float = 0.0
    """Of the target's passes, those with one plain decode row included."""
    compact_s: float = 0.0
    """Of moving accepted rows together."""
    other_s: float = 0.0
    """Of scheduling, sampling, committing and what lies between."""
    rounds_by_reason: Mapping[Reason, int] = field(default_factory=dict)
    """Rounds by why they were made."""
    plain_steps_by_reason: Mapping[Reason, int] = field(default_factory=dict)
    """Its other steps since the first token, by why nothing was drafted or verified."""
    num_weighed_steps: int = 0
    """Steps, of both kinds, at which drafting was weighed against plain decoding."""
    break_even_len_sum: float = 0.0
    """Over these: tokens that a round would have had to commit to be as fast as plain steps."""
    expected_len_sum: float = 0.0
    """And that it was expected to commit."""

    @property
    def break_even_len(self) -> float | None:
        """Tokens a round would have had to commit, on average over the steps where that was weighed; None: never."""
        return self.break_even_len_sum / self.num_weighed_steps if self.num_weighed_steps else None

    @property
    def expected_len(self) -> float | None:
        """And was expected to."""
        return self.expected_len_sum / self.num_weighed_steps if self.num_weighed_steps else None

    @property
    def num_accepted_tokens(self) -> int:
        """Draft tokens that the target agreed with, those behind the end of the request included."""
        return sum(accepted_len * count for accepted_len, count in enumerate(self.accepted_len_histogram))


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step brought to one request."""

    request_id: str
    token_ids: tuple[int, ...]
    text: str
    """Whole characters only; what could still become a stop string is held back until it can't."""
    logprobs: tuple[TokenLogprob, ...]
    """As many as token_ids, or none."""
    finish_reason: str | None
    """None: more follows; stop (EOS or a stop string), length (max_tokens), or abort."""
    num_prompt_tokens: int
    num_cached_tokens: int
    """Prompt tokens that needed no prefill because the radix cache had them, at the request's first admission."""
    num_output_tokens: int
    """In all, this step included."""
    queue_s: float | None = None
    """From submit to the first admission; None: never admitted (aborted in the queue)."""
    speculation: RequestSpeculation | None = None
    """This step included; None: the engine has no drafter."""
