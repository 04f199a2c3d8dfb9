"""The engine's settings: read once at the edge, then frozen. Turning shares of memory into a pool is done here.

How much memory there is, is read in `memory`; what a token's KV takes, is `cost.kv`'s formula.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.errors import UsageError
from deepdraft.infer.control.decision import SPECULATION_MODES, SpeculationMode

DEFAULT_PAGE_SIZE = 16
"""Tokens a page. Small pages share more of a prefix and waste less (half a page a request), large ones make shorter
page lists. Measured with the embedded model at 8k: a decode step takes half as long again with pages of 1 as with 16,
and 4 % less with 64."""

DEFAULT_CHUNK_LEN = 2048
"""Prompt tokens of one prefill pass: how long a running request may have to wait for its next token. Measured with
the embedded model on 8k: prefill takes 15 % longer with chunks of 512, 8 % with 1024, and 5 % less with 4096."""

DEFAULT_MAX_RUNNING_REQUESTS = 16

DEFAULT_MEM_FRACTION = 0.25
"""Of the memory that is left after the weights: a computer that people work on keeps most of it."""

DEFAULT_NUM_CONTEXTS = 4
"""Without a stated fraction or pool, the pool is no larger than this many full contexts."""

DEFRAGMENT_MAX_PAGES = 64
"""Pages that defragmentation moves between two steps at most, so that no step waits long for it."""

DEFAULT_TREE_BUDGET = 16
DEFAULT_TREE_TOP_K = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Every field as it takes effect: /server_info shows them as they are."""

    max_context_len: int
    """Prompt and output tokens of one request."""
    kv_pool_tokens: int
    """A multiple of page_size. Independent of max_context_len: a request must fit both."""
    page_size: int = DEFAULT_PAGE_SIZE
    chunk_len: int = DEFAULT_CHUNK_LEN
    """Rows of one prefill pass at most."""
    max_running_requests: int = DEFAULT_MAX_RUNNING_REQUESTS
    attention_backend: str = "torch"
    """As in `kernels.select`; `deepdraft serve` takes native where it was built."""
    kv_dtype: str = "float32"
    """As torch names it."""
    device: str = "cpu"
    has_radix_cache: bool = True
    is_checked: bool = False
    """Check the engine's laws after every step (`--check`)."""
    max_step_records: int = 4096
    defragment: bool = False
    """Between two steps, put pages of running requests that lie apart side by side. Output isn't affected."""

    def __post_init__(self) -> None:
        """Raises UsageError for a number below 1, or a pool with part of a page."""
        for name in ("max_context_len", "kv_pool_tokens", "page_size", "chunk_len", "max_running_requests"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be 1 or more: {getattr(self, name)}")
        if self.kv_pool_tokens % self.page_size:
            raise UsageError(f"a pool of {self.kv_pool_tokens} tokens isn't whole pages of {self.page_size}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeculationSettings:
    """When a drafter drafts, and how its proposals become trees. Output doesn't depend on it, unless acceptance is
    simulated."""

    mode: SpeculationMode = "always"
    """auto: where it pays. `deepdraft serve` takes auto, unless acceptance is simulated."""
    tree_budget: int = DEFAULT_TREE_BUDGET
    """Nodes of a tree at most, the root not counted; in auto as many of them are verified as are worth it."""
    tree_top_k: int = DEFAULT_TREE_TOP_K
    """Candidates of each depth; 1: a chain."""
    is_spine_first: bool = False
    """The likeliest chain goes into the tree before anything else."""
    simulate_acceptance_len: float | None = None
    """Tokens that rounds commit on average, whatever the target says: output has NO meaning then. It tells what the
    kernels cost at an acceptance length, apart from the quality of a drafter. None: the target decides."""

    def __post_init__(self) -> None:
        """Raises UsageError for numbers out of range. Whether the simulated length can be reached depends on the
        drafter: `speculation.Speculator` checks that."""
        if self.mode not in SPECULATION_MODES:
            raise UsageError(f"--speculation {self.mode}: not one of {', '.join(SPECULATION_MODES)}")
        for name in ("tree_budget", "tree_top_k"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be 1 or more: {getattr(self, name)}")
        if self.simulate_acceptance_len is not None and self.simulate_acceptance_len < 1:
            raise UsageError(
                f"an acceptance length of {self.simulate_acceptance_len:g} can't be: each round commits a token",
                hint="--simulate-acceptance-len is 1.0 or more",
            )
