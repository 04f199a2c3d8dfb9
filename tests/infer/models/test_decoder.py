"""The one forward path: however a sequence is cut into passes, pages and batches, its logits are the same.

What is compared with is transformers' single pass over the sequence, or our own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

FORMS = ["deepseek_v3", "llama", "qwen3"]
RTOL = 3e-5
"""Of the largest logit; float32's rounding in another order of summation."""


def agree(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool((one - other).abs().max() < RTOL * other.abs().max())


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("page_size", [1, 3, 16])
@pytest.mark.parametrize("chunk_len", [1, 10, 35, 200])
def test_prefill_in_chunks_over_shuffled_pages(
    form: str,
    backend: str,
    page_size: int,
    chunk_len: int,
    pair_of: Any,
    run_of: Any,
    tokens: Callable[..., list[int]],
) -> None:
    pair = pair_of(form)
    token_ids = tokens(48)
    run = run_of(pair.ours, page_size=page_size, backend=backend, seed=chunk_len)
    assert agree(run.logits("a", token_ids, chunk_len=chunk_len), pair.logits(token_ids))


@pytest.mark.parametrize("form", FORMS)
def test_decoding_token_by_token_after_a_prefill(
    form: str, pair_of: Any, run_of: Any, tokens: Callable[..., list[int]]
) -> None:
    pair = pair_of(form)
    token_ids = tokens(60)
    run = run_of(pair.ours)
    logits = torch.cat([run.logits("a", token_ids[:40]), run.logits("a", token_ids[40:], chunk_len=1)])
    assert agree(logits, pair.logits(token_ids))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", ["reference", "torch"])
def test_a_batch_of_chunks_and_decode_rows(
    form: str, backend: str, pair_of: Any, run_of: Any, part_of: Any, tokens: Callable[..., list[int]]
) -> None:
    """Requests with few and with many queries, in turn, in one pass."""
    pair = pair_of(form)
    sequences = {
        name: tokens(length, seed) for seed, (name, length) in enumerate({"a": 31, "b": 120, "c": 5}.items())
    }
    run = run_of(pair.ours, page_size=3, backend=backend)
    run.logits("a", sequences["a"][:30])
    run.logits("c", sequences["c"][:4])
    parts = [
        part_of("a", sequences["a"][30:]),
        part_of("b", sequences["b"]),
        part_of("c", sequences["c"][4:]),
        part_of("d", sequences["b"][:80]),
    ]
    logits = run.forward(parts).logits
    theirs = {name: pair.logits(token_ids) for name, token_ids in sequences.items()}
    expected = torch.cat([theirs["a"][30:], theirs["b"], theirs["c"][4:], theirs["b"][:80]])
    assert agree(logits, expected)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("form", FORMS)
def test_any_schedule_gives_the_single_pass_logits(
    form: str, data: st.DataObject, pair_of: Any, run_of: Any, part_of: Any, tokens: Callable[..., list[int]]
) -> None:
    pair = pair_of(form)
    lengths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=4), label="lengths")
    page_size = data.draw(st.sampled_from([1, 2, 5, 16]), label="page_size")
    many_queries = data.draw(st.sampled_from([None, 1, 4]), label="many_queries")
    model = pair.ours if form != "deepseek_v3" else dataclasses.replace(pair.ours, many_queries=many_queries)
    run = run_of(model, page_size=page_size)
    sequences = {str(index): tokens(length, index) for index, length in enumerate(lengths)}
    left = {name: list(token_ids) for name, token_ids in sequences.items()}
    found: dict[str, list[torch.Tensor]] = {name: [] for name in sequences}
    while left:
        chosen = data.draw(st.lists(st.sampled_from(sorted(left)), min_size=1, unique=True), label="requests")
        counts = [data.draw(st.integers(1, len(left[name])), label="tokens") for name in chosen]
        logits = run.forward([part_of(name, left[name][:n]) for name, n in zip(chosen, counts, strict=True)]).logits
        for name, rows in zip(chosen, logits.split(counts), strict=True):
            found[name].append(rows)
            left[name] = left[name][len(rows) :]
            if not left[name]:
                del left[name]
    for name, token_ids in sequences.items():
        assert agree(torch.cat(found[name]), pair.logits(token_ids))


TREE_PARENTS = (-1, 0, 0, 1, 1, 2, 5)
"""Two branches under the root, three leaves, one of them at depth 3."""


def path_to(node: int) -> list[int]:
    return [] if node < 0 else [*path_to(TREE_PARENTS[node]), node]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("many_queries", [1, 1000], ids=["expanded", "absorbed"])
def test_a_trees_nodes_see_their_own_path_alone(
    form: str,
    backend: str,
    many_queries: int,
    pair_of: Any,
    run_of: Any,
    part_of: Any,
    tokens: Callable[..., list[int]],
) -> None:
    pair = pair_of(form)
    model = pair.ours if form != "deepseek_v3" else dataclasses.replace(pair.ours, many_queries=many_queries)
    prompt, nodes, other = tokens(33), tokens(len(TREE_PARENTS), 1), tokens(20, 2)
    mask = torch.zeros(len(nodes), len(nodes), dtype=torch.bool)
    for node in range(len(nodes)):
        mask[node, path_to(node)] = True
    run = run_of(model, page_size=3, backend=backend)
    run.logits("a", prompt)
    tree = part_of("a", nodes, [len(path_to(node)) - 1 for node in range(len(nodes))], mask)
    logits = run.forward([part_of("b", other), tree]).logits[len(other) :]
    for node in range(len(nodes)):
        alone = pair.logits([*prompt, *(nodes[step] for step in path_to(node))])
        assert agree(logits[node], alone[-1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "rows",
    [[], [0], [11], [29], [30], [28, 29], [11, 29, 30], [30, 11, 11], [10, 29], [29, 28, 12], list(range(12, 31))],
    ids=str,
)
def test_logits_of_some_rows(
    form: str, rows: Sequence[int], pair_of: Any, run_of: Any, part_of: Any, tokens: Callable[..., list[int]]
) -> None:
    """Requests have rows 0 .. 11, 12 .. 29 and 30; ends of a request's rows and others, in any order."""
    pair = pair_of(form)
    parts = [part_of("a", tokens(12)), part_of("b", tokens(18, 1)), part_of("c", tokens(1, 2))]
    expected = run_of(pair.ours, backend="reference").forward(parts).logits[list(rows)]
    run = run_of(pair.ours)
    logits = run.forward(parts, rows).logits
    assert logits.shape == expected.shape
    assert torch.allclose(logits, expected, atol=3e-4)
    # What wasn't asked for must be in the pool all the same
    next_parts = [part_of("a", tokens(3, 5)), part_of("b", tokens(2, 6))]
    whole = torch.cat([pair.logits(tokens(12) + tokens(3, 5))[12:], pair.logits(tokens(18, 1) + tokens(2, 6))[18:]])
    assert agree(run.forward(next_parts).logits, whole)


@pytest.mark.parametrize("form", FORMS)
def test_logits_of_some_rows_of_a_tree(
    form: str, pair_of: Any, run_of: Any, part_of: Any, tokens: Callable[..., list[int]]
) -> None:
    pair = pair_of(form)
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    tree = part_of("a", tokens(3), [0, 1, 1], mask)
    whole = run_of(pair.ours).forward([tree]).logits
    assert agree(run_of(pair.ours).forward([tree], [2]).logits, whole[2:])


@pytest.mark.parametrize("form", FORMS)
def test_taps_are_the_layers_outputs(
    form: str, pair_of: Any, run_of: Any, part_of: Any, tokens: Callable[..., list[int]]
) -> None:
    pair = pair_of(form)
    token_ids = tokens(50)
    states = pair.hidden_states(token_ids)
    run = run_of(pair.ours, tapped_layers=(1, 0))
    passes = [run.forward([part_of("a", chunk)], [0]) for chunk in (token_ids[:30], token_ids[30:])]
    taps = torch.cat([one.taps for one in passes])
    assert agree(taps, torch.cat([states[2], states[1]], dim=-1))


@pytest.mark.parametrize("form", FORMS)
def test_the_last_layers_tap_is_before_the_final_norm(
    form: str, pair_of: Any, run_of: Any, part_of: Any, tokens: Callable[..., list[int]]
) -> None:
    """transformers' last hidden state is after it."""
    pair = pair_of(form)
    token_ids = tokens(20)
    run = run_of(pair.ours, tapped_layers=(2,))
    forwarded = run.forward([part_of("a", token_ids)], [3, 19])
    assert agree(pair.ours.norm(forwarded.taps), pair.hidden_states(token_ids)[3])
    assert agree(forwarded.logits, pair.logits(token_ids)[[3, 19]])


def test_no_taps_unless_asked_for(pair_of: Any, run_of: Any, part_of: Any) -> None:
    assert run_of(pair_of("llama").ours).forward([part_of("a", [1, 2])]).taps is None


@pytest.mark.parametrize("tapped", [(3,), (-1,), (0, 7)])
def test_a_layer_that_is_not_there_is_not_tapped(
    tapped: tuple[int, ...], pair_of: Any, run_of: Any, part_of: Any
) -> None:
    run = run_of(pair_of("llama").ours, tapped_layers=tapped)
    with pytest.raises(ValueError, match="the model has 3"):
        run.forward([part_of("a", [1, 2])])


def test_rounding_of_a_half_precision_model_is_that_of_its_dtype(
    pair_of: Any, run_of: Any, tokens: Callable[..., list[int]]
) -> None:
    """Weights and products in bfloat16; logits still come as float32."""
    pair = pair_of("deepseek_v3")
    token_ids = tokens(20)
    logits = run_of(pair.load(torch.bfloat16)).logits("a", token_ids)
    theirs = pair.logits(token_ids)
    assert logits.dtype == torch.float32
    assert 0 < (logits - theirs).abs().mean() < 0.1 * theirs.abs().mean()
