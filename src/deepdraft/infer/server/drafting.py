"""What drafting did, as answers and /metrics say it: `usage`'s fields, and counters under the field's names.

Nothing is counted twice: an answer's figures are the engine's own of its requests, the counters are the engine's step
records added up, so that the counters are the sum of all answers (and of what was dropped).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deepdraft.infer.control.decision import Reason
from deepdraft.infer.request import RequestSpeculation

if TYPE_CHECKING:
    from deepdraft.infer.step_record import StepRecord

PREFIX = "deepdraft:spec_decode_"
_SECONDS = ("draft_s", "build_s", "verify_s", "compact_s", "other_s")
_DIGITS = 6
_NUM_RECENT_ROUNDS = 256
_TIMES = {
    "draft": "Seconds of decode and verify steps spent by the drafter",
    "build": "Seconds of decode and verify steps spent building draft trees",
    "verify": "Seconds of decode and verify steps spent in the target's passes",
    "compact": "Seconds of verify steps spent moving accepted rows together",
    "other": "Seconds of decode and verify steps spent scheduling, sampling and committing",
}


def usage_fields(requests: Sequence[RequestSpeculation]) -> dict[str, Any]:
    """What drafting adds to the usage of an answer made of these engine requests; empty without a drafter.

    `accepted_prediction_tokens` and `rejected_prediction_tokens` are OpenAI's fields: together all that was drafted.
    """
    if not requests:
        return {}
    num_draft_tokens = sum(each.num_draft_tokens for each in requests)
    num_weighed = sum(each.num_weighed_steps for each in requests)
    num_accepted = sum(each.num_accepted_tokens for each in requests)
    histograms = zip_longest(*(each.accepted_len_histogram for each in requests), fillvalue=0)
    return {
        "completion_tokens_details": {
            "accepted_prediction_tokens": num_accepted,
            "rejected_prediction_tokens": num_draft_tokens - num_accepted,
        },
        "speculation": {
            "num_rounds": sum(each.num_rounds for each in requests),
            "num_draft_tokens": num_draft_tokens,
            "accepted_len_histogram": [sum(counts) for counts in histograms],
            **{name: round(sum(getattr(each, name) for each in requests), _DIGITS) for name in _SECONDS},
            "is_simulated": any(each.is_simulated for each in requests),
            "rounds_by_reason": _by_reason(each.rounds_by_reason for each in requests),
            "plain_steps_by_reason": _by_reason(each.plain_steps_by_reason for each in requests),
            "break_even_len": _mean(sum(each.break_even_len_sum for each in requests), num_weighed),
            "expected_len": _mean(sum(each.expected_len_sum for each in requests), num_weighed),
        },
    }


def _by_reason(counts: Iterable[Mapping[Reason, int]]) -> dict[str, int]:
    added: Counter[str] = Counter()
    for each in counts:
        added.update(each)
    return dict(sorted(added.items()))


def _mean(total: float, count: int) -> float | None:
    return round(total / count, _DIGITS) if count else None


class DraftCounts(Collector):
    """Counters over all decode and verify steps. Taking in prompts is prefill's time, and not in them."""

    def __init__(self) -> None:
        self._num_rounds = 0
        self._num_nodes = 0
        self._accepted: Counter[int] = Counter()
        """Rounds by accepted_len."""
        self._decisions: Counter[tuple[str, Reason]] = Counter()
        """Rounds and plain steps of requests, by why."""
        self._seconds = dict.fromkeys(_TIMES, 0.0)
        self._recent: deque[int] = deque(maxlen=_NUM_RECENT_ROUNDS)

    def add(self, record: StepRecord) -> None:
        """Count a step."""
        if record.kind == "prefill":
            return
        spent_s = (record.draft_s, record.build_s, record.forward_s, record.compact_s, record.other_s)
        for name, seconds in zip(_TIMES, spent_s, strict=True):
            self._seconds[name] += seconds
        for drafted in record.rounds:
            self._num_rounds += 1
            self._num_nodes += drafted.num_nodes
            self._accepted[drafted.accepted_len] += 1
            self._recent.append(drafted.accepted_len)
            if drafted.decision is not None:
                self._decisions["round", drafted.decision.reason] += 1
        self._decisions.update(("plain", decision.reason) for decision in record.plain_decisions)

    def collect(self) -> Iterator[Metric]:
        """One family a figure."""
        num_accepted = sum(accepted_len * count for accepted_len, count in self._accepted.items())
        yield CounterMetricFamily(PREFIX + "num_drafts", "Drafts verified, one a request and step", self._num_rounds)
        yield CounterMetricFamily(PREFIX + "num_draft_tokens", "Drafted nodes, roots not counted", self._num_nodes)
        yield CounterMetricFamily(
            PREFIX + "num_accepted_tokens", "Drafted tokens that the target agreed with", num_accepted
        )
        by_depth = CounterMetricFamily(
            PREFIX + "num_accepted_tokens_per_pos", "Of those at each depth, from 0", labels=["position"]
        )
        for position in range(max(self._accepted, default=0)):
            reached = sum(count for accepted_len, count in self._accepted.items() if accepted_len > position)
            by_depth.add_metric([str(position)], reached)
        yield by_depth
        for name, text in _TIMES.items():
            yield CounterMetricFamily(f"{PREFIX}{name}_seconds", text, self._seconds[name])
        decisions = CounterMetricFamily(
            PREFIX + "decisions",
            "Rounds and plain steps of requests, by why: pays, probe, learning, below_break_even, ...",
            labels=["step", "reason"],
        )
        for labels, count in sorted(self._decisions.items()):
            decisions.add_metric(labels, count)
        yield decisions
        if self._recent:
            yield GaugeMetricFamily(
                PREFIX + "acceptance_len",
                f"Tokens a draft gave with its bonus token, before truncation, over the last {_NUM_RECENT_ROUNDS}",
                1 + sum(self._recent) / len(self._recent),
            )
