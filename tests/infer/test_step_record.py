"""The log forgets old records, its totals forget nothing."""

from __future__ import annotations

from typing import Any

import pytest

from deepdraft.infer.control.decision import Decision
from deepdraft.infer.errors import LawBroken
from deepdraft.infer.request import RequestSpeculation
from deepdraft.infer.step_record import Round, StepKind, StepLog, StepRecord, speculation_after


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


def verified(accepted_len: int, committed_len: int | None = None, **values: Any) -> Round:
    defaults: dict[str, Any] = {"context_len": 10, "num_nodes": 8, "draft_depth": 4}
    committed_len = accepted_len + 1 if committed_len is None else committed_len
    return Round(accepted_len=accepted_len, committed_len=committed_len, **{**defaults, **values})


def log_of(*rounds: Round, num_plain: int = 0) -> StepLog:
    log = StepLog()
    for each in rounds:
        num_committed = each.committed_len + num_plain
        context_lens = (each.context_len,) * (1 + num_plain)
        log.add(record("verify", rounds=(each,), num_committed_tokens=num_committed, context_lens=context_lens))
    return log


def test_totals_of_rounds() -> None:
    log = log_of(verified(0), verified(2), verified(4, 3), verified(1, draft_depth=1, num_nodes=1), num_plain=1)
    totals = log.totals["verify"]
    assert (totals.num_rounds, totals.num_nodes, totals.num_round_tokens) == (4, 25, 1 + 3 + 3 + 2)
    assert (totals.num_accepted_tokens, totals.num_truncated_rounds) == (7, 1)
    assert totals.accepted_len_histogram == {0: 1, 2: 1, 4: 1, 1: 1}
    assert totals.num_drafted_by_depth == (4, 3, 3, 3)
    assert totals.num_accepted_by_depth == (3, 2, 1, 1)
    totals.check("verify")


def test_totals_that_contradict_themselves() -> None:
    lost = StepLog()
    lost.add(record("verify", rounds=(verified(2),), num_committed_tokens=2, context_lens=(10,)))
    with pytest.raises(LawBroken, match="committed 2 tokens, 3 were due"):
        lost.totals["verify"].check("verify")
    invented = log_of(verified(1, 3))
    with pytest.raises(LawBroken, match="accepted 1 drafts and committed 3"):
        invented.totals["verify"].check("verify")
    misplaced = StepLog()
    misplaced.add(record("decode", rounds=(verified(0),), num_committed_tokens=1, context_lens=(10,)))
    with pytest.raises(LawBroken, match="rounds of decode steps"):
        misplaced.totals["decode"].check("decode")


def test_each_step_of_each_request_has_one_reason() -> None:
    pays, off = Decision(reason="pays"), Decision(reason="below_break_even")
    log = log_of(verified(1, decision=pays), num_plain=1)
    with pytest.raises(LawBroken, match="why of 0 plain requests and 1 rounds, there were 1 and 1"):
        log.totals["verify"].check("verify")
    log = StepLog()
    log.add(record("decode", plain_decisions=(off, off)))
    context_lens = (10, 20)
    rounds = (verified(1, decision=pays),)
    committed = {"context_lens": context_lens, "num_committed_tokens": 3}
    log.add(record("verify", rounds=rounds, plain_decisions=(off,), **committed))
    for kind in ("decode", "verify"):
        log.totals[kind].check(kind)
    assert log.totals["decode"].plain_by_reason == {"below_break_even": 2}
    assert log.totals["verify"].rounds_by_reason == {"pays": 1}


def test_what_was_decided_of_a_request() -> None:
    weighed = Decision(reason="below_break_even", break_even_len=4.0, expected_len=2.0)
    step = record("decode")
    speculation = RequestSpeculation()
    assert speculation.break_even_len is None and speculation.expected_len is None
    for decision in (weighed, Decision(reason="ending"), weighed):
        speculation = speculation_after(speculation, step, 1, None, decision)
    pays = Decision(reason="pays", break_even_len=1.0, expected_len=5.0)
    speculation = speculation_after(speculation, step, 1, verified(2), pays)
    assert speculation.plain_steps_by_reason == {"below_break_even": 2, "ending": 1}
    assert speculation.rounds_by_reason == {"pays": 1}
    assert (speculation.break_even_len, speculation.expected_len) == (3.0, 3.0)


def test_a_request_s_share() -> None:
    step = record("verify", seconds=1.0, forward_s=0.5, draft_s=0.2, build_s=0.1, compact_s=0.04, num_tokens=10)
    assert step.other_s == pytest.approx(0.16)
    speculation = speculation_after(RequestSpeculation(), step, 9, verified(3, is_simulated=True))
    speculation = speculation_after(speculation, step, 1, None)
    speculation = speculation_after(speculation, step, 5, verified(1))
    assert (speculation.num_rounds, speculation.num_draft_tokens) == (2, 16)
    assert speculation.accepted_len_histogram == (0, 1, 0, 1)
    assert speculation.num_accepted_tokens == 4
    assert speculation.is_simulated
    parts = (speculation.draft_s, speculation.build_s, speculation.verify_s, speculation.compact_s)
    assert parts == pytest.approx((0.3, 0.15, 0.75, 0.06))
    assert sum(parts) + speculation.other_s == pytest.approx(1.5)
