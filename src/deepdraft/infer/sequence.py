"""How far one request is: its tokens, where their KV rows are, and the text that went out. And its part of a pass.

Data with the rules that follow from it; what happens to a sequence is decided by `scheduler`, `commit` and `engine`.

The law of the cache: before a decode step the pool holds every token but the last, which was chosen but not yet run
(a drafter's bonus token). So a sequence that comes back after preemption is prefilled up to its last token, and goes
on decoding as if nothing had happened; only a sequence without output samples from its prefill.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from torch import Tensor

from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.radix import RadixNode
from deepdraft.infer.request import Request, RequestSpeculation
from deepdraft.infer.tokenizer.detokenizer import Detokenizer


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """One request in the engine, from submit to its last Output."""

    request: Request
    arrival_index: int
    """Requests submitted before it."""
    seed: int
    end_token_ids: frozenset[int]
    """Tokens that end it: EOS unless ignored, and the request's own stop_token_ids."""
    token_ids: list[int]
    """Prompt, then output."""
    page_table: PageTable
    """Its num_tokens is how many of token_ids are in the pool."""
    detokenizer: Detokenizer
    node: RadixNode | None = None
    """Locked in the radix cache while the sequence runs; None: nothing is shared."""
    num_shared_pages: int = 0
    """The first pages of the page table are the radix cache's; the rest are held by this sequence alone."""
    num_cached_tokens: int | None = None
    """Prompt tokens found in the radix cache at the first admission; None before it."""
    submitted_s: float = field(default_factory=time.monotonic)
    queue_s: float | None = None
    """From submit to the first admission; None before it."""
    speculation: RequestSpeculation | None = None
    """What drafting did for it so far; None: the engine has no drafter."""
    distinct_prompt_ids: frozenset[int] = frozenset()
    """Made once for a request with penalties; empty for others, where nothing reads it."""

    @property
    def num_output_tokens(self) -> int:
        """Tokens committed so far."""
        return len(self.token_ids) - len(self.request.prompt_token_ids)

    @property
    def has_output(self) -> bool:
        """Whether its prefill has ever ended."""
        return self.num_output_tokens > 0

    @property
    def prefill_len(self) -> int:
        """Tokens that must be in the pool before it can decode."""
        return len(self.token_ids) - 1 if self.has_output else len(self.token_ids)

    @property
    def can_decode(self) -> bool:
        """Whether its next row is a decode step's. Asked of running sequences only."""
        return self.has_output and self.page_table.num_tokens == len(self.token_ids) - 1

    @property
    def num_private_pages(self) -> int:
        """Pages held by this sequence alone."""
        return len(self.page_table.pages) - self.num_shared_pages

    @property
    def max_draft_len(self) -> int:
        """Drafts there is use for: the token after the last of them may be the last one of the request."""
        return self.request.sampling.max_tokens - self.num_output_tokens - 1

    def blocked_token_ids(self, num_ahead: int = 0) -> tuple[int, ...]:
        """Tokens that must not be chosen `num_ahead` tokens after the last one committed: the ends, until there are
        min_tokens."""
        if self.num_output_tokens + num_ahead >= self.request.sampling.min_tokens:
            return ()
        return tuple(sorted(self.end_token_ids))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A sequence's rows in one forward pass: tokens that follow those in the pool. The page table has room for them.

    A prompt chunk, one decode row, or a bonus token followed by drafts: a chain without `tail_mask` and `depths`, a
    tree with both.
    """

    sequence: Sequence
    token_ids: tuple[int, ...]
    num_logit_rows: int
    """The last rows, whose logits are wanted: 0 inside a prompt, 1 at its end or in decode, all to verify."""
    tail_mask: Tensor | None = None
    """bool [q, q] over the q rows; None: causal."""
    depths: tuple[int, ...] | None = None
    """Of each row below the first, which is 0: siblings share a position. None: 0, 1, 2, ..."""

    @property
    def start(self) -> int:
        """Position of the first row, and tokens in the pool before the pass."""
        return self.sequence.page_table.num_tokens

    @property
    def stop(self) -> int:
        """Tokens in the pool after the pass."""
        return self.start + len(self.token_ids)
