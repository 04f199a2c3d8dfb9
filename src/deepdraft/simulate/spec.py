"""What the server of known truth is: four frozen dataclasses and the one that holds them.

    SimulateSpec
    ├── Physics      how long everything takes, how many tokens a step commits, how much fits
    ├── Confounds    what real servers do to mislead a measurement; everything off by default
    ├── Fault...     what goes wrong, on which requests
    └── Surface      model name, keys, base path, TLS, which optional endpoints exist

"dialect" as a value means: as the engine that is mimicked does it. Reading and writing JSON is here too; nothing
runs.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any, Literal, get_args, get_type_hints

import msgspec

from deepdraft.errors import UsageError

DialectName = Literal["openai", "sglang", "vllm", "llamacpp", "transformers"]
CachedTokensReport = Literal["dialect", "usage", "counters", "nothing", "zero"]
RoleChunk = Literal["dialect", "early", "with_first_token", "none"]
EventsPer = Literal["dialect", "step", "token"]
UsagePlacement = Literal["dialect", "own_chunk", "finish_chunk", "absent"]
UsageWhen = Literal["dialect", "asked", "always"]
UnknownFields = Literal["dialect", "ignored", "422", "400"]
Support = Literal["dialect", "yes", "no"]
FaultKind = Literal[
    "status",  # an HTTP error instead of a stream
    "stall",  # the request is never answered, not even with headers
    "stall_stream",  # headers and some tokens, then silence for ever
    "late",  # the first token comes `delay_s` late
    "cut",  # the connection closes in the stream, without a finish_reason
    "error_in_stream",  # HTTP 200, some tokens, then an error object
    "empty_stream",  # a proper stream without a single token
    "die",  # the whole server goes away
]
ErrorBody = Literal["dialect", "nested", "flat", "string", "bare_string", "detail", "html", "empty"]


@dataclass(frozen=True, kw_only=True)
class Physics:
    """How long everything takes and how much fits. All of it is the truth a client has to find.

    prefill of n uncached tokens behind p cached ones takes  a + b n + c ((p + n)^2 - p^2)  seconds: with nothing
    cached that is a + b n + c n^2, and every uncached token pays for attending over the cached ones.
    A step takes  d + e context_len  seconds, context_len being the tokens in the KV cache before the step (the token
    sampled last is not among them), times 1 + interference (r - 1) when r requests run.
    """

    prefill_a_s: float = 0.05
    prefill_b_s: float = 0.0
    prefill_c_s: float = 0.0
    step_d_s: float = 0.005
    step_e_s: float = 0.0
    committed_len_probs: tuple[float, ...] = (1.0,)
    """Chance of committing 1, 2, ... K tokens in a step; K - 1 is then the draft length."""
    committed_len_pattern: tuple[int, ...] = ()
    """Committed lengths, repeated in this order, instead of the chances."""
    noise_frac: float = 0.0
    """Standard deviation of every duration, as a fraction of it (cut off at three of them)."""
    interference: float = 0.0
    seed: int = 0
    kv_pool_tokens: int = 1_000_000
    max_context_len: int = 262_144
    page_size: int = 1
    max_running: int = 64
    """Requests that run at once; the others wait in the order they came."""

    def __post_init__(self) -> None:
        for name in (
            "prefill_a_s",
            "prefill_b_s",
            "prefill_c_s",
            "step_d_s",
            "step_e_s",
            "noise_frac",
            "interference",
        ):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise UsageError(f"physics.{name} must be zero or more, not {value}")
        for name in ("kv_pool_tokens", "max_context_len", "page_size", "max_running"):
            if getattr(self, name) < 1:
                raise UsageError(f"physics.{name} must be at least 1")
        probs = self.committed_len_probs
        if not probs or min(probs) < 0 or abs(sum(probs) - 1.0) > 1e-6:
            raise UsageError(
                f"physics.committed_len_probs must be chances that sum to 1, not {probs}",
                hint="0.2,0.3,0.5 means: 1 token in 20 % of the steps, 2 in 30 %, 3 in 50 %",
            )
        if any(length < 1 for length in self.committed_len_pattern):
            raise UsageError(
                "a step commits at least one token: physics.committed_len_pattern holds a smaller number"
            )

    @property
    def max_committed_len(self) -> int:
        """The most tokens one step can commit: draft length + 1."""
        return max(self.committed_len_pattern) if self.committed_len_pattern else len(self.committed_len_probs)

    @property
    def is_speculative(self) -> bool:
        """Whether a drafter is at work."""
        return self.max_committed_len > 1

    @property
    def mean_committed_len(self) -> float:
        """Expected committed tokens a step: the acceptance length before any truncation at the end."""
        if self.committed_len_pattern:
            return sum(self.committed_len_pattern) / len(self.committed_len_pattern)
        return sum(length * prob for length, prob in enumerate(self.committed_len_probs, start=1))

    @property
    def hard_limit_len(self) -> int:
        """The longest sequence that fits: the smaller of context limit and KV pool."""
        return min(self.max_context_len, self.kv_pool_tokens)


@dataclass(frozen=True, kw_only=True)
class Confounds:
    """What real servers do that misleads a measurement. Everything is off, or as the dialect does it, by default."""

    # --- prefix cache
    prefix_cache: bool = False
    """Reuse the KV of the longest cached prefix, in whole pages; one prompt token is always computed."""
    prefix_cache_capacity: int | None = None
    """Tokens the prefix cache holds; None: as many as the KV pool."""
    cached_tokens_report: CachedTokensReport = "dialect"
    """usage: in usage and counters; counters: in /metrics only; nothing: silent reuse; zero: says 0 and reuses."""
    flush: Literal["works", "refused", "ignored"] = "works"
    """refused: the flush is always answered with the busy refusal; ignored: says done, and the cache stays."""

    # --- events
    role_chunk: RoleChunk = "dialect"
    role_delay_s: float = 0.0
    """How long after the request an early role chunk comes."""
    ping_interval_s: float | None = None
    """An SSE comment after every such silence."""
    null_events: int = 0
    """Events with `content: null` before the first text, spread over the prefill."""
    empty_events: int = 0
    """Events with `content: ""` before the first text, after the null ones."""
    progress_events: int = 0
    """`prompt_progress` events, spread over the prefill."""
    reasoning_len: int = 0
    """Output tokens that are reasoning text, before the answer (chat only)."""
    reasoning_key: Literal["reasoning_content", "reasoning"] = "reasoning_content"
    only_reasoning: bool = False
    tool_calls: bool = False
    """The output comes as the arguments of a tool call (chat only)."""
    first_event_len: int = 1
    """Tokens that come with the first one, as if prefill had made them all."""
    events_per: EventsPer = "dialect"
    """step: all tokens of a step in one event; token: an event for each, in a burst."""
    stream_interval: int = 1
    """Tokens are held back until so many are pending."""
    usage_placement: UsagePlacement = "dialect"
    usage_when: UsageWhen = "dialect"
    """asked: only with stream_options.include_usage."""
    continuous_usage: Support = "dialect"
    token_ids: Support = "dialect"
    """Whether return_token_ids is understood."""
    trailing_pause_s: float = 0.0
    """Silence between the last token and what follows it: usage and [DONE]."""
    done: Literal["dialect", "sent", "missing"] = "dialect"

    # --- bytes
    line_end: Literal["lf", "crlf", "cr"] = "lf"
    no_data_space: bool = False
    """`data:{...}` instead of `data: {...}`."""
    split_writes: bool = False
    """Every write is cut at random bytes, also inside characters, into several chunks and several sends."""
    coalesce_events: int = 1
    """Events are held back until so many can go out in one write."""

    # --- text
    retokenise: bool = False
    """Each generated token is a word that the tokenizer, asked about the text, splits into three."""
    non_ascii: bool = False
    needle_wrong: bool = False
    """The question after the hidden fact is answered with another word."""

    # --- lengths
    eos_at: int | None = None
    """The model ends by itself after so many tokens, unless ignore_eos is asked."""
    eos_beats_ignore_eos: bool = False
    output_cap: int | None = None
    """No more than so many tokens are made, and finish_reason says "length" all the same."""
    truncate_prompt_to: int | None = None
    """Longer prompts lose their end silently; usage counts what is left."""
    template_len: int = 0
    """Tokens the chat template adds, most of them before the text."""
    usage_prompt_offset: int = 0
    """usage.prompt_tokens is wrong by so many."""
    accepted_past_end: bool = False
    """Acceptance counters include drafts beyond max_tokens, as some engines count them."""
    unknown_fields: UnknownFields = "dialect"

    # --- speed
    slow_first_requests: int = 0
    slow_first_s: float = 0.0
    """Extra prefill time of the first `slow_first_requests` requests."""
    drift_frac: float = 0.0
    """Each request is slower than the first by this fraction times its ordinal minus one (negative: faster)."""
    background_requests: int = 0
    """Other clients' requests that always run: seen in the metrics, taking no slot."""
    background_slowdown: float = 1.0
    """Factor on every duration while `background_requests` is not 0."""
    background_tok_s: float = 0.0
    """Rate at which the other clients' output tokens advance the counters."""
    first_token_delay_s: float = 0.0
    """Extra time before the first token of every request, in no formula."""

    # --- life
    loading_s: float = 0.0
    """After every start the server answers 503 for so long."""

    def __post_init__(self) -> None:
        for name in ("first_event_len", "stream_interval", "coalesce_events"):
            if getattr(self, name) < 1:
                raise UsageError(f"confounds.{name} must be at least 1")
        for name in ("eos_at", "output_cap", "truncate_prompt_to"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"confounds.{name} must be at least 1, or left out")
        for name in ("ping_interval_s", "background_slowdown"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise UsageError(f"confounds.{name} must be above 0")
        if self.drift_frac <= -1:
            raise UsageError("confounds.drift_frac must be above -1")


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong, and on which requests.

    A fault looks at the generation requests whose prompt has at least `min_prompt_len` tokens (with scope "all": at
    every request to any route) and counts them from 1. It strikes at the ordinals in `at` and at every `every`-th;
    with neither given, always. The first fault of the list that strikes is the one that happens.
    """

    kind: FaultKind
    at: tuple[int, ...] = ()
    every: int | None = None
    min_prompt_len: int = 0
    scope: Literal["generate", "all"] = "generate"
    after_tokens: int = 4
    """stall_stream, cut, error_in_stream, die: output tokens sent before it."""
    status: int = 500
    body: ErrorBody = "dialect"
    message: str = "The engine has failed."
    retry_after_s: int | None = None
    delay_s: float = 1.0
    """late: how late; empty_stream: no effect."""
    die_by: Literal["close", "exit"] = "close"
    """die: close listening socket and connections, or end the process at once."""
    restart_after_s: float | None = None
    """die by close: listen again, on the same port, after so long; None: never."""

    def __post_init__(self) -> None:
        if self.every is not None and self.every < 1:
            raise UsageError(f"fault {self.kind}: every must be at least 1")
        if any(ordinal < 1 for ordinal in self.at):
            raise UsageError(f"fault {self.kind}: requests are counted from 1")
        if self.scope == "all" and self.kind not in ("status", "stall", "die"):
            raise UsageError(f"fault {self.kind} can't strike every route", hint="leave scope out")
        if not 400 <= self.status <= 599 and not (self.body == "html" and self.status == 200):
            raise UsageError(f"fault {self.kind}: {self.status} is no error status")

    def strikes(self, ordinal: int) -> bool:
        """Whether it strikes at this request, counted from 1 among those it looks at."""
        if not self.at and self.every is None:
            return True
        return ordinal in self.at or (self.every is not None and ordinal % self.every == 0)


@dataclass(frozen=True, kw_only=True)
class Surface:
    """What the server shows: names, keys, paths, and which optional endpoints exist."""

    model: str = "sim"
    base_path: str = ""
    """Put before every route, e.g. "/prefix"; the routes under it are unchanged."""
    api_key: str | None = None
    admin_key: str | None = None
    """sglang: what the flush wants instead of the API key."""
    certfile: str | None = None
    keyfile: str | None = None
    metrics: bool = True
    """Whether /metrics exists."""
    tokenize: bool = True
    """Whether the dialect's tokenize endpoint exists."""
    slots: bool = True
    """llamacpp: whether /slots exists."""
    dev_mode: bool = False
    """vllm: whether /reset_prefix_cache and /server_info exist."""
    per_request_metrics: bool = False
    """vllm: whether usage chunks carry `metrics`."""
    spec_decode_metrics: Literal["none", "summary", "detailed"] = "none"
    """vllm: what `metrics.speculative_decoding` holds."""
    decode_log_interval: int = 40
    """sglang: decode steps between two updates of its speculation figures."""
    health_delay_s: float = 0.0
    """How long /health takes to answer."""
    keep_alive_s: float | None = None
    """Idle connections are closed after so long, as most servers do after 5 s; None: never."""

    def __post_init__(self) -> None:
        if self.base_path and (not self.base_path.startswith("/") or self.base_path.endswith("/")):
            raise UsageError(f"surface.base_path must look like /prefix, not {self.base_path!r}")
        if self.keyfile and not self.certfile:
            raise UsageError("surface.keyfile without surface.certfile")
        if self.keep_alive_s is not None and self.keep_alive_s <= 0:
            raise UsageError("surface.keep_alive_s must be above 0")
        if self.decode_log_interval < 1:
            raise UsageError("surface.decode_log_interval must be at least 1")


@dataclass(frozen=True, kw_only=True)
class SimulateSpec:
    """Everything about one server of known truth. Port 0: any free one."""

    dialect: DialectName = "openai"
    host: str = "127.0.0.1"
    port: int = 0
    physics: Physics = field(default_factory=Physics)
    confounds: Confounds = field(default_factory=Confounds)
    faults: tuple[Fault, ...] = ()
    surface: Surface = field(default_factory=Surface)


DIALECTS: tuple[DialectName, ...] = get_args(DialectName)


def spec_json(spec: SimulateSpec) -> bytes:
    """The spec as one line of JSON."""
    return msgspec.json.encode(spec)


def spec_from_json(text: str | bytes) -> SimulateSpec:
    """Read what `spec_json` writes. Fields left out take their defaults.

    Raises UsageError, with the path of the field, for malformed JSON, wrong types and unknown names.
    """
    try:
        raw = msgspec.json.decode(text)
        _refuse_unknown(raw, SimulateSpec, "spec")
        return msgspec.convert(raw, SimulateSpec)
    except msgspec.MsgspecError as error:
        raise UsageError(f"not a spec of a simulated server: {error}") from error


def _refuse_unknown(raw: Any, kind: type, path: str) -> None:
    """Raise UsageError for the first key in `raw` that the dataclass `kind` doesn't have."""
    if not isinstance(raw, dict):
        return
    names = {each.name for each in dataclasses.fields(kind)}
    for key, value in raw.items():
        if key not in names:
            raise UsageError(f"unknown field {path}.{key}", hint=f"known: {', '.join(sorted(names))}")
        hint = get_type_hints(kind)[key]
        if dataclasses.is_dataclass(hint) and isinstance(hint, type):
            _refuse_unknown(value, hint, f"{path}.{key}")
        elif key == "faults" and isinstance(value, list):
            for position, each in enumerate(value):
                _refuse_unknown(each, Fault, f"{path}.faults[{position}]")
