"""One pass over any mixture of parts gives each what it gets alone; a tree's nodes get what their path gets alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from oracle_drafter import OracleDrafter
from torch import Tensor

from deepdraft.infer.drafters.deferred import DeferredDrafter
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kv.layout import kv_layout
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.runner import Runner, build_batch
from deepdraft.infer.sequence import Part, Sequence
from deepdraft.infer.tokenizer.detokenizer import Detokenizer

PAGE = 4
CPU = torch.device("cpu")
Setup = tuple[Runner, Callable[[list[int]], Sequence], PagePool]


@pytest.fixture
def setup(tiny: Any, make_request: Any) -> Setup:
    pool = PagePool(kv_layout(tiny.model.config, page_size=PAGE, dtype=torch.float32), 64)
    runner = Runner(tiny.model, pool, attention_backend("torch", CPU))

    def sequence(token_ids: list[int]) -> Sequence:
        """With room for 32 tokens, none of them run."""
        return Sequence(
            request=make_request("a", token_ids),
            arrival_index=0,
            seed=0,
            end_token_ids=frozenset(),
            token_ids=token_ids,
            page_table=PageTable(PAGE, pool.allocate(8)),
            detokenizer=Detokenizer(tiny.tokenizer),
        )

    return runner, sequence, pool


def part(sequence: Sequence, token_ids: list[int], num_logit_rows: int = 1, **tree: Any) -> Part:
    return Part(sequence=sequence, token_ids=tuple(token_ids), num_logit_rows=num_logit_rows, **tree)


def run_and_keep(runner: Runner, parts: list[Part]) -> Tensor:
    logits = runner.run(parts).logits
    for each in parts:
        each.sequence.page_table.num_tokens = each.stop
    return logits


def test_the_batch_says_where_everything_is(setup: Setup) -> None:
    _, sequence, _ = setup
    one, two = sequence([5, 6, 7]), sequence(list(range(20)))
    two.page_table.num_tokens = 9
    batch = build_batch([part(one, [5, 6, 7], 0), part(two, [30, 31], 2)], page_size=PAGE, device=CPU)
    assert batch.token_ids.tolist() == [5, 6, 7, 30, 31]
    assert batch.positions.tolist() == [0, 1, 2, 9, 10]
    assert batch.slots.tolist() == [*range(3), *(8 * PAGE + position for position in (9, 10))]
    assert batch.logit_rows.tolist() == [3, 4]
    assert batch.plan.kv_lens == (3, 11)
    assert [len(pages) for pages in batch.plan.pages] == [1, 3]


def test_a_tree_s_siblings_share_a_position_but_not_a_slot(setup: Setup) -> None:
    _, sequence, _ = setup
    one = sequence([5])
    one.page_table.num_tokens = 6
    mask = torch.tensor([[True, False, False], [True, True, False], [True, False, True]])
    batch = build_batch([part(one, [1, 2, 3], 3, tail_mask=mask, depths=(0, 1, 1))], page_size=PAGE, device=CPU)
    assert batch.positions.tolist() == [6, 7, 7]
    assert batch.slots.tolist() == [6, 7, 8]
    assert batch.plan.tail_masks[0] is not None and torch.equal(batch.plan.tail_masks[0], mask)


def test_a_mixture_is_each_alone(setup: Setup) -> None:
    runner, sequence, _ = setup
    prompt, other = list(range(40, 59)), list(range(90, 97))

    def parts(first: Sequence, second: Sequence) -> list[Part]:
        return [part(first, prompt[11:]), part(second, other, 3)]

    first, second = sequence(prompt), sequence(other)
    run_and_keep(runner, [part(first, prompt[:11], 0)])
    together = run_and_keep(runner, parts(first, second))
    first, second = sequence(prompt), sequence(other)
    run_and_keep(runner, [part(first, prompt[:11], 0)])
    alone = torch.cat([run_and_keep(runner, [each]) for each in parts(first, second)])
    assert together.shape == (4, 264)
    assert torch.allclose(together, alone, atol=1e-4)
    whole = run_and_keep(runner, [part(sequence(prompt), prompt)])
    assert torch.allclose(together[:1], whole, atol=1e-4)


def test_each_node_of_a_tree_is_its_path_alone(setup: Setup) -> None:
    runner, sequence, _ = setup
    prompt = list(range(40, 53))
    #        bonus, then two children, two children of the first, one of the second
    parents = [-1, 0, 0, 1, 1, 2]
    tokens = [7, 100, 101, 102, 103, 104]
    paths: list[list[int]] = []
    for node, parent in enumerate(parents):
        paths.append([*(paths[parent] if parent >= 0 else []), node])
    mask = torch.zeros(6, 6, dtype=torch.bool)
    for node, path in enumerate(paths):
        mask[node, path] = True
    depths = tuple(len(path) - 1 for path in paths)

    verified = sequence(prompt)
    run_and_keep(runner, [part(verified, prompt, 0)])
    company = sequence(prompt)
    tree = part(verified, tokens, 6, tail_mask=mask, depths=depths)
    logits = runner.run([part(company, prompt), tree]).logits[1:]
    for node, path in enumerate(paths):
        alone = sequence(prompt)
        run_and_keep(runner, [part(alone, prompt, 0)])
        expected = run_and_keep(runner, [part(alone, [tokens[step] for step in path])])
        assert torch.allclose(logits[node], expected[0], atol=1e-4)


def test_a_walk_down_the_tree_goes_on_after_a_move(setup: Setup) -> None:
    """What a verify step does with the seam: rows of the path are packed behind the prefix, then decode goes on."""
    runner, sequence, pool = setup
    prompt = list(range(40, 53))
    one = sequence(prompt)
    run_and_keep(runner, [part(one, prompt, 0)])
    start = one.page_table.num_tokens
    mask = torch.tensor([[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 0, 1, 1]], dtype=torch.bool)
    runner.run([part(one, [7, 100, 101, 102], 4, tail_mask=mask, depths=(0, 1, 1, 2))])
    slots = one.page_table.slots(start, start + 4)
    pool.move(slots[[0, 2, 3]], slots[:3])
    one.page_table.num_tokens = start + 3
    logits = run_and_keep(runner, [part(one, [55])])
    expected = run_and_keep(runner, [part(sequence(prompt), [*prompt, 7, 101, 102, 55])])
    assert torch.allclose(logits, expected, atol=1e-4)


def test_the_drafter_takes_in_every_row(tiny: Any, setup: Setup) -> None:
    """Of prompts, decode rows and trees in one pass: at the slots and positions of the target's own rows, with what
    left the tapped layers."""
    _, sequence, _ = setup
    drafter = OracleDrafter(tapped_layers=(1, 0))
    layout = kv_layout(tiny.model.config, page_size=PAGE, dtype=torch.float32, drafter_layers=drafter.kv_layers)
    pool = PagePool(layout, 64)
    attention = attention_backend("torch", CPU)
    runner = Runner(tiny.model, pool, attention, DeferredDrafter(drafter))
    one, two = sequence(list(range(40, 53))), sequence([7, 8, 9, 50])
    run_and_keep(runner, [part(two, [7, 8, 9], 0)])
    mask = torch.tensor([[1, 0, 0], [1, 1, 0], [1, 0, 1]], dtype=torch.bool)
    parts = [part(one, one.token_ids), part(two, [50, 100, 101], 3, tail_mask=mask, depths=(0, 1, 1))]
    ran = runner.run(parts)
    assert ran.logits.shape == (1 + 3, 264)
    assert ran.forward_s > 0 and ran.absorb_s > 0
    layer = pool.layer(len(layout.layers) - 1)
    slots = torch.cat([one.page_table.slots(0, 13), two.page_table.slots(0, 6)])
    assert layer.keys[slots, 0, 0].tolist() == [*one.token_ids, 7, 8, 9, 50, 100, 101]
    assert layer.keys[slots, 0, 1].tolist() == [*range(13), 0, 1, 2, 3, 4, 4]
    batch = build_batch(parts, page_size=PAGE, device=CPU)
    tapped = tiny.model.forward(batch, pool, attention, tapped_layers=(1, 0))
    assert tapped.taps.shape == (13 + 3, 2 * 32)
    torch.testing.assert_close(layer.values[batch.slots, 0], tapped.taps[:, : layer.values.shape[-1]])


def test_without_a_drafter_nothing_is_absorbed(setup: Setup) -> None:
    runner, sequence, _ = setup
    assert runner.run([part(sequence([5, 6]), [5, 6])]).absorb_s == 0.0
