import pytest
import torch
from attention_case import EMBEDDED, GQA, case, expansion

from deepdraft.infer.kernels import source, torch_backend
from deepdraft.infer.kernels.plan import SlotRun
from deepdraft.infer.kernels.segment import PageList
from deepdraft.infer.kernels.source import CachedRows, ExpandedLatents
from deepdraft.infer.kernels.torch_backend import TorchAttention

RUN = SlotRun(16, 40)


@pytest.mark.parametrize("dims", [EMBEDDED, GQA])
def test_a_run_of_the_cache_is_read_in_place(dims):
    layer = case([1], [60], dims=dims).layer
    rows = CachedRows(layer, torch.float32)
    keys, values = rows.load(RUN)
    assert rows.is_view
    assert (keys.data_ptr(), values.data_ptr()) == (layer.keys[16].data_ptr(), layer.values[16].data_ptr())
    assert torch.equal(values[..., : dims.value_dim], layer.values[16:56])


def test_latent_rows_are_gathered_once_for_keys_and_values():
    keys, values = CachedRows(case([1], [60]).layer, torch.float32).load(PageList(torch.tensor([2, 1]), 16, 20))
    assert keys is values


def test_a_narrow_cache_is_converted_block_by_block(monkeypatch):
    """A whole context in float32 at once would undo what the narrow cache saves."""
    loaded = []

    class Watched(CachedRows):
        def load(self, segment):
            loaded.append((segment.num_slots, self.block_len))
            return super().load(segment)

    monkeypatch.setattr(source, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(torch_backend, "CachedRows", Watched)
    case([1], [900], cache_dtype=torch.bfloat16).attend(TorchAttention())
    assert sum(num_slots for num_slots, _ in loaded) == 900
    assert all(num_slots <= block_len for num_slots, block_len in loaded)


def test_a_block_fits_its_bytes_whatever_the_width():
    for dims in (EMBEDDED, GQA):
        rows = CachedRows(case([1], [60], dims=dims).layer, torch.float32)
        row_dim = dims.key_dim if dims.is_latent else dims.num_kv_heads * (dims.key_dim + dims.value_dim)
        limit = min(source.BLOCK_BYTES * torch.get_num_threads(), source.MAX_BLOCK_BYTES)
        assert rows.block_len * row_dim * 4 <= limit < (rows.block_len + 1) * row_dim * 4


def test_expanded_rows_are_the_latents_multiplied_out_and_bounded(monkeypatch):
    of = case([2], [60])
    expanded = expansion(of)
    monkeypatch.setattr(source, "EXPANDED_BYTES", 10_000)
    rows = ExpandedLatents(of.layer, torch.float32, key_up=expanded.key_up, value_up=expanded.value_up)
    keys, values = rows.load(RUN)
    cached = of.layer.keys[16:56, 0]
    torch.testing.assert_close(keys[:, 1, :12], cached[:, :64] @ expanded.key_up[1].T)
    assert torch.equal(keys[:, 1, 12:], cached[:, 64:])
    torch.testing.assert_close(values[:, 2], cached[:, :64] @ expanded.value_up[2].T)
    assert rows.block_len == 10_000 // (4 * 4 * (12 + 16 + 20))
    assert not rows.is_view
