"""One engine with a drafter, few requests: the same output as without, in fewer steps, and a cache as if nothing had
been drafted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from oracle_drafter import ForgetfulDrafter, OracleDrafter

from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.drafters.ngram import NgramDrafter
from deepdraft.infer.models.load import load_model
from deepdraft.infer.settings import SpeculationSettings

PROMPT = list(range(40, 71))
CHAIN = SpeculationSettings(tree_budget=5, tree_top_k=1)
TREE = SpeculationSettings(tree_budget=12, tree_top_k=4)
SPINE = SpeculationSettings(tree_budget=12, tree_top_k=4, is_spine_first=True)


def rows(pool: Any, slots: torch.Tensor) -> list[torch.Tensor]:
    """Every layer's keys and values of these slots."""
    layers = [pool.layer(layer_index) for layer_index in range(len(pool.layout.layers))]
    return [tensor[slots].clone() for layer in layers for tensor in (layer.keys, layer.values)]


@pytest.mark.parametrize("speculation", [CHAIN, TREE, SPINE])
def test_the_same_output_in_fewer_steps(
    tiny: Any, collect: Any, make_request: Any, known: Any, speculation: SpeculationSettings
) -> None:
    text = known(PROMPT, max_tokens=40, num_logprobs=2)
    request = make_request("a", PROMPT, max_tokens=40, num_logprobs=2)
    plain = collect(tiny.engine(), [request])["a"]
    engine = tiny.engine(drafter=OracleDrafter([text]), speculation=speculation)
    answer = collect(engine, [request])["a"]
    assert answer.token_ids == plain.token_ids and answer.text == plain.text
    assert answer.last.finish_reason == "length"
    assert [logprob.token_id for logprob in answer.logprobs] == answer.token_ids
    for found, expected in zip(answer.logprobs, plain.logprobs, strict=True):
        assert found.logprob == pytest.approx(expected.logprob, abs=1e-4)
        assert [token_id for token_id, _ in found.alternatives] == [token_id for token_id, _ in expected.alternatives]
    assert len(answer.outputs) < 25
    assert max(len(output.token_ids) for output in answer.outputs) > 3


@pytest.mark.parametrize("speculation", [CHAIN, TREE])
def test_sampled_output_is_that_of_the_seed(
    tiny: Any, collect: Any, make_request: Any, speculation: SpeculationSettings
) -> None:
    for seed, params in enumerate(
        [
            {"temperature": 0.8},
            {"temperature": 3.0, "top_p": 0.9},
            {"temperature": 2.0, "top_k": 5},
            {"temperature": 1.5, "repetition_penalty": 1.3, "presence_penalty": 0.5, "frequency_penalty": 0.4},
            {"temperature": 0.0, "frequency_penalty": 1.5, "presence_penalty": -0.5},
        ]
    ):
        request = make_request("a", PROMPT, max_tokens=30, seed=seed, **params)
        plain = collect(tiny.engine(), [request])["a"]
        drafter = OracleDrafter([[*PROMPT, *plain.token_ids]])
        engine = tiny.engine(drafter=drafter, speculation=speculation)
        assert collect(engine, [request])["a"].token_ids == plain.token_ids
        assert engine.steps.totals["verify"].num_accepted_tokens > 8, "or this shows nothing"


def test_a_sampled_request_without_heat_is_greedy(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    text = known(PROMPT, max_tokens=24)
    cold = make_request("a", PROMPT, max_tokens=24, temperature=1e-9, seed=3)
    answer = collect(tiny.engine(drafter=OracleDrafter([text]), speculation=TREE), [cold])["a"]
    assert [*PROMPT, *answer.token_ids] == text


@pytest.mark.parametrize("speculation", [CHAIN, TREE, SPINE])
@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_the_cache_after_many_rounds_is_that_of_a_fresh_prefill(
    tiny: Any, collect: Any, make_request: Any, known: Any, speculation: SpeculationSettings, page_size: int
) -> None:
    """In all layers, the drafter's too: accepted rows were moved, scratch and rejected rows left no trace."""
    text = known(PROMPT, max_tokens=90)
    drafter = OracleDrafter([text])
    engine = tiny.engine(drafter=drafter, speculation=speculation, page_size=page_size)
    engine.submit(make_request("a", PROMPT, max_tokens=90))
    while len(drafter.drafted) < 12:
        engine.step()
    table = drafter.requests[0].page_table
    token_ids = drafter.requests[0].token_ids[: table.num_tokens]
    assert len(token_ids) > len(PROMPT) + 15
    found = rows(engine.pool, table.slots(0, table.num_tokens))

    again = OracleDrafter([text])
    fresh = tiny.engine(drafter=again, speculation=speculation, page_size=page_size, chunk_len=7)
    fresh.submit(make_request("b", token_ids, max_tokens=5))
    while not again.requests:
        fresh.step()
    assert again.prefix_slots is not None
    expected = rows(fresh.pool, again.prefix_slots[: len(token_ids)])
    assert len(found) == 2 * (2 + 1)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def test_a_hit_drafts_as_a_cold_start_does(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    """The drafter's rows of a cached prefix are there (OracleDrafter reads them all), and what it proposes and what
    becomes of it is the same."""
    text = known(PROMPT, max_tokens=24)
    request = make_request("a", PROMPT, max_tokens=24)
    drafter = OracleDrafter([text])
    engine = tiny.engine(drafter=drafter, speculation=TREE)
    cold = collect(engine, [request])["a"]
    drafted = list(drafter.drafted)
    drafter.drafted.clear()
    hit = collect(engine, [request])["a"]
    assert hit.last.num_cached_tokens == 28 and cold.last.num_cached_tokens == 0
    assert hit.token_ids == cold.token_ids
    assert drafter.drafted == drafted
    assert hit.last.speculation.accepted_len_histogram == cold.last.speculation.accepted_len_histogram
    assert hit.last.speculation.num_rounds == len(drafted)


def test_cached_pages_are_never_written(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    """Requests that share them write behind them, in pages of their own, wherever their prefixes part."""
    text = known(PROMPT, max_tokens=24)
    drafter = OracleDrafter([text])
    engine = tiny.engine(drafter=drafter, speculation=TREE)
    collect(engine, [make_request("a", PROMPT, max_tokens=24)])
    collect(engine, [make_request("b", text[:-1], max_tokens=3)])
    assert drafter.prefix_slots is not None and len(drafter.prefix_slots) == len(text) - 1
    cached = drafter.prefix_slots[: (len(text) - 1) // 4 * 4]
    before = rows(engine.pool, cached)
    collect(engine, [make_request(str(cut), [*text[:cut], 1, 2], max_tokens=12) for cut in range(20, 50, 3)])
    assert engine.stats().num_cached_tokens_total > 200
    for was, now in zip(before, rows(engine.pool, cached), strict=True):
        assert torch.equal(was, now)


def test_several_requests_a_round_with_trees_of_their_own(
    tiny: Any, collect: Any, make_request: Any, known: Any
) -> None:
    prompts = [list(range(start, start + 5 + 4 * start)) for start in range(6)]
    texts = [known(prompt, max_tokens=5 + 4 * number) for number, prompt in enumerate(prompts)]
    requests = [make_request(str(n), prompt, max_tokens=5 + 4 * n) for n, prompt in enumerate(prompts)]
    engine = tiny.engine(drafter=ForgetfulDrafter(texts), speculation=TREE, kv_pool_tokens=1024)
    answers = collect(engine, requests)
    assert [[*prompts[n], *answers[str(n)].token_ids] for n in range(6)] == texts
    verify = [record for record in engine.steps if record.kind == "verify"]
    assert any(len(record.rounds) > 1 for record in verify)
    assert any(0 < len(record.rounds) < record.num_requests for record in verify), "trees and plain rows in one pass"
    assert any(len({verified.draft_depth for verified in record.rounds}) > 1 for record in verify)


def test_prompt_lookup(tiny: Any, collect: Any, make_request: Any) -> None:
    """A prompt that holds the answer already is quoted in few steps; one that doesn't repeats nothing."""
    answer = collect(tiny.engine(), [make_request("a", PROMPT, max_tokens=20)])["a"].token_ids
    prompt = [*PROMPT, *answer, 255, *PROMPT]
    plain = collect(tiny.engine(), [make_request("a", prompt, max_tokens=20)])["a"].token_ids
    engine = tiny.engine(drafter=NgramDrafter(), speculation=CHAIN)
    assert collect(engine, [make_request("a", prompt, max_tokens=20)])["a"].token_ids == plain
    assert len(engine.pool.layout.layers) == 2, "it stores nothing"


def test_a_drafter_that_proposes_nothing_decodes_plainly(
    tiny: Any, collect: Any, make_request: Any, known: Any
) -> None:
    engine = tiny.engine(drafter=NgramDrafter(), speculation=TREE)
    text = list(range(100, 120))
    answer = collect(engine, [make_request("a", text, max_tokens=2)])["a"]
    assert [*text, *answer.token_ids] == known(text, max_tokens=2)
    assert engine.steps.totals["verify"].num_steps == 0
    assert answer.last.speculation.num_rounds == 0 and answer.last.speculation.accepted_len_histogram == ()


def test_little_room_makes_small_trees_and_no_preemption(
    tiny: Any, collect: Any, make_request: Any, known: Any
) -> None:
    """A pool as large as the request: towards its end there are fewer rows than a tree or the drafter wants."""
    text = known(PROMPT, max_tokens=13)
    for scratch_len in (0, 6):
        drafter = OracleDrafter([text], scratch_len=scratch_len, first_frac=0.3, second_frac=0.3)
        engine = tiny.engine(drafter=drafter, speculation=TREE, kv_pool_tokens=44, page_size=4)
        answer = collect(engine, [make_request("a", PROMPT, max_tokens=13)])["a"]
        assert [*PROMPT, *answer.token_ids] == text
        assert engine.stats().num_preemptions_total == 0
        nodes = [verified.num_nodes for record in engine.steps for verified in record.rounds]
        assert min(nodes) < 12 and max(nodes) == 12
        if scratch_len:
            assert engine.steps.totals["decode"].num_steps > 0, "no room for the drafter's rows: a plain step"


def test_drafts_preempt_nobody(tiny: Any, make_request: Any) -> None:
    """Pages for drafts are given back after each round: a request near its end doesn't hold what it will never need
    while another one grows. (The drafts are never right, so the pace is that of plain decoding.)"""

    def num_preemptions(drafter: OracleDrafter | None) -> int:
        engine = tiny.engine(
            kv_pool_tokens=80, page_size=1, has_radix_cache=False, chunk_len=64, drafter=drafter, speculation=TREE
        )
        engine.submit(make_request("old", range(20), max_tokens=40))
        while engine.stats().num_completion_tokens_total < 33:
            engine.step()
        engine.submit(make_request("young", range(100, 110), max_tokens=30))
        while engine.has_work:
            engine.step()
        return engine.stats().num_preemptions_total

    assert num_preemptions(None) == num_preemptions(OracleDrafter()) == 0


def test_spine_first_accepts_at_least_what_a_chain_does(
    tiny: Any, collect: Any, make_request: Any, known: Any
) -> None:
    """Round by round: both begin at the same places, for the oracle's candidates depend on the tokens so far."""
    text = known(PROMPT, max_tokens=60)

    def accepted(speculation: SpeculationSettings, prompt: list[int]) -> int:
        engine = tiny.engine(drafter=OracleDrafter([text]), speculation=speculation)
        collect(engine, [make_request("a", prompt, max_tokens=7)])
        first = next(verified for record in engine.steps for verified in record.rounds)
        return first.accepted_len

    chain = SpeculationSettings(tree_budget=5, tree_top_k=4, is_spine_first=True)
    pairs = [(accepted(chain, text[:stop]), accepted(SPINE, text[:stop])) for stop in range(35, 80, 2)]
    assert all(of_tree >= of_chain for of_chain, of_tree in pairs)
    assert sum(of_tree for _, of_tree in pairs) > sum(of_chain for of_chain, _ in pairs)


def test_in_half_precision_drafts_decide_only_near_ties(
    tiny: Any, collect: Any, make_request: Any, known: Any
) -> None:
    """bfloat16 rounds differently in passes of different shapes: where output parts, the target hardly preferred the
    one token to the other."""
    model = load_model(open_checkpoint(tiny.folder), dtype=torch.bfloat16)
    half = replace(tiny, model=model)
    num_same = 0
    for start in range(0, 60, 10):
        prompt = list(range(start, start + 20))
        request = make_request("a", prompt, max_tokens=30, num_logprobs=2)
        plain = collect(half.engine(kv_dtype="bfloat16"), [request])["a"]
        drafter = OracleDrafter([[*prompt, *plain.token_ids]], kv_layers=(), tapped_layers=())
        drafted = collect(half.engine(kv_dtype="bfloat16", drafter=drafter, speculation=TREE), [request])["a"]
        pairs = zip(plain.token_ids, drafted.token_ids, strict=True)
        place = next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
        if place is None:
            num_same += 1
            continue
        (_, first), (_, second) = plain.logprobs[place].alternatives
        assert first - second < 0.25, "8 bits of mantissa of logits up to 10"
    assert num_same >= 3
