"""Where blocks stand, what they are to predict, and what they see."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.infer.drafter_training.blocks import NO_LABEL, blocks_at, drawn_anchors
from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.drafter_training.shape import DrafterShape


def _sample(num_tokens: int, num_prompt_tokens: int, start: int = 0) -> Sample:
    return Sample(start, num_prompt_tokens, torch.arange(100, 100 + num_tokens), torch.ones(num_tokens, 64))


def test_bonus_and_labels_are_the_tokens_from_the_anchor_on(shape: DrafterShape) -> None:
    blocks = blocks_at([_sample(20, 10)], torch.tensor([[10, 15]]), shape)
    assert blocks.bonus_ids.tolist() == [[110, 115]]
    assert blocks.labels.tolist() == [[[111, 112, 113], [116, 117, 118]]]
    assert blocks.block_positions.tolist() == [[[10, 11, 12, 13], [15, 16, 17, 18]]]


def test_positions_are_absolute(shape: DrafterShape) -> None:
    blocks = blocks_at([_sample(20, 10, start=700)], torch.tensor([[12]]), shape)
    assert blocks.block_positions[0, 0].tolist() == [712, 713, 714, 715]
    assert blocks.context_positions[0].tolist() == list(range(700, 712))


def test_behind_the_end_there_is_no_label(shape: DrafterShape) -> None:
    blocks = blocks_at([_sample(20, 10), _sample(30, 10)], torch.tensor([[18], [25]]), shape)
    assert blocks.labels.tolist() == [[[119, NO_LABEL, NO_LABEL]], [[126, 127, 128]]]


def test_a_block_sees_the_window_before_its_anchor(shape: DrafterShape) -> None:
    blocks = blocks_at([_sample(40, 20)], torch.tensor([[20, 30]]), shape)
    seen = [[i for i, is_seen in enumerate(row) if is_seen] for row in blocks.visible[0].tolist()]
    assert seen == [list(range(4, 20)), list(range(14, 30))]


def test_nothing_behind_a_samples_end_is_seen(shape: DrafterShape) -> None:
    """A short sample beside a long one is filled up with zeros, which no block of it reaches."""
    blocks = blocks_at([_sample(14, 10), _sample(60, 40)], torch.tensor([[12], [55]]), shape)
    assert not blocks.visible[0, 0, 12:].any()
    assert blocks.taps[0, 14:].abs().sum() == 0


@given(
    num_prompt=st.integers(1, 30),
    num_output=st.integers(2, 40),
    num_anchors=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_anchors_are_output_tokens_with_a_token_behind_them(
    num_prompt: int, num_output: int, num_anchors: int, seed: int
) -> None:
    sample = _sample(num_prompt + num_output, num_prompt)
    anchors = drawn_anchors([sample], num_anchors, torch.Generator().manual_seed(seed))[0].tolist()
    assert all(num_prompt <= anchor < num_prompt + num_output - 1 for anchor in anchors)
    assert anchors == sorted(anchors)
    if num_anchors <= num_output - 1:
        assert len(set(anchors)) == num_anchors


def test_the_first_output_token_can_be_an_anchor() -> None:
    sample = _sample(14, 10)
    draws = {int(drawn_anchors([sample], 1, torch.Generator().manual_seed(seed))) for seed in range(40)}
    assert draws == {10, 11, 12}


def test_anchors_follow_from_the_generator(samples: Sequence[Sample]) -> None:
    one, same, other = (drawn_anchors(samples, 5, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
