"""One family at a time by hand; whole models are in tests/planner/test_families_config.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost.kv import gqa_kv_bytes_per_token, latent_kv_bytes_per_token
from deepdraft.cost.kv_dtype import BFLOAT16, FP8, kv_dtype
from deepdraft.cost.kv_family import (
    Compressed,
    Grouped,
    Index,
    KvFormat,
    Latent,
    Recurrent,
    kv_bytes_per_sequence,
    kv_bytes_per_token,
    sequence_kv_bytes,
)

BF16 = KvFormat.of(BFLOAT16)
FULL = Grouped(num_layers=12, num_kv_heads=2, key_dim=256, value_dim=256)
WINDOW = Grouped(num_layers=4, num_kv_heads=8, key_dim=192, value_dim=128, window=128)
LATENT = Latent(num_layers=61, kv_lora_rank=512, qk_rope_head_dim=64)
STATE = Recurrent(num_layers=36, num_heads=32, state_elements=32 * 128 * 128, conv_elements=8192 * 3)


def test_grouped_rows_are_shared_by_heads_and_at_least_one_stays():
    assert FULL.row_bytes(BF16) == 12 * 2 * 512 * 2 == 24_576
    assert FULL.row_bytes(BF16, tp_size=2) == FULL.row_bytes(BF16, tp_size=8) == 12_288


def test_latent_rows_are_whole_on_every_rank():
    assert LATENT.row_bytes(BF16) == LATENT.row_bytes(BF16, tp_size=8) == 70_272


def test_sparse_latent_rows_in_fp8_keep_their_positions_in_bfloat16():
    sparse = Latent(num_layers=1, kv_lora_rank=512, qk_rope_head_dim=64, is_sparse=True)
    assert sparse.row_bytes(KvFormat.of(FP8)) == 512 + 4 * 4 + 64 * 2 == 656
    assert sparse.row_bytes(KvFormat(key=FP8, value=FP8)) == 576
    assert LATENT.row_bytes(KvFormat.of(FP8)) == 61 * 576


def test_keys_and_values_may_be_stored_apart():
    form = KvFormat(key=kv_dtype("q8_0"), value=kv_dtype("q4_0"))
    assert FULL.row_bytes(form) == 12 * (16 * 34 + 16 * 18)


def test_an_index_costs_the_same_whatever_the_cache_is():
    index = Index(num_layers=61, dim=128)
    assert index.row_bytes(BF16) == index.row_bytes(KvFormat.of(FP8)) == 61 * 132
    assert Index(num_layers=1, dim=128, has_scales=False).row_bytes(BF16) == 256


def test_compressed_rows():
    row = Compressed(num_layers=1, dim=512, qk_rope_head_dim=64, stride=4)
    assert row.row_bytes(KvFormat.of(FP8)) == 448 + 2 * 64 + 8 == 584
    assert kv_bytes_per_token((row,), KvFormat.of(FP8)) == 146


def test_a_state_is_fixed_and_shared_by_heads():
    assert STATE.state_bytes(BF16) == 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2)
    assert STATE.state_bytes(BF16, tp_size=4) * 4 == STATE.state_bytes(BF16)
    assert kv_bytes_per_token((STATE,), BF16) == 0


def test_what_grows_and_what_is_fixed():
    families = (FULL, WINDOW, STATE)
    window_row = 4 * 8 * 320 * 2
    assert kv_bytes_per_token(families, BF16) == 24_576
    assert kv_bytes_per_sequence(families, BF16) == 128 * window_row + STATE.state_bytes(BF16)
    assert sequence_kv_bytes(families, BF16, 10) == 10 * (24_576 + window_row) + STATE.state_bytes(BF16)
    with pytest.raises(ValueError, match="context_len"):
        sequence_kv_bytes(families, BF16, -1)


FAMILIES = st.one_of(
    st.builds(
        Grouped,
        num_layers=st.integers(1, 80),
        num_kv_heads=st.integers(1, 64),
        key_dim=st.sampled_from([64, 128, 192]),
        value_dim=st.sampled_from([64, 128]),
        window=st.one_of(st.none(), st.integers(1, 4096)),
    ),
    st.builds(Latent, num_layers=st.integers(1, 80), kv_lora_rank=st.just(512), qk_rope_head_dim=st.just(64)),
    st.builds(Index, num_layers=st.integers(1, 80), dim=st.just(128), stride=st.sampled_from([1, 4])),
    st.just(STATE),
)


@given(st.lists(FAMILIES, max_size=4), st.integers(0, 300_000), st.integers(1, 16))
def test_a_sequence_costs_its_growing_part_and_at_most_its_fixed_part(families, context_len, tp_size):
    cost = sequence_kv_bytes(families, BF16, context_len, tp_size)
    growing = kv_bytes_per_token(families, BF16, tp_size) * context_len
    rounding = sum(each.row_bytes(BF16, tp_size) for each in families)
    assert growing <= cost <= growing + kv_bytes_per_sequence(families, BF16, tp_size) + rounding
    assert cost <= sequence_kv_bytes(families, BF16, context_len + 1, tp_size)
    assert sequence_kv_bytes(families, BF16, context_len, 2 * tp_size) <= cost


@given(st.integers(1, 90), st.integers(1, 64), st.sampled_from([64, 128, 256]), st.integers(1, 64), st.integers(1, 4))
def test_the_plain_functions_say_the_same(num_layers, num_kv_heads, dim, tp_size, element_bytes):
    dtype = {1: FP8, 2: BFLOAT16, 4: kv_dtype("f32")}.get(element_bytes)
    rows = Grouped(num_layers=num_layers, num_kv_heads=num_kv_heads, key_dim=dim, value_dim=dim)
    plain = gqa_kv_bytes_per_token(
        num_layers=num_layers, num_kv_heads=num_kv_heads, key_dim=dim, value_dim=dim, element_bytes=element_bytes,
        tp_size=tp_size,
    )  # fmt: skip
    assert plain == num_layers * -(-num_kv_heads // tp_size) * 2 * dim * element_bytes
    if dtype is not None:
        assert rows.row_bytes(KvFormat.of(dtype), tp_size) == plain
        latent = Latent(num_layers=num_layers, kv_lora_rank=512, qk_rope_head_dim=64)
        assert latent.row_bytes(KvFormat.of(dtype)) == latent_kv_bytes_per_token(
            num_layers=num_layers, kv_lora_rank=512, qk_rope_head_dim=64, element_bytes=element_bytes
        )
