"""The engine with a real drafter: DFlash with random weights, and prompt lookup on the embedded model.

Random weights never guess a greedy token. At a high temperature the noise decides, which drafter and target share, so
there most of what they draft is accepted: the way of accepted rows through the drafter's layers is taken as well.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from drafting_case import write_drafter
from oracle_drafter import OracleDrafter

from deepdraft.cost.kv import pool_bytes
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.control.decision import SpeculationMode
from deepdraft.infer.drafters.dflash import DflashDrafter
from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.drafters.open import open_drafter
from deepdraft.infer.engine import Engine
from deepdraft.infer.models.load import load_model
from deepdraft.infer.request import Request
from deepdraft.infer.settings import EngineSettings, SpeculationSettings

TREE = SpeculationSettings(tree_budget=12, tree_top_k=4)
HOT = {"temperature": 60.0, "seed": 3}
PROMPT = list(range(40, 71))
EMBEDDED_DRAFTER = embedded_model_path().parent / "embedded_drafter"
DrafterFor = Callable[..., Drafter]


@pytest.fixture(scope="session")
def dflash_for(tmp_path_factory: pytest.TempPathFactory) -> DrafterFor:
    """A drafter of a block of 6 for one of the tiny models; its mask token is one that no prompt has."""
    path = tmp_path_factory.mktemp("drafters") / "tiny"
    nested = {"mask_token_id": 260, "target_layer_ids": [1, 0]}
    write_drafter(path, hidden_size=32, vocab_size=264, num_target_layers=2, dflash_config=nested)

    def make(tiny: Any, **values: Any) -> Drafter:
        drafter = open_drafter(path, tiny.model, **values)
        assert isinstance(drafter, DflashDrafter)
        return drafter

    return make


@pytest.mark.parametrize("window", [{}, {"draft_window": 16, "draft_sink": 4}])
def test_company(tiny: Any, collect: Any, make_request: Any, dflash_for: DrafterFor, window: dict[str, int]) -> None:
    rng = random.Random(4)
    trunk = [rng.randrange(256) for _ in range(30)]
    requests = [
        make_request(
            str(number),
            [*trunk[: rng.randrange(30)], *(rng.randrange(256) for _ in range(rng.randrange(1, 20)))],
            max_tokens=rng.randrange(2, 24),
            **({"temperature": rng.choice([2.0, 60.0]), "seed": number} if number % 2 else {}),
        )
        for number in range(14)
    ]
    alone = {each.request_id: collect(tiny.engine(), [each])[each.request_id].token_ids for each in requests}
    engine = tiny.engine(
        drafter=dflash_for(tiny, **window), speculation=TREE, kv_pool_tokens=140, defragment=True, chunk_len=11
    )
    answers = collect(engine, requests)
    assert {name: answer.token_ids for name, answer in answers.items()} == alone
    assert engine.stats().num_preemptions_total > 0
    assert engine.steps.totals["verify"].num_accepted_tokens > 20
    again = collect(engine, requests)
    assert {name: answer.token_ids for name, answer in again.items()} == alone
    assert engine.stats().num_cached_tokens_total > 100


def test_the_cache_after_many_rounds_is_that_of_a_fresh_prefill(
    tiny: Any, collect: Any, make_request: Any, dflash_for: DrafterFor
) -> None:
    """In the drafter's layers too, whose rows came from verify passes and were moved with the target's."""
    engine = tiny.engine(drafter=dflash_for(tiny), speculation=TREE, has_radix_cache=False)
    rounds = collect(engine, [make_request("a", PROMPT, max_tokens=80, **HOT)])["a"]
    histogram = rounds.last.speculation.accepted_len_histogram
    assert sum(histogram[1:]) > 8, "rows were moved"
    fresh = tiny.engine(drafter=dflash_for(tiny), speculation=TREE, has_radix_cache=False, chunk_len=9)
    text = [*PROMPT, *rounds.token_ids]
    collect(fresh, [make_request("b", text[:-1], max_tokens=1)])
    # Nothing else ran in either pool: a lone request has the first pages, and free ones keep what was written.
    assert len(engine.pool.layout.layers) == 2 + 3
    for index in range(2 + 3):
        ours, theirs = engine.pool.layer(index), fresh.pool.layer(index)
        for mine, other in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
            torch.testing.assert_close(mine[: len(text) - 1], other[: len(text) - 1], atol=2e-5, rtol=1e-4)


def test_a_hit_drafts_as_a_cold_start_does(
    tiny: Any, collect: Any, make_request: Any, dflash_for: DrafterFor
) -> None:
    engine = tiny.engine(drafter=dflash_for(tiny), speculation=TREE)
    request = make_request("a", PROMPT, max_tokens=40, **HOT)
    cold, hit = (collect(engine, [request])["a"] for _ in range(2))
    assert (cold.last.num_cached_tokens, hit.last.num_cached_tokens) == (0, 28)
    assert hit.token_ids == cold.token_ids
    assert hit.last.speculation.num_accepted_tokens > 10
    assert hit.last.speculation.accepted_len_histogram == cold.last.speculation.accepted_len_histogram


def test_the_pool_is_what_was_predicted_for_both(tiny: Any, dflash_for: DrafterFor) -> None:
    drafter = dflash_for(tiny)
    engine = tiny.engine(drafter=drafter, kv_pool_tokens=640)
    plain = tiny.engine(kv_pool_tokens=640)
    bytes_per_token = engine.pool.layout.bytes_per_token
    assert (
        bytes_per_token - plain.pool.layout.bytes_per_token == 3 * 2 * 2 * 8 * 4
    )  # layers, k and v, heads, dim, f32
    assert engine.pool.num_bytes == pool_bytes(640, bytes_per_token=bytes_per_token, page_size=4)


@dataclass
class Embedded:
    """The embedded model, prompts of real text, and what it says to them without a drafter."""

    model: Any
    tokenizer: Any
    requests: list[Request]
    plain: dict[str, Any]

    def engine(self, drafter: Drafter | None, mode: SpeculationMode = "always") -> Engine:
        settings = EngineSettings(max_context_len=4096, kv_pool_tokens=8192, is_checked=True)
        return Engine(self.model, self.tokenizer, settings, drafter, replace(TREE, mode=mode))

    @property
    def texts(self) -> list[list[int]]:
        return [[*each.prompt_token_ids, *self.plain[each.request_id].token_ids] for each in self.requests]


@pytest.fixture(scope="module")
def embedded(collect: Any, make_request: Any) -> Embedded:
    checkpoint = open_checkpoint(embedded_model_path())
    found = Embedded(load_model(checkpoint, dtype=torch.float32), checkpoint.tokenizer(), [], {})
    source = Path(random.__file__).read_text()
    for number, start in enumerate(range(0, 24_000, 4_000)):
        prompt = found.tokenizer.encode(source[start : start + 900], add_special=False)
        heat = {"temperature": 0.8, "top_p": 0.95, "seed": number} if number % 3 == 2 else {}
        found.requests.append(make_request(str(number), prompt, max_tokens=24, num_logprobs=0, **heat))
    found.plain = collect(found.engine(None), found.requests)
    return found


@pytest.mark.parametrize("mode", ["auto", "never"])
def test_the_embedded_drafter_where_it_is_left_off(embedded: Embedded, collect: Any, mode: SpeculationMode) -> None:
    """Token for token what is said without it; `always` is below."""
    if not EMBEDDED_DRAFTER.is_dir():
        pytest.skip("the embedded drafter isn't there")
    engine = embedded.engine(open_drafter("embedded", embedded.model), mode)
    answers = collect(engine, embedded.requests)
    assert {name: answer.token_ids for name, answer in answers.items()} == {
        name: answer.token_ids for name, answer in embedded.plain.items()
    }
    assert (engine.steps.totals["verify"].num_rounds == 0) == (mode == "never")


@pytest.mark.parametrize("name", ["ngram", "oracle", "embedded"])
def test_the_embedded_model(embedded: Embedded, collect: Any, name: str) -> None:
    """Real text and a real model, greedy and sampled, several requests a step."""
    if name == "embedded" and not EMBEDDED_DRAFTER.is_dir():
        pytest.skip("the embedded drafter isn't there")
    drafter = (
        OracleDrafter(embedded.texts, vocab_size=4000) if name == "oracle" else open_drafter(name, embedded.model)
    )
    engine = embedded.engine(drafter)
    answers = collect(engine, embedded.requests)
    assert engine.steps.totals["verify"].num_accepted_tokens > 10
    for request_id, answer in answers.items():
        plain = embedded.plain[request_id]
        assert answer.token_ids == plain.token_ids and answer.text == plain.text
        for ours, theirs in zip(answer.logprobs, plain.logprobs, strict=True):
            assert ours.logprob == pytest.approx(theirs.logprob, abs=1e-3)
