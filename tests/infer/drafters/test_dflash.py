"""Draft logits over a paged pool against the plain implementation, and that known mistakes would be seen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from dflash_parity import agree, plain_logits, plain_of
from drafting_case import MASK, DrafterFolder, Drafting, random_tokens
from plain_dflash import PlainDflash

from deepdraft.infer.errors import UnsupportedModel

FORMS = ["latent", "grouped"]
DraftingOf = Callable[..., Drafting]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize(("page_size", "chunk_len"), [(1, 1000), (3, 7), (16, 10), (4, 1)])
def test_several_requests_in_chunks_over_shuffled_pages(
    form: str, backend: str, page_size: int, chunk_len: int, drafting_of: DraftingOf, usual: DrafterFolder
) -> None:
    texts = {
        name: random_tokens(length, seed) for seed, (name, length) in enumerate({"a": 41, "b": 2, "c": 18}.items())
    }
    drafting = drafting_of(form=form, page_size=page_size, backend=backend)
    for name, token_ids in texts.items():
        drafting.prefill(name, token_ids, chunk_len=chunk_len)
    for logits, token_ids in zip(drafting.logits(texts), texts.values(), strict=True):
        assert agree(logits, plain_logits(drafting, usual, token_ids))


def test_a_mixed_pass_is_absorbed_request_by_request(drafting_of: DraftingOf, usual: DrafterFolder) -> None:
    """A prompt chunk beside a decode row, as a scheduler mixes them."""
    texts = {"a": random_tokens(20), "b": random_tokens(9, 1)}
    drafting = drafting_of()
    drafting.run({"a": texts["a"][:18]})
    drafting.run({"b": texts["b"][:8], "a": texts["a"][18:19]})
    for logits, token_ids in zip(drafting.logits(texts), texts.values(), strict=True):
        assert agree(logits, plain_logits(drafting, usual, token_ids))


@pytest.mark.parametrize("form", FORMS)
def test_features_are_the_tapped_layers_outputs(form: str, target_of: Any, drafting_of: Any, usual: Any) -> None:
    """Layer i is transformers' hidden_states[i + 1]; one off, and drafts would be others."""
    target = target_of(form)
    token_ids = random_tokens(25)
    drafting = drafting_of(target=target.single)
    drafting.prefill("a", token_ids)
    logits = drafting.logits({"a": token_ids})[0]
    states = target.hidden_states(token_ids[:-1])
    plain = PlainDflash(usual.tensors, usual.config, torch.float32)
    by_offset = {
        offset: plain.logits(
            torch.cat([states[layer + offset] for layer in (3, 0, 2)], dim=-1),
            token_ids[-1],
            target.single.embedding,
            target.single.output,
        )
        for offset in (0, 1, 2)
    }
    assert agree(logits, by_offset[1], rtol=1e-4)
    assert not agree(logits, by_offset[0], rtol=1e-2)
    assert not agree(logits, by_offset[2], rtol=1e-2)


@pytest.mark.parametrize(
    "fault",
    ["MASK in slot 0", "no hidden_norm", "no k_norm", "causal", "positions from 0", "shifted rows"],
)
def test_known_faults_of_other_implementations_would_be_seen(
    fault: str, drafting_of: DraftingOf, usual: DrafterFolder
) -> None:
    drafting = drafting_of()
    token_ids = random_tokens(25)
    drafting.prefill("a", token_ids)
    logits = drafting.logits({"a": token_ids})[0]
    assert agree(logits, plain_logits(drafting, usual, token_ids))
    assert not agree(logits, plain_logits(drafting, usual, token_ids, fault), rtol=1e-2)


@pytest.mark.parametrize(
    "changes",
    [
        {"is_causal": True},
        {"attention_bias": True},
        {"num_hidden_layers": 1},
        {"rope_scaling": {"rope_type": "yarn", "factor": 64.0, "original_max_position_embeddings": 16}},
        {"dflash_config": {"final_logit_softcapping": 2.0}},
        {"dflash_config": {"output_multiplier": 0.3, "input_embedding_scale": 2.5}},
        {"dflash_config": {"target_layer_ids": [4]}},
        {"dflash_config": {"target_layer_ids": [1, 1, 0, 4]}},
        {"block_size": None, "dflash_config": {"block_size": 3}},
    ],
    ids=str,
)
def test_what_a_config_can_say(
    changes: dict[str, Any], drafting_of: DraftingOf, folder_of: Callable[..., DrafterFolder], usual: DrafterFolder
) -> None:
    folder = folder_of(**changes)
    drafting = drafting_of(folder)
    token_ids = random_tokens(25)
    drafting.prefill("a", token_ids)
    expected = plain_logits(drafting, folder, token_ids)
    assert agree(drafting.logits({"a": token_ids})[0], expected)
    assert expected.shape[0] == folder.config.get("block_size", 3) - 1


@pytest.mark.parametrize("page_size", [1, 4, 7])
@pytest.mark.parametrize(("window", "sink"), [(1, 0), (8, 0), (10, 3), (5, 8), (39, 0), (40, 1), (500, 0)])
def test_window_and_sink_are_rounded_up_to_whole_pages(
    page_size: int, window: int, sink: int, drafting_of: DraftingOf, usual: DrafterFolder
) -> None:
    """Positions stay; a request shorter than the window, in the same pass, sees all of itself."""
    texts = {"a": random_tokens(41), "b": random_tokens(4, 1)}
    drafting = drafting_of(page_size=page_size, draft_window=window, draft_sink=sink)
    for name, token_ids in texts.items():
        drafting.prefill(name, token_ids)
    for logits, token_ids in zip(drafting.logits(texts), texts.values(), strict=True):
        num_context = len(token_ids) - 1
        sink_end = -(-sink // page_size) * page_size
        window_start = max(0, num_context - window) // page_size * page_size
        seen = [position for position in range(num_context) if position < sink_end or position >= window_start]
        assert agree(logits, plain_logits(drafting, usual, token_ids, seen=seen))


def test_layers_that_slide_have_their_window(
    drafting_of: DraftingOf, folder_of: Callable[..., DrafterFolder]
) -> None:
    sliding = {"layer_types": ["sliding_attention"] * 3, "sliding_window": 9, "use_sliding_window": True}
    folder = folder_of(**sliding, is_causal=False)
    token_ids = random_tokens(41)
    for window in (None, 30):
        drafting = drafting_of(folder, page_size=1, draft_window=window)
        drafting.prefill("a", token_ids)
        expected = plain_logits(drafting, folder, token_ids, seen=range(40 - 9, 40))
        assert agree(drafting.logits({"a": token_ids})[0], expected)


@pytest.mark.parametrize("draft_len", [1, 2, 5])
def test_a_block_shorter_than_trained(draft_len: int, drafting_of: DraftingOf, usual: DrafterFolder) -> None:
    drafting = drafting_of(draft_len=draft_len)
    assert (drafting.drafter.draft_len, drafting.drafter.scratch_len) == (draft_len, draft_len + 1)
    token_ids = random_tokens(25)
    drafting.prefill("a", token_ids)
    expected = plain_logits(drafting, usual, token_ids, block_size=draft_len + 1)
    assert agree(drafting.logits({"a": token_ids})[0], expected)


@pytest.mark.parametrize("draft_len", [-1, 0, 6])
def test_a_block_longer_than_trained_is_refused(draft_len: int, drafting_of: DraftingOf) -> None:
    with pytest.raises(UnsupportedModel, match=r"block_size is .*: the drafter was trained with 6"):
        drafting_of(draft_len=draft_len)


def test_the_order_and_the_company_of_requests_do_not_matter(drafting_of: DraftingOf) -> None:
    drafting = drafting_of()
    texts = {"a": random_tokens(23), "b": random_tokens(11, 1), "c": random_tokens(30, 2)}
    for name, token_ids in texts.items():
        drafting.prefill(name, token_ids)
    together = drafting.logits(texts)
    turned = drafting.logits({name: texts[name] for name in ("c", "a", "b")})
    alone = torch.cat([drafting.logits({name: token_ids}) for name, token_ids in texts.items()])
    assert agree(together, alone)
    assert agree(turned, alone[[2, 0, 1]])


@pytest.mark.parametrize("drafter_dtype", [None, torch.float32])
def test_bfloat16(drafter_dtype: torch.dtype | None, target_of: Any, drafting_of: Any, usual: DrafterFolder) -> None:
    """Products in bfloat16, logits still wide; a drafter of another dtype than the target's is possible."""
    target = target_of("grouped").load(torch.bfloat16)
    drafting = drafting_of(target=target, dtype=drafter_dtype)
    token_ids = random_tokens(25)
    taps = drafting.prefill("a", token_ids)
    logits = drafting.logits({"a": token_ids})[0]
    expected = plain_of(usual).logits(taps, token_ids[-1], target.embedding, target.output)
    assert logits.dtype == torch.float32
    assert 0 < (logits - expected).abs().mean() < 0.1 * expected.abs().mean()


def test_an_empty_context_is_no_special_case(drafting_of: DraftingOf, usual: DrafterFolder) -> None:
    """A prompt of one token: the bonus token is all there is."""
    drafting = drafting_of()
    target = drafting.target
    no_taps = torch.zeros(0, 3 * target.embedding.shape[1], dtype=torch.float64)
    expected = plain_of(usual).logits(no_taps, 7, target.embedding, target.output)
    assert agree(drafting.logits({"a": [7]})[0], expected)


def test_what_it_needs_of_the_engine(drafting_of: DraftingOf) -> None:
    drafter = drafting_of().drafter
    assert (drafter.name, drafter.draft_len, drafter.scratch_len) == ("dflash", 5, 6)
    assert drafter.tapped_layers == (3, 0, 2)
    assert [(layer.num_kv_heads, layer.key_dim, layer.value_dim) for layer in drafter.kv_layers] == [(2, 8, 8)] * 3
    assert MASK not in random_tokens(1000)
