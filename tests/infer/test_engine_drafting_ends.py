"""A request that ends inside an accepted path, or whose end limits what is drafted: as if token came by token."""

from __future__ import annotations

from typing import Any

import pytest
from oracle_drafter import OracleDrafter

from deepdraft.infer.settings import SpeculationSettings

PROMPT = list(range(40, 71))
CHAIN = SpeculationSettings(tree_budget=5, tree_top_k=1)
TREE = SpeculationSettings(tree_budget=12, tree_top_k=4)
SPINE = SpeculationSettings(tree_budget=12, tree_top_k=4, is_spine_first=True)


@pytest.mark.parametrize("speculation", [CHAIN, SPINE])
def test_an_end_inside_an_accepted_path(
    tiny: Any, collect: Any, make_request: Any, known: Any, speculation: SpeculationSettings
) -> None:
    """Wherever the end falls: the same tokens, text and reason as plain decoding, and nothing behind the end in the
    cache, the drafter's layer included."""
    text = known(PROMPT, max_tokens=24)
    output = text[len(PROMPT) :]
    ends = [place for place, token_id in enumerate(output) if place and token_id not in output[:place]]
    num_inside = 0
    for place in ends[:9]:
        request = make_request("a", PROMPT, max_tokens=24, num_logprobs=0, stop_token_ids=(output[place],))
        engine = tiny.engine(drafter=OracleDrafter([text], first_frac=1.0, second_frac=0.0), speculation=speculation)
        plain = tiny.engine()
        expected = collect(plain, [request])["a"]
        answer = collect(engine, [request])["a"]
        assert (answer.token_ids, answer.text) == (expected.token_ids, expected.text)
        assert [logprob.token_id for logprob in answer.logprobs] == answer.token_ids
        assert answer.last.finish_reason == "stop"
        assert engine.stats().num_cached_pages == plain.stats().num_cached_pages
        totals = engine.steps.totals["verify"]
        num_inside += totals.num_truncated_rounds
        # Going on behind the end comes from the cache, and its rows are the right ones: OracleDrafter looks.
        longer = make_request("b", [*PROMPT, *answer.token_ids, 1, 2, 3], max_tokens=6)
        assert collect(engine, [longer])["b"].token_ids == collect(plain, [longer])["b"].token_ids
    assert num_inside >= 4


def test_eos_inside_an_accepted_path(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    hot = {"max_tokens": 20, "temperature": 50.0}
    plain = collect(tiny_llama.engine(), [make_request(str(seed), PROMPT, seed=seed, **hot) for seed in range(60)])
    name, output = next((name, a.token_ids) for name, a in plain.items() if 256 in a.token_ids[2:-2])
    drafter = OracleDrafter([[*PROMPT, *output]], first_frac=1.0)
    engine = tiny_llama.engine(drafter=drafter, speculation=CHAIN)
    answer = collect(engine, [make_request("a", PROMPT, ignore_eos=False, seed=int(name), **hot)])["a"]
    assert answer.token_ids == output[: output.index(256) + 1]
    assert answer.last.finish_reason == "stop"


def test_a_stop_string_inside_an_accepted_path(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    params = {"max_tokens": 40, "temperature": 3.0, "seed": 5}
    free = collect(tiny_llama.engine(), [make_request("a", PROMPT, **params)])["a"]
    for start in range(3, 12):
        request = make_request("a", PROMPT, stop=(free.text[start : start + 3], "no such text"), **params)
        plain = collect(tiny_llama.engine(), [request])["a"]
        drafter = OracleDrafter([[*PROMPT, *free.token_ids]], first_frac=1.0)
        answer = collect(tiny_llama.engine(drafter=drafter, speculation=CHAIN), [request])["a"]
        assert (answer.text, answer.token_ids) == (plain.text, plain.token_ids)
        assert answer.last.finish_reason == "stop"


@pytest.mark.parametrize("max_tokens", [1, 2, 3, 4, 7, 11])
def test_no_draft_goes_beyond_max_tokens(
    tiny: Any, collect: Any, make_request: Any, known: Any, max_tokens: int
) -> None:
    """The depth of a tree is limited by what is still to come, so no token is computed to be dropped."""
    text = known(PROMPT, max_tokens=20)
    drafter = OracleDrafter([text], first_frac=1.0, second_frac=0.0)
    engine = tiny.engine(drafter=drafter, speculation=CHAIN, kv_pool_tokens=64)
    answer = collect(engine, [make_request("a", PROMPT, max_tokens=max_tokens)])["a"]
    assert [*PROMPT, *answer.token_ids] == text[: len(PROMPT) + max_tokens]
    assert answer.last.finish_reason == "length"
    totals = engine.steps.totals["verify"]
    assert totals.num_truncated_rounds == 0
    num_full, rest = divmod(max_tokens - 1, drafter.draft_len + 1)
    assert totals.num_rounds == num_full + (rest > 1)


def test_min_tokens_block_by_depth(tiny: Any, collect: Any, make_request: Any, known: Any) -> None:
    text = known(PROMPT, max_tokens=20)
    stops = tuple(text[len(PROMPT) + 1 : len(PROMPT) + 5])
    for min_tokens in (0, 2, 3, 4, 6, 9):
        request = make_request("a", PROMPT, max_tokens=20, stop_token_ids=stops, min_tokens=min_tokens)
        plain = collect(tiny.engine(), [request])["a"]
        drafters = [OracleDrafter([text], first_frac=1.0), OracleDrafter([[*PROMPT, *plain.token_ids]])]
        for drafter in drafters:
            engine = tiny.engine(drafter=drafter, speculation=CHAIN)
            assert collect(engine, [request])["a"].token_ids == plain.token_ids


def test_abort_between_rounds(tiny: Any, make_request: Any, known: Any) -> None:
    engine = tiny.engine(drafter=OracleDrafter([known(PROMPT, max_tokens=40)]), speculation=TREE)
    engine.submit(make_request("a", PROMPT, max_tokens=40))
    for _ in range(5):
        engine.step()
    assert engine.abort("a")
    (output,) = engine.step()
    assert output.finish_reason == "abort" and output.speculation.num_rounds == 5 - 2
    assert engine.stats().num_held_pages == 0
