"""Candidates are the likeliest tokens of the whole vocabulary, with the probabilities of the whole vocabulary."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from deepdraft.infer.tree.marginals import Marginals, marginals


def random_logits(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_they_are_the_head_of_the_sorted_distribution(dtype: torch.dtype) -> None:
    logits = random_logits(3, 5, 700).to(dtype)
    before = logits.clone()
    found = marginals(logits, 8)
    ordered = logits.double().log_softmax(dim=-1).sort(dim=-1, descending=True, stable=True)
    assert len(found) == 3
    for row, request in enumerate(found):
        assert request.draft_len == 5
        assert request.log_probs.dtype == np.float32 and request.token_ids.dtype == np.int64
        np.testing.assert_allclose(request.log_probs, ordered.values[row, :, :8].numpy(), atol=2e-6)
        found_logits = logits[row].gather(-1, torch.from_numpy(request.token_ids))  # not by id: 16 bits often tie
        assert torch.equal(found_logits, logits[row].sort(dim=-1, descending=True).values[:, :8])
        assert all(len(set(token_ids)) == 8 for token_ids in request.token_ids.tolist())
    assert torch.equal(logits, before)


def test_half_precision_logits_get_single_precision_probabilities() -> None:
    logits = torch.zeros(1, 1, 5000, dtype=torch.bfloat16)
    # bfloat16 could not tell log(5000) = 8.517 from 8.5.
    assert marginals(logits, 1)[0].log_probs[0, 0] == pytest.approx(-np.log(5000), abs=1e-5)


def test_equal_ones_are_in_order_of_their_ids() -> None:
    logits = torch.tensor([[[1.0, 3.0, 0.0, 3.0, 1.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]]])
    assert marginals(logits, 6)[0].token_ids.tolist() == [[1, 3, 5, 0, 4, 2], [0, 1, 2, 3, 4, 5]]


def test_a_small_vocabulary_gives_all_it_has() -> None:
    (found,) = marginals(random_logits(1, 2, 5), 64)
    assert found.log_probs.shape == (2, 5)
    np.testing.assert_allclose(np.exp(found.log_probs).sum(axis=1), 1, atol=1e-6)


def test_a_likeliest_token_is_never_above_certain() -> None:
    logits = torch.full((1, 40, 300), -50.0)
    logits[0, torch.arange(40), torch.arange(40)] = torch.linspace(-49.0, 3e4, 40)
    assert (marginals(logits, 4)[0].log_probs <= 0).all()


def test_dropped_tokens_stay_dropped() -> None:
    logits = torch.tensor([[[0.0, -torch.inf, 1.0, -torch.inf]]])
    (found,) = marginals(logits, 4)
    assert found.log_probs[0, 2:].tolist() == [-np.inf, -np.inf]
    assert np.exp(found.log_probs).sum() == pytest.approx(1)


def test_rows_that_lie_apart_in_memory() -> None:
    logits = random_logits(50, 4, 2)
    strided = logits.permute(2, 1, 0)
    for found, expected in zip(marginals(strided, 3), marginals(strided.contiguous(), 3), strict=True):
        np.testing.assert_array_equal(found.token_ids, expected.token_ids)
        np.testing.assert_array_equal(found.log_probs, expected.log_probs)


def test_no_request_and_no_depth() -> None:
    assert marginals(torch.zeros(0, 3, 9), 2) == ()
    assert marginals(torch.zeros(1, 0, 9), 2)[0].draft_len == 0


@pytest.mark.parametrize("top_k", [0, -1])
def test_at_least_one_candidate(top_k: int) -> None:
    with pytest.raises(ValueError, match="top_k"):
        marginals(torch.zeros(1, 1, 9), top_k)


def test_log_probs_and_tokens_belong_together() -> None:
    with pytest.raises(ValueError, match=r"\[L, K\]"):
        Marginals(np.zeros((2, 3), dtype=np.float32), np.zeros((2, 2), dtype=np.int64))
