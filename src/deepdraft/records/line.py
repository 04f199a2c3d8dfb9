"""The lines of a results file. Each is one JSON object with `kind` and `schema_version`; a file begins with a header.

header        what was asked, of which server, from where
measurement   one request, written as soon as it ended (warm-ups and failures too)
trial         one repeat of one point: what surrounds its requests
reported      a point that somebody else measured: figures without the requests behind them
refusal       a point that was not sent, and why
note          something a reader should know: a wait, a retry, a repair
end           how the sweep ended; absent after a crash
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from deepdraft.records.capability import Capabilities
from deepdraft.records.reported import Reported, Source
from deepdraft.records.schema_version import SCHEMA_VERSION
from deepdraft.records.server import Acceptance, ServerReading
from deepdraft.records.spec import SweepSpec
from deepdraft.records.trace import RequestTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """The first line: everything that holds for the whole file."""

    kind: Literal["header"] = "header"
    schema_version: int = SCHEMA_VERSION
    run_id: str
    created_at: str
    """UTC, ISO 8601."""
    deepdraft_version: str
    command_line: tuple[str, ...]
    """As typed, secrets removed."""
    spec: SweepSpec
    capabilities: Capabilities
    environment: dict[str, Any] = field(default_factory=dict)
    """The client's machine: Python, platform, cores, versions."""
    source: Source | None = None
    """Where the points come from when they were not measured by this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFacts:
    """What is known of a prompt without keeping its text (it can be made again from the seed)."""

    asked_len: int
    """Tokens the point asks for, chat template included."""
    expected_len: int | None = None
    """Tokens we expect the server to count."""
    count_source: str | None = None
    """Who counted: "token ids", "server tokenize endpoint", "local tokenizer", "usage probes"."""
    overhead_len: int | None = None
    """Tokens the server adds by itself (chat template, BOS): shared by all prompts, so a cache may hold them."""
    text_kind: str = "prose"
    is_repetitive: bool = False
    is_random: bool = False
    form: str = "text"
    """text or ids"""
    head: str | None = None
    """The unique leading words."""
    sha256: str | None = None
    needle: str | None = None
    """The hidden word, when there is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdStep:
    """One thing done so that a request finds nothing cached."""

    means: str
    """unique_head, flush, cache_salt, cache_prompt"""
    is_done: bool
    evidence: str
    """The server's answer, or what was sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a request gave no figures."""

    name: str
    """The class of the error: HttpStatus, ErrorInStream, StreamEndedEarly, Stalled, EmptyStream, Unreachable ..."""
    message: str
    http_status: int | None = None
    retry_after_s: float | None = None
    """What the server asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One request: what was sent, and what came back."""

    kind: Literal["measurement"] = "measurement"
    schema_version: int = SCHEMA_VERSION
    trial_id: str
    request_index: int = 0
    """Which request of the trial."""
    attempt: int = 0
    """0 for the first; a retry counts up."""
    role: Literal["single", "first", "second"] = "single"
    """first and second are the two requests of the two-point method (1 token, and 1 + M)."""
    is_warmup: bool = False
    started_at_s: float
    """Seconds from the sweep's start to sent."""
    scheduled_at_s: float | None = None
    """When an open-loop schedule wanted it sent."""
    max_tokens: int
    prompt: PromptFacts
    trace: RequestTrace
    failure: Failure | None = None
    acceptance: Acceptance | None = None
    needle_found: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One repeat of one point, written after its requests; a trial without this line was cut short."""

    kind: Literal["trial"] = "trial"
    schema_version: int = SCHEMA_VERSION
    trial_id: str
    context_len: int
    """As asked."""
    concurrency: int
    repeat_index: int
    is_warmup: bool = False
    started_at_s: float
    ended_at_s: float
    cold_steps: tuple[ColdStep, ...] = ()
    before: ServerReading | None = None
    after: ServerReading | None = None
    during: tuple[ServerReading, ...] = ()
    acceptance: Acceptance | None = None
    """Of the whole trial, from counters around it."""
    num_probe_requests: int = 0
    """Requests of our own between the two readings that are not measurements."""
    loop_lag_max_s: float | None = None
    """How late the client's event loop ran, at worst, while requests were in flight."""
    loop_lag_p99_s: float | None = None
    client_cpu_s: float | None = None
    """CPU time of the client over the trial."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A point that was not sent."""

    kind: Literal["refusal"] = "refusal"
    schema_version: int = SCHEMA_VERSION
    context_len: int
    concurrency: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something a reader of the file should know."""

    kind: Literal["note"] = "note"
    schema_version: int = SCHEMA_VERSION
    at_s: float
    topic: str
    """health, wait, retry, resume, repair, calibration, flush"""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """How the sweep ended."""

    kind: Literal["end"] = "end"
    schema_version: int = SCHEMA_VERSION
    at_s: float
    outcome: Literal["complete", "interrupted", "server_lost"]
    message: str | None = None


Line = Header | Measurement | Trial | Reported | Refusal | Note | End
