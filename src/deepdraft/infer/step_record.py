"""What each forward pass of the engine did, and how long it took: a bounded log, and totals that never forget.

Only measured figures are stored; rates and averages follow from them. Nothing is printed or exported here.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from deepdraft.infer.control.decision import Decision, Reason
from deepdraft.infer.errors import LawBroken
from deepdraft.infer.request import RequestSpeculation

StepKind = Literal["prefill", "decode", "verify"]
"""The three kinds of forward pass: prompt chunks; one token a request; drafts to check beside that token."""

STEP_KINDS: tuple[StepKind, ...] = get_args(StepKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One request's drafts in one verify step."""

    context_len: int
    """Tokens in its KV cache before the step."""
    num_nodes: int
    """Of its tree, the root not counted: 1 or more, as many as were verified."""
    draft_depth: int
    """Of the deepest node."""
    accepted_len: int
    """Drafts on the path that the target took, whether or not the request ended on the way."""
    committed_len: int
    """Tokens appended: accepted_len + 1, or fewer where one of them ended the request."""
    is_simulated: bool = False
    """The path was dictated by `--simulate-acceptance-len`, not by the target."""
    num_built_nodes: int | None = None
    """Of the tree as it was built; what it has more than `num_nodes` wasn't worth verifying. None: not said."""
    decision: Decision | None = None
    """Why it was made; None: not said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """One step. The named parts of `seconds` leave out only the bookkeeping between them."""

    kind: StepKind
    started_s: float
    """time.monotonic() when scheduling began."""
    seconds: float
    schedule_s: float
    forward_s: float
    """The target's pass."""
    sample_s: float
    """Choosing tokens; in a verify step down the trees."""
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
    draft_s: float = 0.0
    """The drafter: its own pass, and taking in what the target's pass computed (after prefill too)."""
    build_s: float = 0.0
    """Deciding who drafts, making room for trees, building and cutting them."""
    compact_s: float = 0.0
    """Moving accepted rows together."""
    rounds: tuple[Round, ...] = ()
    """Of the requests with drafts in this step: all of a verify step's, but those that only decode beside them."""
    plain_decisions: tuple[Decision, ...] = ()
    """Of the others, in a decode or verify step of an engine with a drafter: why they were decoded plainly."""

    @property
    def other_s(self) -> float:
        """What is left of `seconds` beside drafting, building, the target's pass and compaction."""
        return self.seconds - self.draft_s - self.build_s - self.forward_s - self.compact_s

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


class Laps:
    """Seconds from one mark to the next."""

    def __init__(self, started_s: float) -> None:
        self.last_s = started_s
        """time.monotonic() at the last mark."""

    def lap_s(self) -> float:
        """Mark, and return the seconds since the mark before."""
        before_s, self.last_s = self.last_s, time.monotonic()
        return self.last_s - before_s


def speculation_after(
    speculation: RequestSpeculation,
    record: StepRecord,
    num_rows: int,
    verified: Round | None,
    decision: Decision | None = None,
) -> RequestSpeculation:
    """One decode or verify step more, of which the request had `num_rows`; verified None: it had no drafts in it."""
    share = num_rows / record.num_tokens
    # One replace of all: it is done for each request at each step, and costs what some ten fields of it cost.
    changes: dict[str, Any] = {
        "draft_s": speculation.draft_s + share * record.draft_s,
        "build_s": speculation.build_s + share * record.build_s,
        "verify_s": speculation.verify_s + share * record.forward_s,
        "compact_s": speculation.compact_s + share * record.compact_s,
        "other_s": speculation.other_s + share * record.other_s,
    }
    if decision is not None:
        changes |= _decided(speculation, decision, is_round=verified is not None)
    if verified is not None:
        changes |= _verified(speculation, verified)
    return replace(speculation, **changes)


def _decided(speculation: RequestSpeculation, decision: Decision, *, is_round: bool) -> dict[str, Any]:
    """What a decision changes."""
    name = "rounds_by_reason" if is_round else "plain_steps_by_reason"
    by_reason: Mapping[Reason, int] = getattr(speculation, name)
    changes: dict[str, Any] = {name: {**by_reason, decision.reason: by_reason.get(decision.reason, 0) + 1}}
    if decision.break_even_len is not None and decision.expected_len is not None:
        changes |= {
            "num_weighed_steps": speculation.num_weighed_steps + 1,
            "break_even_len_sum": speculation.break_even_len_sum + decision.break_even_len,
            "expected_len_sum": speculation.expected_len_sum + decision.expected_len,
        }
    return changes


def _verified(speculation: RequestSpeculation, verified: Round) -> dict[str, Any]:
    """What a round changes."""
    counts = list(speculation.accepted_len_histogram)
    counts += [0] * (verified.accepted_len + 1 - len(counts))
    counts[verified.accepted_len] += 1
    return {
        "num_rounds": speculation.num_rounds + 1,
        "num_draft_tokens": speculation.num_draft_tokens + verified.num_nodes,
        "accepted_len_histogram": tuple(counts),
        "is_simulated": speculation.is_simulated or verified.is_simulated,
    }


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
    draft_s: float = 0.0
    build_s: float = 0.0
    compact_s: float = 0.0
    num_rounds: int = 0
    num_nodes: int = 0
    num_round_tokens: int = 0
    """Tokens that rounds appended."""
    num_truncated_rounds: int = 0
    """Rounds in which the request ended before the last of its tokens."""
    num_simulated_rounds: int = 0
    accepted_len_histogram: Counter[int] = field(default_factory=Counter)
    """Rounds by accepted_len."""
    draft_depth_histogram: Counter[int] = field(default_factory=Counter)
    """Rounds by the depth of their deepest node."""
    rounds_by_reason: Counter[Reason] = field(default_factory=Counter)
    plain_by_reason: Counter[Reason] = field(default_factory=Counter)
    """Requests that had no drafts in a step, by why; empty without a drafter."""

    def add(self, record: StepRecord) -> None:
        """Count one step."""
        self.num_steps += 1
        self.num_requests += record.num_requests
        self.num_tokens += record.num_tokens
        self.num_committed_tokens += record.num_committed_tokens
        self.num_first_tokens += record.num_first_tokens
        self.seconds += record.seconds
        self.forward_s += record.forward_s
        self.draft_s += record.draft_s
        self.build_s += record.build_s
        self.compact_s += record.compact_s
        for verified in record.rounds:
            self._add_round(verified)
        self.plain_by_reason.update(decision.reason for decision in record.plain_decisions)

    @property
    def num_accepted_tokens(self) -> int:
        """Drafts accepted, before truncation."""
        return sum(accepted_len * count for accepted_len, count in self.accepted_len_histogram.items())

    @property
    def num_drafted_by_depth(self) -> tuple[int, ...]:
        """Rounds that had a node at depth 1, 2, ...: what acceptance at a depth is to be divided by."""
        return _num_reaching(self.draft_depth_histogram)

    @property
    def num_accepted_by_depth(self) -> tuple[int, ...]:
        """Rounds that accepted a node at depth 1, 2, ..."""
        return _num_reaching(self.accepted_len_histogram)

    def check(self, kind: StepKind) -> None:
        """Raises LawBroken where tokens, requests and rounds of this kind's steps contradict each other."""
        num_plain = self.num_requests - self.num_rounds
        num_due = 0 if kind == "prefill" else num_plain + self.num_round_tokens
        if self.num_committed_tokens != num_due:
            raise LawBroken(f"{kind} steps committed {self.num_committed_tokens} tokens, {num_due} were due")
        if kind != "verify" and self.num_rounds:
            raise LawBroken(f"{self.num_rounds} rounds of {kind} steps")
        self._check_reasons(kind, num_plain)
        num_dropped = self.num_accepted_tokens + self.num_rounds - self.num_round_tokens
        if num_dropped < self.num_truncated_rounds or (num_dropped and not self.num_truncated_rounds):
            raise LawBroken(
                f"{self.num_rounds} rounds accepted {self.num_accepted_tokens} drafts and committed "
                f"{self.num_round_tokens} tokens, {self.num_truncated_rounds} were truncated"
            )

    def _check_reasons(self, kind: StepKind, num_plain: int) -> None:
        """Where reasons are told, each request of each step has one."""
        told = self.plain_by_reason.total() + self.rounds_by_reason.total()
        if told and (self.plain_by_reason.total(), self.rounds_by_reason.total()) != (num_plain, self.num_rounds):
            raise LawBroken(
                f"{kind} steps tell why of {self.plain_by_reason.total()} plain requests and "
                f"{self.rounds_by_reason.total()} rounds, there were {num_plain} and {self.num_rounds}"
            )

    def _add_round(self, verified: Round) -> None:
        self.num_rounds += 1
        self.num_nodes += verified.num_nodes
        self.num_round_tokens += verified.committed_len
        self.num_truncated_rounds += verified.committed_len <= verified.accepted_len
        self.num_simulated_rounds += verified.is_simulated
        self.accepted_len_histogram[verified.accepted_len] += 1
        self.draft_depth_histogram[verified.draft_depth] += 1
        if verified.decision is not None:
            self.rounds_by_reason[verified.decision.reason] += 1


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


def _num_reaching(histogram: Counter[int]) -> tuple[int, ...]:
    deepest = max(histogram, default=0)
    return tuple(
        sum(count for reached, count in histogram.items() if reached >= depth) for depth in range(1, deepest + 1)
    )
