import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepdraft.infer.kernels import dense
from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.dense import DenseAttention, dense_attention, fused_attention, portable_attention

CPU = torch.device("cpu")
WAYS = pytest.mark.parametrize("attention", [portable_attention, fused_attention])
WIDTHS = pytest.mark.parametrize(("key_dim", "value_dim"), [(16, 16), (24, 8), (8, 24)])


def truth(queries: Tensor, keys: Tensor, values: Tensor, *, scale: float, mask: Tensor | None = None) -> Attended:
    scores = queries.double() @ keys.double().transpose(-1, -2) * scale
    if mask is not None:
        scores = scores + mask
    return Attended(scores.softmax(dim=-1) @ values.double(), scores.logsumexp(dim=-1))


def assert_right(found: Attended, expected: Attended) -> None:
    torch.testing.assert_close(found.out.double(), expected.out, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.lse.double(), expected.lse, atol=1e-5, rtol=0)


def random_mask(*shape: int) -> Tensor:
    """Every row sees its last key at least."""
    seen = torch.rand(shape) < 0.3
    seen[..., -1] = True
    return torch.zeros(shape).masked_fill(~seen, float("-inf"))


@WAYS
@WIDTHS
@settings(deadline=None, max_examples=20)
@given(
    num_problems=st.integers(1, 3),
    num_heads=st.integers(1, 3),
    num_rows=st.integers(1, 300),
    num_keys=st.integers(1, 1200),
    mask_kind=st.sampled_from(("none", "shared", "each")),
)
def test_both_ways_are_attention(
    attention: DenseAttention, key_dim, value_dim, num_problems, num_heads, num_rows, num_keys, mask_kind
):
    torch.manual_seed(num_rows)
    queries = torch.randn(num_problems, num_heads, num_rows, key_dim)
    keys, values = (torch.randn(num_problems, num_heads, num_keys, width) for width in (key_dim, value_dim))
    shapes = {"shared": (num_rows, num_keys), "each": (num_problems, 1, num_rows, num_keys)}
    mask = random_mask(*shapes[mask_kind]) if mask_kind in shapes else None
    found = attention(queries, keys, values, value_dim=value_dim, scale=0.2, mask=mask)
    assert_right(found, truth(queries, keys, values, scale=0.2, mask=mask))


@WAYS
def test_latent_rows_are_keys_and_values_in_one(attention):
    queries, keys = torch.randn(1, 1, 8, 24), torch.randn(1, 1, 700, 24)
    found = attention(queries, keys, keys, value_dim=16, scale=0.2)
    assert_right(found, truth(queries, keys, keys[..., :16], scale=0.2))


@WAYS
@pytest.mark.parametrize("num_rows", [1, 40, 900])
def test_a_causal_square(attention, num_rows):
    queries, keys, values = torch.randn(3, 2, 2, num_rows, 16)
    found = attention(queries, keys, values, value_dim=16, scale=0.2, is_causal=True)
    mask = torch.full((num_rows, num_rows), float("-inf")).triu(1)
    assert_right(found, truth(queries, keys, values, scale=0.2, mask=mask))


@WAYS
def test_a_row_may_see_none_of_the_first_thousands_of_keys(attention, monkeypatch):
    monkeypatch.setattr(dense, "MAX_SCORES", 5 * 64)  # blocks of 64 keys
    queries, keys, values = torch.randn(1, 1, 5, 16), *torch.randn(2, 1, 1, 3000, 16)
    mask = torch.zeros(5, 3000)
    mask[2, :2999] = float("-inf")
    found = attention(queries, keys, values, value_dim=16, scale=0.2, mask=mask)
    assert_right(found, truth(queries, keys, values, scale=0.2, mask=mask))


@WAYS
def test_expanded_views_are_read_as_they_are(attention):
    keys = torch.randn(500, 2, 16)[100:400].transpose(0, 1).unsqueeze(1).expand(2, 3, 300, 16)
    mask = random_mask(1, 1, 1, 300).expand(2, 1, 7, 300)
    queries = torch.randn(1, 1, 7, 16).expand(2, 3, 7, 16)
    found = attention(queries, keys, keys, value_dim=16, scale=0.2, mask=mask)
    assert_right(found, truth(queries, keys, keys, scale=0.2, mask=mask))


@WAYS
def test_float64_stays_float64(attention):
    queries, keys, values = torch.randn(3, 1, 2, 50, 16, dtype=torch.float64)
    found, expected = (
        attention(queries, keys, values, value_dim=16, scale=0.2),
        truth(queries, keys, values, scale=0.2),
    )
    torch.testing.assert_close(found.out, expected.out, atol=1e-13, rtol=0)
    torch.testing.assert_close(found.lse, expected.lse, atol=1e-13, rtol=0)


def test_the_portable_way_holds_a_bounded_number_of_scores_and_skips_what_is_hidden(monkeypatch):
    monkeypatch.setattr(dense, "MAX_SCORES", 4 * 5000)
    monkeypatch.setattr(dense, "ROW_BLOCK", 50)
    products = []
    matmul = torch.matmul
    monkeypatch.setattr(torch, "matmul", lambda *args: products.append(matmul(*args)) or products[-1])
    for is_causal, num_scores in ((False, 4 * 300 * 300), (True, 4 * 50 * (50 + 100 + 150 + 200 + 250 + 300))):
        products.clear()
        portable_attention(*torch.randn(3, 2, 2, 300, 16), value_dim=16, scale=0.2, is_causal=is_causal)
        sizes = [product.numel() for product in products[::2]]
        assert max(sizes) <= 4 * 5000
        assert sum(sizes) == num_scores


def _raise(*_, **__):
    raise TypeError("another signature")


def _base_2_lse(*args, **kwargs):
    found = fused_attention(*args, **kwargs)
    return Attended(found.out, found.lse * 1.4427)


def _nan(*args, **kwargs):
    found = fused_attention(*args, **kwargs)
    return Attended(found.out * float("nan"), found.lse)


@pytest.mark.parametrize("changed", [_raise, _base_2_lse, _nan])
def test_a_torch_whose_kernel_is_gone_or_different_gets_the_portable_way(monkeypatch, changed):
    monkeypatch.setattr(dense, "fused_attention", changed)
    assert dense_attention(CPU) is portable_attention


def test_this_torch_has_the_kernel():
    assert dense_attention(CPU) is fused_attention


def test_other_devices_get_the_portable_way():
    assert dense_attention(torch.device("cuda")) is portable_attention
