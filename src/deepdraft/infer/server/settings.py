"""What `deepdraft serve` was asked for: the command line's flags, read once. None: not said, the default is decided
when the model is known. Holds no torch, so that --help stays quick."""

from __future__ import annotations

from dataclasses import dataclass, field

from deepdraft.infer.control.decision import SpeculationMode

EMBEDDED = "embedded"
"""The model that ships with the package."""

NO_DRAFTER = "none"

DEFAULT_PORT = 8000
DEFAULT_MAX_QUEUED_REQUESTS = 128
DEFAULT_MAX_BODY_BYTES = 8 * 2**20
"""A prompt of a million characters as JSON, or of a million token ids."""
DEFAULT_DRAIN_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """One server."""

    model: str = EMBEDDED
    """`embedded`, a Hugging Face folder, or a GGUF file."""
    served_model_names: tuple[str, ...] = ()
    """Names that requests may use; the first is the one answers carry. Empty: the model's own."""
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    """0: any free one."""
    max_context_len: int | None = None
    """None: what the model is made for."""
    kv_pool_tokens: int | None = None
    mem_fraction: float | None = None
    """Share of the memory that is free after the weights, for the pool."""
    page_size: int | None = None
    chunk_len: int | None = None
    """Prompt tokens of one prefill pass."""
    max_running_requests: int | None = None
    max_queued_requests: int = DEFAULT_MAX_QUEUED_REQUESTS
    """Requests that may wait beside the running ones; more are answered 503."""
    attention_backend: str | None = None
    dtype: str | None = None
    """Of weights and computing, as torch names it."""
    num_threads: int | None = None
    """None: all but one of the cores there are, which is left to everything but the forward pass."""
    drafter: str = NO_DRAFTER
    """none, ngram, embedded, or the folder of a DFlash drafter."""
    tree_budget: int | None = None
    """Draft nodes of one verify step, the root apart."""
    tree_top_k: int | None = None
    """Candidates of each depth; 1: a chain."""
    is_spine_first: bool = False
    speculation: SpeculationMode | None = None
    """When to draft. None: auto; always where acceptance is simulated."""
    draft_window: int | None = None
    """Tokens of the context's end that the drafter sees. None: what its folder says."""
    draft_sink: int | None = None
    """And of its beginning."""
    simulate_acceptance_len: float | None = None
    """Tokens that a verify step commits on average, whatever the target says: for benchmarks alone."""
    defragment: bool = False
    has_radix_cache: bool = True
    is_checked: bool = False
    """Check the engine's laws after every step."""
    api_key: str | None = field(default=None, repr=False)
    max_body_bytes: int = DEFAULT_MAX_BODY_BYTES
    drain_timeout_s: float = DEFAULT_DRAIN_TIMEOUT_S
    """How long running requests may go on after SIGTERM."""
    log_level: str = "warning"
    ends_with_stdin: bool = False
    """End as soon as standard input closes: the parent that held it is gone."""
