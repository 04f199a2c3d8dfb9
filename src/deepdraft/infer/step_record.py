"""What each forward pass of the engine did, and how long it took: a bounded log, and totals that never forget.

Only measured figures are stored; rates and averages follow from them. Nothing is printed or exported here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

StepKind = Literal["prefill", "decode", "verify"]
"""The three kinds of forward pass: prompt chunks; one token a request; drafts to check beside that token."""

STEP_KINDS: tuple[StepKind, ...] = get_args(StepKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step. The four parts of `seconds` leave out only the bookkeeping between them."""

    kind: StepKind
    started_s: float
    """time.monotonic() when scheduling began."""
    seconds: float
    schedule_s: float
    forward_s: float
    sample_s: float
    commit_s: float
    context_lens: tuple[int, ...]
    """Per request: tokens in its KV cache before this step, those of the radix cache included."""
    num_tokens: int
    """Rows of the forward pass."""
    num_committed_tokens: int
    """Tokens appended by a decode or verify step, after truncation. The token sampled by a prefill pass belongs to no
    step and is in `num_first_tokens`."""
    num_first_tokens: int
    """Requests whose prefill ended in this pass and gave their first token."""
    num_preemptions: int
    """Requests put back into the queue to make room for this step."""

    @property
    def num_requests(self) -> int:
        """Requests in the pass."""
        return len(self.context_lens)

    @property
    def max_context_len(self) -> int:
        """The longest context in the pass."""
        return max(self.context_lens)

    @property
    def sum_context_len(self) -> int:
        """Cached tokens attended to by all requests of the pass, its own rows not counted."""
        return sum(self.context_lens)


@dataclass(slots=True, kw_only=True)
class StepTotals:
    """Sums over all steps of one kind since the engine began."""

    num_steps: int = 0
    num_requests: int = 0
    """Requests of each step, summed: divided by num_steps, the mean batch."""
    num_tokens: int = 0
    num_committed_tokens: int = 0
    num_first_tokens: int = 0
    seconds: float = 0.0
    forward_s: float = 0.0

    def add(self, record: StepRecord) -> None:
        """Count one step."""
        self.num_steps += 1
        self.num_requests += record.num_requests
        self.num_tokens += record.num_tokens
        self.num_committed_tokens += record.num_committed_tokens
        self.num_first_tokens += record.num_first_tokens
        self.seconds += record.seconds
        self.forward_s += record.forward_s


@dataclass(slots=True)
class StepLog:
    """The last `max_records` steps, oldest first, and totals over all steps by kind."""

    max_records: int = 4096
    totals: dict[StepKind, StepTotals] = field(default_factory=lambda: {kind: StepTotals() for kind in STEP_KINDS})
    _records: deque[StepRecord] = field(init=False)

    def __post_init__(self) -> None:
        self._records = deque(maxlen=self.max_records)

    def add(self, record: StepRecord) -> None:
        """Keep the record, dropping the oldest where the log is full."""
        self._records.append(record)
        self.totals[record.kind].add(record)

    @property
    def num_steps(self) -> int:
        """Steps since the engine began, dropped ones included: what came since last time is the difference."""
        return sum(totals.num_steps for totals in self.totals.values())

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[StepRecord]:
        return iter(self._records)

    def __getitem__(self, index: int) -> StepRecord:
        return self._records[index]
