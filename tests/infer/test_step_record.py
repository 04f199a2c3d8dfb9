"""The log forgets old records, its totals forget nothing."""

from __future__ import annotations

from typing import Any

from deepdraft.infer.step_record import StepKind, StepLog, StepRecord


def record(kind: StepKind = "decode", **values: Any) -> StepRecord:
    defaults: dict[str, Any] = {
        "started_s": 1.0,
        "seconds": 0.5,
        "schedule_s": 0.1,
        "forward_s": 0.2,
        "sample_s": 0.1,
        "commit_s": 0.1,
        "context_lens": (10, 30),
        "num_tokens": 2,
        "num_committed_tokens": 2,
        "num_first_tokens": 0,
        "num_preemptions": 0,
    }
    return StepRecord(kind=kind, **{**defaults, **values})


def test_what_follows_from_a_record() -> None:
    assert (record().num_requests, record().max_context_len, record().sum_context_len) == (2, 30, 40)


def test_the_ring_and_the_totals() -> None:
    log = StepLog(max_records=3)
    for started in range(10):
        log.add(record("prefill" if started % 2 else "decode", started_s=float(started)))
    assert len(log) == 3
    assert [kept.started_s for kept in log] == [7.0, 8.0, 9.0]
    assert log[-1].started_s == 9.0
    assert log.num_steps == 10
    assert log.totals["decode"].num_steps == log.totals["prefill"].num_steps == 5
    assert log.totals["verify"].num_steps == 0
    assert log.totals["decode"].num_tokens == log.totals["decode"].num_requests == 10
    assert log.totals["decode"].seconds == 2.5
