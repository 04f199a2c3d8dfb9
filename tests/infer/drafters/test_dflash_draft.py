"""From draft logits to marginals: depths, several requests, and drafts at a temperature."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from drafting_case import Drafting, random_tokens
from torch import Tensor

from deepdraft.infer.drafters.dflash import noisy_scores
from deepdraft.infer.drafters.drafter import DraftRequest
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.request import SamplingParams
from deepdraft.infer.sampler import SamplingRow, sample
from deepdraft.infer.tree.marginals import Marginals

DraftingOf = Callable[..., Drafting]
VOCAB_SIZE = 50


def drafted(drafting: Drafting, requests: list[DraftRequest], top_k: int = 3) -> tuple[Marginals, ...]:
    return drafting.drafter.draft(requests, drafting.pool, drafting.attention, top_k=top_k)


def same(one: Marginals, other: Marginals) -> bool:
    return bool((one.token_ids == other.token_ids).all()) and bool(abs(one.log_probs - other.log_probs).max() < 1e-5)


def asked(token_ids: list[int], temperature: float, seed: int) -> DraftRequest:
    """A request whose pages don't matter."""
    return DraftRequest(token_ids, PageTable(1), 1000, temperature, seed)


def test_each_depth_has_its_likeliest_tokens(drafting_of: DraftingOf) -> None:
    drafting = drafting_of()
    token_ids = random_tokens(20)
    drafting.prefill("a", token_ids)
    (found,) = drafted(drafting, [drafting.request("a", token_ids)], top_k=4)
    expected = drafting.logits({"a": token_ids})[0].log_softmax(-1).sort(dim=-1, descending=True)
    assert found.token_ids.tolist() == expected.indices[:, :4].tolist()
    assert torch.allclose(torch.from_numpy(found.log_probs), expected.values[:, :4].float(), atol=1e-5)


def test_each_request_has_the_depth_that_is_of_use_to_it(drafting_of: DraftingOf) -> None:
    """What is drafted at a depth doesn't depend on how many depths are wanted; some want none."""
    drafting = drafting_of()
    texts = {name: random_tokens(10 + seed, seed) for seed, name in enumerate("abcd")}
    for name, token_ids in texts.items():
        drafting.prefill(name, token_ids)
    wanted = {"a": 2, "b": 0, "c": 9, "d": 1}
    requests = [drafting.request(name, texts[name], max_draft_len=depth) for name, depth in wanted.items()]
    found = dict(zip(wanted, drafted(drafting, requests), strict=True))
    assert {name: marginals.draft_len for name, marginals in found.items()} == {"a": 2, "b": 0, "c": 5, "d": 1}
    for name in ("a", "c", "d"):
        (alone,) = drafted(drafting, [drafting.request(name, texts[name])])
        depth = found[name].draft_len
        assert same(found[name], Marginals(alone.log_probs[:depth], alone.token_ids[:depth]))


def test_nothing_is_run_where_nothing_is_wanted(drafting_of: DraftingOf) -> None:
    """No context was ever absorbed: a pass would read NaN."""
    drafting = drafting_of()
    requests = [drafting.request(name, [1, 2, 3], max_draft_len=0) for name in "ab"]
    assert [marginals.draft_len for marginals in drafted(drafting, requests)] == [0, 0]
    assert drafted(drafting, []) == ()


def test_drafts_at_a_temperature_depend_on_prefix_and_seed_alone(drafting_of: DraftingOf) -> None:
    drafting = drafting_of()
    texts = {name: random_tokens(10 + seed, seed) for seed, name in enumerate("abc")}
    for name, token_ids in texts.items():
        drafting.prefill(name, token_ids)
    hot = [drafting.request(name, texts[name], temperature=1.5, seed=seed) for seed, name in enumerate("abc")]
    together = drafted(drafting, hot)
    for request, found in zip(hot, together, strict=True):
        assert same(drafted(drafting, [request])[0], found)
    (cold,) = drafted(drafting, [drafting.request("a", texts["a"])])
    mixed = drafted(drafting, [hot[2], drafting.request("a", texts["a"]), hot[1]])
    for found, expected in zip(mixed, (together[2], cold, together[1]), strict=True):
        assert same(found, expected)
    (other_seed,) = drafted(drafting, [drafting.request("a", texts["a"], temperature=1.5, seed=99)])
    assert not same(other_seed, together[0])


def test_a_drafter_that_thinks_like_the_target_draws_like_it() -> None:
    """The best draft is the token that the sampler chooses at that position from the same logits."""
    generator = torch.Generator().manual_seed(0)
    for seed in range(20):
        logits = 3 * torch.randn(4, VOCAB_SIZE, generator=generator)
        request = asked(list(range(7 + seed)), temperature=0.8, seed=seed)
        params = SamplingParams(max_tokens=9, temperature=0.8)
        rows = [SamplingRow(params=params, seed=seed, position=7 + seed + depth) for depth in range(4)]
        chosen = [each.token_id for each in sample(logits, rows)]
        assert noisy_scores(logits, request).argmax(-1).tolist() == chosen


def test_the_noise_raises_acceptance() -> None:
    """A drafter somewhat off its target, at temperature 1: how often the first draft is what the target draws, with
    the target's noise against without. Without, it is at most what the likeliest token has."""
    generator = torch.Generator().manual_seed(1)
    num_rounds = 400
    with_noise, without_noise = 0, 0
    for seed in range(num_rounds):
        target = 1.5 * torch.randn(1, VOCAB_SIZE, generator=generator)
        draft = target + 0.3 * torch.randn(1, VOCAB_SIZE, generator=generator)
        request = asked([1, 2, 3], temperature=1.0, seed=seed)
        params = SamplingParams(max_tokens=9, temperature=1.0)
        (chosen,) = sample(target, [SamplingRow(params=params, seed=seed, position=3)])
        with_noise += int(noisy_scores(draft, request).argmax()) == chosen.token_id
        without_noise += int(draft.argmax()) == chosen.token_id
    assert with_noise > 0.6 * num_rounds
    assert without_noise < 0.4 * num_rounds


@pytest.mark.parametrize("temperature", [1e-40, 1e-3])
def test_a_vanishing_temperature_drafts_as_a_greedy_request(temperature: float) -> None:
    logits: Tensor = 5 * torch.randn(3, VOCAB_SIZE, generator=torch.Generator().manual_seed(2))
    scores = noisy_scores(logits, asked([1, 2], temperature, seed=4))
    assert not scores.isnan().any()
    assert scores.argmax(-1).tolist() == logits.argmax(-1).tolist()
