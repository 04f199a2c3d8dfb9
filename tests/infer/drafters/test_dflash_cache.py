"""The drafter's rows in the pool: what is written, read, shared and moved, and what is left alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from dflash_parity import agree, plain_logits, plain_of
from drafting_case import DrafterFolder, Drafting, random_tokens
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.batch import Rows
from deepdraft.infer.layers.rope import adjacent_pairs

FORMS = ["latent", "grouped"]
DraftingOf = Callable[..., Drafting]


@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_any_schedule_drafts_like_a_single_pass(
    data: st.DataObject, drafting_of: DraftingOf, usual: DrafterFolder
) -> None:
    """Requests in chunks of any length, several a pass, drafted for in between."""
    lens = data.draw(st.lists(st.integers(2, 30), min_size=1, max_size=3), label="lengths")
    drafting = drafting_of(
        form=data.draw(st.sampled_from(FORMS), label="form"),
        page_size=data.draw(st.sampled_from([1, 2, 5, 16]), label="page_size"),
    )
    texts = {str(index): random_tokens(length, index) for index, length in enumerate(lens)}
    left = {name: token_ids[:-1] for name, token_ids in texts.items()}
    while left:
        names = data.draw(st.lists(st.sampled_from(sorted(left)), min_size=1, unique=True), label="requests")
        chunks = {name: left[name][: data.draw(st.integers(1, len(left[name])), label="tokens")] for name in names}
        drafting.run(chunks)
        left = {name: rest[len(chunks.get(name, ())) :] for name, rest in left.items()}
        left = {name: rest for name, rest in left.items() if rest}
        ready = {name: token_ids for name, token_ids in texts.items() if name not in left}
        if ready:
            for logits, token_ids in zip(drafting.logits(ready), ready.values(), strict=True):
                assert agree(logits, plain_logits(drafting, usual, token_ids))


def test_rows_in_the_pool_tap_for_tap(drafting_of: DraftingOf, usual: DrafterFolder) -> None:
    drafting = drafting_of(page_size=3)
    token_ids = random_tokens(30)
    taps = drafting.prefill("a", token_ids, chunk_len=11)
    slots = drafting.requests["a"].slots(0, 29)
    order = adjacent_pairs(8)
    for index, (keys, values) in enumerate(plain_of(usual).context_rows(taps)):
        layer = drafting.pool.layer(drafting.target.config.num_layers + index)
        assert agree(layer.keys[slots], keys[..., order])
        assert agree(layer.values[slots], values)


def test_a_cache_hit_drafts_like_a_cold_request(drafting_of: DraftingOf, usual: DrafterFolder) -> None:
    """The prefix's pages are another request's; only the rest is run."""
    drafting = drafting_of(page_size=4)
    first = random_tokens(30)
    drafting.prefill("a", first)
    hit = [*first[:16], *random_tokens(10, 1)]
    table = drafting.grown("b", 0)
    table.pages, table.num_tokens = drafting.requests["a"].pages[:4], 16
    drafting.prefill("b", hit)
    assert agree(drafting.logits({"b": hit})[0], plain_logits(drafting, usual, hit))


def test_features_missing_on_a_hit_would_be_seen(drafting_of: DraftingOf) -> None:
    """Pages that hold the target's rows alone: what isn't absorbed isn't there to draft with."""
    drafting = drafting_of(page_size=4)
    token_ids = random_tokens(30)
    drafting.prefill("a", token_ids)
    lost = drafting.requests["a"].slots(4, 8)
    drafting.pool.layer(drafting.target.config.num_layers).keys[lost] = torch.nan
    assert drafting.logits({"a": token_ids}).isnan().any()


def test_absorbing_without_features_is_refused(drafting_of: DraftingOf) -> None:
    drafting = drafting_of()
    row = torch.tensor([0])
    with pytest.raises(ValueError, match=r"layers \(3, 0, 2\) were not tapped"):
        drafting.drafter.absorb(Rows(row, row, row), None, drafting.pool)


def test_rounds_of_trees_leave_the_cache_of_a_fresh_prefill(drafting_of: DraftingOf, usual: DrafterFolder) -> None:
    """Draft, verify a tree, keep one of its paths, and again: siblings' features go with their rows."""
    parents = (-1, 0, 0, 1, 2, 4)
    depths = (0, 1, 1, 2, 2, 3)
    mask = torch.eye(6, dtype=torch.bool)
    for node, parent in enumerate(parents[1:], start=1):
        mask[node] |= mask[parent]
    drafting = drafting_of(page_size=3)
    token_ids = random_tokens(20)
    drafting.prefill("a", token_ids)
    table = drafting.requests["a"]
    for seed, path in enumerate([(0, 2, 4, 5), (0, 1), (0,), (0, 2, 4)], start=1):
        drafting.logits({"a": token_ids})
        nodes = [token_ids[-1], *random_tokens(5, seed)]
        drafting.run({"a": nodes}, depths=depths, mask=mask)
        slots = table.slots(table.num_tokens, table.num_tokens + 6)
        drafting.pool.move(slots[list(path)], slots[: len(path)])
        table.num_tokens += len(path)
        token_ids = [*token_ids[:-1], *(nodes[node] for node in path), *random_tokens(1, seed + 100)]
        assert agree(drafting.logits({"a": token_ids})[0], plain_logits(drafting, usual, token_ids))


@pytest.mark.parametrize("page_size", [1, 4, 16])
def test_a_draft_pass_writes_its_own_scratch_rows_and_nothing_else(page_size: int, drafting_of: DraftingOf) -> None:
    drafting = drafting_of(page_size=page_size, draft_window=5)
    texts = {"a": random_tokens(23), "b": random_tokens(11, 1), "other": random_tokens(30, 2)}
    for name, token_ids in texts.items():
        drafting.prefill(name, token_ids)
    drafted = {name: texts[name] for name in ("a", "b")}
    before = [tensor.clone() for tensor in drafting.rows()]
    first = drafting.logits(drafted)
    scratch = torch.cat([drafting.requests[name].slots(len(t) - 1, len(t) + 5) for name, t in drafted.items()])
    untouched = torch.ones(before[0].shape[0], dtype=torch.bool)
    untouched[scratch] = False
    num_target_rows = 2 * drafting.target.config.num_layers
    for index, (old, new) in enumerate(zip(before, drafting.rows(), strict=True)):
        kept = slice(None) if index < num_target_rows else untouched
        assert torch.equal(old[kept].nan_to_num(-7.0), new[kept].nan_to_num(-7.0))
    assert torch.equal(drafting.logits(drafted), first)


def test_a_block_without_room_is_not_written_elsewhere(drafting_of: DraftingOf) -> None:
    drafting = drafting_of(page_size=4)
    token_ids = random_tokens(21)
    drafting.prefill("a", token_ids)
    request = drafting.request("a", token_ids)
    del request.page_table.pages[-1]
    with pytest.raises(ValueError, match="6 pages of 4 can't hold 26 tokens"):
        drafting.drafter.draft([request], drafting.pool, drafting.attention, top_k=1)
