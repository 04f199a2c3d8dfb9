"""An engine that decides step by step whether to draft: the same output whatever it decides, and each step's why.

What seconds a step takes is up to the machine, so costs are told to the policy where a decision is to be known: the
first one, or one that no clock will change.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from oracle_drafter import ForgetfulDrafter, OracleDrafter

from deepdraft.infer.control.acceptance import Drafts
from deepdraft.infer.control.decision import SPECULATION_MODES
from deepdraft.infer.control.policy import Policy
from deepdraft.infer.engine import Engine
from deepdraft.infer.settings import SpeculationSettings

PROMPT = list(range(40, 71))
AUTO = SpeculationSettings(mode="auto", tree_budget=12, tree_top_k=4)
FOREVER_S = 1e6


def policy_of(engine: Engine) -> Policy:
    assert engine._speculator is not None
    return engine._speculator.policy


def taught(engine: Engine, *, plain_s: float, draft_s: float, row_s: float = 0.0, max_requests: int = 1) -> Engine:
    """An engine that begins with these costs; in the end it believes what it sees."""
    policy = policy_of(engine)
    for num_requests in range(1, max_requests + 1):
        for kv_tokens in (num_requests * 16, num_requests * 32, num_requests * 64, num_requests * 128):
            for _ in range(5):
                policy.books.costs.observe_forward(num_requests, num_requests, kv_tokens, plain_s)
                policy.books.costs.observe_draft(num_requests, kv_tokens, draft_s)
                for nodes in (1, 2, 4, 8, 12):
                    policy.books.costs.observe_forward(
                        num_requests, num_requests + nodes, kv_tokens, plain_s + nodes * row_s
                    )
    policy.books.acceptance.observe_drafts("teacher", 64, Drafts(path_probs=(0.6, 0.4, 0.3), depths=(1, 2, 3)))
    policy.books.acceptance.forget("teacher")
    return engine


def reasons(engine: Engine) -> Counter[str]:
    """Of all requests' decode and verify steps."""
    found: Counter[str] = Counter()
    for totals in engine.steps.totals.values():
        found.update(totals.rounds_by_reason)
        found.update(totals.plain_by_reason)
    return found


def test_modes_give_the_same_output(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    prompts = [list(range(start, start + 5 + 4 * start)) for start in range(6)]
    texts = [known(prompt, max_tokens=40) for prompt in prompts]
    requests = [make_request(str(n), prompt, max_tokens=40) for n, prompt in enumerate(prompts)]
    for mode in SPECULATION_MODES:
        engine = tiny.engine(
            drafter=ForgetfulDrafter(texts), speculation=replace(AUTO, mode=mode), kv_pool_tokens=1024
        )
        answers = collect(engine, requests)
        assert [[*prompts[n], *answers[str(n)].token_ids] for n in range(6)] == texts
        assert policy_of(engine).books.num_requests == 0, "nothing of a request stays"
        for answer in answers.values():
            drafting = answer.last.speculation
            assert sum(drafting.rounds_by_reason.values()) == drafting.num_rounds
            num_steps = drafting.num_rounds + sum(drafting.plain_steps_by_reason.values())
            assert num_steps == len(answer.outputs) - 1, "the first token is the prefill's"


def test_never_only_looks_on(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    drafter = OracleDrafter([known(PROMPT, max_tokens=20)])
    engine = tiny.engine(drafter=drafter, speculation=replace(AUTO, mode="never"))
    collect(engine, [make_request("a", PROMPT, max_tokens=20)])
    assert not drafter.drafted and reasons(engine) == {"never": 18, "ending": 1}


def test_where_drafting_pays_it_drafts(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    text = known(PROMPT, max_tokens=60)
    engine = taught(tiny.engine(drafter=OracleDrafter([text]), speculation=AUTO), plain_s=1.0, draft_s=0.0)
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=60)])["a"]
    assert [*PROMPT, *answer.token_ids] == text
    assert answer.last.speculation.rounds_by_reason["pays"] > 0
    first = next(verified for record in engine.steps for verified in record.rounds)
    assert first.num_nodes == first.num_built_nodes, "rows cost nothing here, as far as is known yet"
    assert first.decision is not None and first.decision.reason == "pays"
    assert first.decision.break_even_len is not None and first.decision.expected_len is not None
    assert first.decision.expected_len > first.decision.break_even_len >= 1


def test_trees_are_cut_to_what_pays(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    """One build serves: the first nodes of the tree are verified, and the path down them is as right as ever."""
    text = known(PROMPT, max_tokens=60)
    engine = tiny.engine(drafter=OracleDrafter([text]), speculation=AUTO)
    taught(engine, plain_s=1.0, draft_s=0.0, row_s=0.1)
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=60)])["a"]
    assert [*PROMPT, *answer.token_ids] == text
    rounds = [verified for record in engine.steps for verified in record.rounds]
    assert any(verified.num_nodes < (verified.num_built_nodes or 0) for verified in rounds)
    assert all(verified.accepted_len <= verified.draft_depth <= verified.num_nodes for verified in rounds)


def test_where_it_does_not_pay_nothing_is_drafted(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    text = known(PROMPT, max_tokens=20)
    drafter = OracleDrafter([text])
    engine = taught(tiny.engine(drafter=drafter, speculation=AUTO), plain_s=0.001, draft_s=FOREVER_S, row_s=0.001)
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=20)])["a"]
    assert [*PROMPT, *answer.token_ids] == text and not drafter.drafted
    assert reasons(engine) == {"below_break_even": 18, "ending": 1}
    drafting = answer.last.speculation
    assert drafting.break_even_len > 100 > drafting.expected_len > 1
    assert drafting.num_rounds == 0 and drafting.draft_s >= 0


def test_what_is_not_verified_is_watched(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    """Rows are dear and drafts cost little: none is verified, and yet it is seen how right they are."""
    text = known(PROMPT, max_tokens=60)
    drafter = OracleDrafter([text])
    engine = tiny.engine(drafter=drafter, speculation=AUTO)
    taught(engine, plain_s=0.001, draft_s=0.00006, row_s=FOREVER_S)
    policy_of(engine).books.watching.earn("saving", len(PROMPT), 1.0)
    policy_of(engine).books.watching.close("saving")
    acceptance = policy_of(engine).books.acceptance
    before = acceptance.ratios("next", len(PROMPT))
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=60)])["a"]
    assert [*PROMPT, *answer.token_ids] == text and drafter.drafted
    drafting = answer.last.speculation
    assert drafting.num_rounds == 0 and drafting.plain_steps_by_reason["watch"] >= 1
    assert acceptance.ratios("next", len(PROMPT)) != before
    assert not engine._speculator._watched, "nothing of a request stays"


def test_a_drafter_that_costs_nothing_is_asked_at_every_step(
    tiny: Any, collect: Any, make_request: Any, known: Any
) -> None:
    """And each tree is weighed by itself. One that counts for itself how right it is isn't corrected."""
    text = known(PROMPT, max_tokens=60)
    drafter = OracleDrafter([text], is_calibrated=True)
    engine = tiny.engine(drafter=drafter, speculation=AUTO)
    taught(engine, plain_s=0.001, draft_s=0.0, row_s=FOREVER_S)
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=60)])["a"]
    assert [*PROMPT, *answer.token_ids] == text
    num_asked = len(drafter.drafted)
    assert answer.last.speculation.plain_steps_by_reason["too_unlikely"] == num_asked > 10
    assert policy_of(engine).books.acceptance.ratios("next", len(PROMPT)) == [1.0] * 5
    assert not engine._speculator._watched


def test_a_tree_of_which_nothing_is_worth_it_is_dropped(
    tiny: Any, collect: Any, make_request: Any, known: Any
) -> None:
    """Drafted, since trees so far were right for sure; these are not, and a row of them is dear."""
    text = known(PROMPT, max_tokens=20)
    drafter = OracleDrafter([text])
    engine = tiny.engine(drafter=drafter, speculation=AUTO)
    taught(engine, plain_s=1.0, draft_s=0.0, row_s=0.95)
    policy = policy_of(engine)
    for _ in range(8):
        policy.books.acceptance.observe_drafts("teacher", 64, Drafts(path_probs=(1.0,) * 5, depths=(1, 2, 3, 4, 5)))
    policy.books.acceptance.forget("teacher")
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=20)])["a"]
    assert [*PROMPT, *answer.token_ids] == text and drafter.drafted
    assert reasons(engine)["too_unlikely"] > 0
    assert engine.steps.totals["verify"].num_rounds < len(drafter.drafted)


def test_no_room_is_a_reason(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    text = known(PROMPT, max_tokens=13)
    drafter = OracleDrafter([text], scratch_len=6, first_frac=0.3, second_frac=0.3)
    engine = tiny.engine(drafter=drafter, speculation=replace(AUTO, mode="always"), kv_pool_tokens=44, page_size=4)
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=13)])["a"]
    assert [*PROMPT, *answer.token_ids] == text
    assert reasons(engine)["no_room"] > 0 and engine.stats().num_preemptions_total == 0


@pytest.mark.parametrize("acceptance_len", [2.5, 4.0])
def test_simulated_acceptance_is_as_asked_and_teaches_nothing(
    tiny_llama: Any, collect: Any, make_request: Any, acceptance_len: float
) -> None:
    speculation = replace(AUTO, tree_budget=8, simulate_acceptance_len=acceptance_len)
    engine = tiny_llama.engine(drafter=OracleDrafter(), speculation=speculation)
    taught(engine, plain_s=1.0, draft_s=0.0, row_s=0.05)
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=121)])["a"]
    drafting = answer.last.speculation
    rounds = [verified for record in engine.steps for verified in record.rounds]
    assert drafting.is_simulated and len(rounds) == drafting.num_rounds > 0
    num_given = sum(1 + verified.accepted_len for verified in rounds)
    assert abs(num_given - acceptance_len * len(rounds)) < acceptance_len + 1, "the last one may be cut"
    whole = [verified for verified in rounds if verified.num_built_nodes == 8]
    assert min(verified.num_nodes for verified in whole) >= math.ceil(acceptance_len - 1)
    assert policy_of(engine).books.acceptance.ratios("b", 64) == [1.0] * 5


def test_aborted_requests_are_forgotten(tiny_llama: Any, make_request: Any) -> None:
    engine = tiny_llama.engine(drafter=OracleDrafter(), speculation=AUTO)
    for name in "abc":
        engine.submit(make_request(name, PROMPT, max_tokens=50))
    for _ in range(12):
        engine.step()
    assert policy_of(engine).books.num_requests > 0
    for name in "abc":
        engine.abort(name)
    assert policy_of(engine).books.num_requests == 0
