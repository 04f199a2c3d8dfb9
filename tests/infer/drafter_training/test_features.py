"""Features of whole sequences."""

from __future__ import annotations

import torch

from deepdraft.infer.drafter_training.features import FeatureReader
from deepdraft.infer.drafter_training.target import Target


def _ids(num_tokens: int) -> list[int]:
    return torch.randint(0, 200, (num_tokens,), generator=torch.Generator().manual_seed(num_tokens)).tolist()


def test_the_end_of_a_sequence_has_the_features_it_has_in_the_whole(target: Target) -> None:
    reader = FeatureReader(target.model, (0, 1), 128)
    token_ids = _ids(90)
    whole = reader.taps(token_ids, 0)
    assert whole.shape == (90, 2 * 32)
    assert torch.equal(reader.taps(token_ids, 70), whole[70:])


def test_later_tokens_change_nothing_before_them(target: Target) -> None:
    reader = FeatureReader(target.model, (0, 1), 128)
    one, other = _ids(80), [*_ids(80)[:50], *reversed(_ids(80)[50:])]
    torch.testing.assert_close(reader.taps(one, 0)[:50], reader.taps(other, 0)[:50], atol=1e-2, rtol=1e-2)
    assert not torch.allclose(reader.taps(one, 0)[60:].float(), reader.taps(other, 0)[60:].float(), atol=0.1)


def test_nothing_is_left_of_the_sequence_before(target: Target) -> None:
    reader = FeatureReader(target.model, (1,), 128)
    alone = FeatureReader(target.model, (1,), 128).taps(_ids(40), 0)
    reader.taps(_ids(120), 0)
    assert torch.equal(reader.taps(_ids(40), 0), alone)


def test_chunks_make_no_difference(target: Target) -> None:
    token_ids = _ids(100)
    whole = FeatureReader(target.model, (0, 1), 128).taps(token_ids, 30)
    chunked = FeatureReader(target.model, (0, 1), 128, chunk_len=16).taps(token_ids, 30)
    torch.testing.assert_close(whole, chunked, atol=1e-2, rtol=1e-2)


def test_layers_stand_side_by_side_in_the_order_asked_for(target: Target) -> None:
    token_ids = _ids(20)
    both = FeatureReader(target.model, (0, 1), 32).taps(token_ids, 0)
    second = FeatureReader(target.model, (1,), 32).taps(token_ids, 0)
    assert torch.equal(both[:, 32:], second)


def test_a_sample_keeps_the_prompts_end(target: Target) -> None:
    prompt, output = _ids(50), _ids(12)
    sample = FeatureReader(target.model, (0, 1), 64).sample(prompt, output, 20)
    assert (sample.start, sample.num_prompt_tokens) == (30, 20)
    assert sample.token_ids.tolist() == [*prompt[30:], *output]
    assert len(sample.taps) == 32


def test_a_short_prompt_is_kept_whole(target: Target) -> None:
    sample = FeatureReader(target.model, (0, 1), 64).sample(_ids(8), _ids(5), 20)
    assert (sample.start, sample.num_prompt_tokens, len(sample.token_ids)) == (0, 8, 13)


def test_outputs_after_beginnings_of_one_text_have_the_samples_they_have_alone(target: Target) -> None:
    text, outputs = _ids(100), [(90, _ids(15)), (60, _ids(12)), (10, _ids(9))]
    together = FeatureReader(target.model, (0, 1), 128).samples_of_text(text, outputs, 20)
    for sample, (prompt_len, output) in zip(together, outputs, strict=True):
        alone = FeatureReader(target.model, (0, 1), 128).sample(text[:prompt_len], output, 20)
        assert (sample.start, sample.num_prompt_tokens) == (alone.start, alone.num_prompt_tokens)
        assert torch.equal(sample.token_ids, alone.token_ids)
        torch.testing.assert_close(sample.taps, alone.taps, atol=2e-2, rtol=2e-2)
        assert sample.is_long
