"""What is said of drafting afterwards: rounds, seconds, counts, a request's own share; and acceptance by decree."""

from __future__ import annotations

from typing import Any

import pytest
from oracle_drafter import OracleDrafter

from deepdraft.errors import UsageError
from deepdraft.infer.settings import SpeculationSettings

PROMPT = list(range(40, 71))
TREE = SpeculationSettings(tree_budget=12, tree_top_k=4)


@pytest.mark.parametrize("acceptance_len", [1.0, 1.25, 2.5, 4.0, 6.0])
def test_simulated_acceptance(tiny_llama: Any, collect: Any, make_request: Any, acceptance_len: float) -> None:
    """Whatever the target says, and exactly: the last round alone may be cut by max_tokens."""
    speculation = SpeculationSettings(tree_budget=8, tree_top_k=3, simulate_acceptance_len=acceptance_len)
    engine = tiny_llama.engine(drafter=OracleDrafter(), speculation=speculation)
    requests = [make_request(str(n), PROMPT, max_tokens=121, num_logprobs=0, seed=n) for n in range(2)]
    answers = collect(engine, requests)
    rounds = [verified for record in engine.steps for verified in record.rounds]
    assert all(verified.is_simulated for verified in rounds)
    assert engine.steps.totals["verify"].num_simulated_rounds == len(rounds)
    for answer in answers.values():
        assert len(answer.token_ids) == len(answer.logprobs) == 121
        assert answer.last.speculation.is_simulated
        counts = answer.last.speculation.accepted_len_histogram
        whole = int(acceptance_len)
        assert sum(counts[: whole - 1]) <= 1 and sum(counts[whole + 1 :]) == 0
        num_rounds = answer.last.speculation.num_rounds
        assert num_rounds == pytest.approx(120 / acceptance_len, abs=2.5)
    again = collect(tiny_llama.engine(drafter=OracleDrafter(), speculation=speculation), requests)
    assert {name: answer.token_ids for name, answer in again.items()} == {
        name: answer.token_ids for name, answer in answers.items()
    }


def test_simulated_acceptance_beyond_the_drafts_is_refused(tiny_llama: Any) -> None:
    def engine(acceptance_len: float, tree_budget: int = 16) -> Any:
        settings = SpeculationSettings(tree_budget=tree_budget, simulate_acceptance_len=acceptance_len)
        return tiny_llama.engine(drafter=OracleDrafter(draft_len=5), speculation=settings)

    engine(6.0)
    with pytest.raises(UsageError, match="6 at most"):
        engine(6.1)
    with pytest.raises(UsageError, match="4 at most"):
        engine(5.0, tree_budget=3)


def test_what_is_counted(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    text = known(PROMPT, max_tokens=30)
    engine = tiny.engine(drafter=OracleDrafter([text]), speculation=TREE)
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=30)])["a"]
    records = list(engine.steps)
    rounds = [verified for record in records for verified in record.rounds]
    totals = engine.steps.totals["verify"]
    assert totals.num_rounds == len(rounds) and totals.num_nodes == sum(verified.num_nodes for verified in rounds)
    num_plain = engine.steps.totals["decode"].num_committed_tokens
    assert sum(verified.committed_len for verified in rounds) + num_plain + 1 == 30
    assert all(verified.committed_len == verified.accepted_len + 1 for verified in rounds)
    assert all(verified.accepted_len <= verified.draft_depth <= verified.num_nodes for verified in rounds)
    assert [verified.context_len for verified in rounds] == [
        len(PROMPT) + output.num_output_tokens - 1
        for output, follower in zip(answer.outputs, answer.outputs[1:], strict=False)
        if follower.speculation.num_rounds > output.speculation.num_rounds
    ]
    for depth, (num_accepted, num_drafted) in enumerate(
        zip(totals.num_accepted_by_depth, totals.num_drafted_by_depth, strict=False), start=1
    ):
        assert num_accepted == sum(verified.accepted_len >= depth for verified in rounds) <= num_drafted
    speculation = answer.last.speculation
    assert (speculation.num_rounds, speculation.num_draft_tokens) == (totals.num_rounds, totals.num_nodes)
    assert speculation.num_accepted_tokens == totals.num_accepted_tokens
    # Alone, its share of each decode and verify step is all of it.
    stepped = [record for record in records if record.kind != "prefill"]
    for name in ("draft_s", "build_s", "compact_s", "other_s"):
        assert getattr(speculation, name) == pytest.approx(sum(getattr(record, name) for record in stepped))
    assert speculation.verify_s == pytest.approx(sum(record.forward_s for record in stepped))
    assert speculation.draft_s > 0 and speculation.build_s > 0 and speculation.compact_s > 0
    for record in records:
        assert record.other_s >= 0
        named = record.schedule_s + record.draft_s + record.build_s + record.forward_s
        assert named + record.sample_s + record.compact_s + record.commit_s <= record.seconds * 1.001


def test_without_a_drafter_nothing_is_said_of_drafts(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    engine = tiny_llama.engine()
    answer = collect(engine, [make_request("a", PROMPT)])["a"]
    assert answer.last.speculation is None
    assert {(record.draft_s, record.build_s, record.compact_s, record.rounds) for record in engine.steps} == {
        (0.0, 0.0, 0.0, ())
    }


def test_time_in_the_queue(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    engine = tiny_llama.engine(max_running_requests=1)
    answers = collect(engine, [make_request(str(n), PROMPT) for n in range(2)])
    first, second = (answers[name].last.queue_s for name in "01")
    spent_s = sum(record.seconds for record in engine.steps)
    assert 0 <= first < second < spent_s * 2 + 1
    assert len({output.queue_s for output in answers["1"].outputs}) == 1
    engine.submit(make_request("a", PROMPT))
    engine.abort("a")
    assert engine.step()[0].queue_s is None
