import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost import gqa_kv_bytes_per_token, latent_kv_bytes_per_token, num_pages, pool_bytes, pool_tokens

KIMI_K2 = latent_kv_bytes_per_token(num_layers=61, kv_lora_rank=512, qk_rope_head_dim=64, element_bytes=2)


def dflash_drafter(tp_size: int) -> int:
    """The DFlash drafter of Kimi K2.6: 6 layers, 8 KV heads x 128, bf16."""
    return gqa_kv_bytes_per_token(
        num_layers=6, num_kv_heads=8, key_dim=128, value_dim=128, element_bytes=2, tp_size=tp_size
    )


def gqa(num_layers: int, num_kv_heads: int, head_dim: int) -> int:
    return gqa_kv_bytes_per_token(
        num_layers=num_layers, num_kv_heads=num_kv_heads, key_dim=head_dim, value_dim=head_dim, element_bytes=2
    )


def test_kimi_k2_stores_one_latent_row_a_layer_on_every_rank():
    assert KIMI_K2 == 61 * 576 * 2 == 70_272


def test_kimi_k2_with_its_drafter_at_tp8():
    """The drafter's heads are shared out over the ranks, the target's latent row is not."""
    assert dflash_drafter(tp_size=1) == 24_576
    assert dflash_drafter(tp_size=8) == 24_576 // 8 == 3_072
    assert KIMI_K2 + dflash_drafter(tp_size=8) == 73_344


def test_77_184_bytes_is_what_sglang_0_5_12_reserves_and_not_what_the_drafter_needs():
    """It took each drafter layer for one more of the target's: 67 rows of 576."""
    reserved = latent_kv_bytes_per_token(num_layers=61 + 6, kv_lora_rank=512, qk_rope_head_dim=64, element_bytes=2)
    assert reserved == KIMI_K2 * 67 // 61 == 77_184
    assert reserved - (KIMI_K2 + dflash_drafter(tp_size=8)) == 3_840


@pytest.mark.parametrize(
    ("bytes_per_token", "known"),
    [
        pytest.param(gqa(30, 3, 64), 23_040, id="SmolLM2-135M f16"),
        pytest.param(gqa(36, 8, 128), 147_456, id="Qwen3-8B bf16"),
        pytest.param(gqa(12, 2, 256), 24_576, id="Qwen3-Next bf16, its 12 full layers"),
        pytest.param(gqa(61, 64, 112), 1_748_992, id="Kimi K2 mistaken for multi-head: 24.9 times too much"),
    ],
)
def test_published_sizes(bytes_per_token, known):
    assert bytes_per_token == known


def test_latent_attention_of_a_few_layers():
    """Kimi-Linear-48B has 7 layers of full attention, Kimi K3 has 24."""
    sizes = [
        latent_kv_bytes_per_token(num_layers=layers, kv_lora_rank=512, qk_rope_head_dim=64, element_bytes=2)
        for layers in (7, 24)
    ]
    assert sizes == [8_064, 27_648]


def test_the_pool_of_the_reference_deployment():
    """218,484 tokens: the log's 14.30 GB for the target, out of 15.7 GiB that were reserved for both."""
    assert round(pool_bytes(218_484, bytes_per_token=KIMI_K2) / 2**30, 2) == 14.30
    reserved = pool_bytes(218_484, bytes_per_token=77_184)
    assert pool_tokens(reserved, bytes_per_token=77_184) == 218_484
    assert pool_tokens(reserved, bytes_per_token=73_344) == 229_922


def test_heads_are_replicated_once_there_are_more_ranks_than_heads():
    sizes = [
        gqa_kv_bytes_per_token(num_layers=1, num_kv_heads=6, key_dim=1, value_dim=1, element_bytes=1, tp_size=tp_size)
        for tp_size in (1, 2, 3, 4, 6, 8, 64)
    ]
    assert sizes == [12, 6, 4, 4, 2, 2, 2]  # 4 ranks don't divide 6 heads: the rank with most has 2


def test_keys_and_values_of_different_width():
    one = gqa_kv_bytes_per_token(num_layers=3, num_kv_heads=2, key_dim=192, value_dim=128, element_bytes=2)
    assert one == 3 * 2 * (192 + 128) * 2


positive = st.integers(1, 512)


@given(layers=positive, heads=positive, key_dim=positive, value_dim=positive, element_bytes=st.integers(1, 8))
def test_gqa_grows_in_proportion_to_each_size(layers, heads, key_dim, value_dim, element_bytes):
    sizes = {"num_layers": layers, "num_kv_heads": heads, "element_bytes": element_bytes}
    one = gqa_kv_bytes_per_token(key_dim=key_dim, value_dim=value_dim, **sizes)
    assert one == layers * heads * (key_dim + value_dim) * element_bytes
    for name in sizes:
        assert gqa_kv_bytes_per_token(key_dim=key_dim, value_dim=value_dim, **(sizes | {name: sizes[name] * 2})) == (
            one * 2
        )


@given(heads=positive, tp_size=positive)
def test_all_ranks_together_hold_at_least_every_head_and_each_at_least_one(heads, tp_size):
    a_head = gqa_kv_bytes_per_token(num_layers=1, num_kv_heads=1, key_dim=5, value_dim=3, element_bytes=2)
    a_rank = gqa_kv_bytes_per_token(
        num_layers=1, num_kv_heads=heads, key_dim=5, value_dim=3, element_bytes=2, tp_size=tp_size
    )
    assert a_rank % a_head == 0
    assert a_rank * tp_size >= a_head * heads
    assert a_head <= a_rank < a_head * (heads / tp_size + 1)


@given(st.integers(0, 10**13), st.integers(1, 10**6), st.integers(1, 512))
def test_a_pool_fills_its_bytes_with_whole_pages(num_bytes, bytes_per_token, page_size):
    num_tokens = pool_tokens(num_bytes, bytes_per_token=bytes_per_token, page_size=page_size)
    assert num_tokens % page_size == 0
    used = pool_bytes(num_tokens, bytes_per_token=bytes_per_token, page_size=page_size)
    assert used <= num_bytes < used + bytes_per_token * page_size


@given(st.integers(0, 10**9), st.integers(1, 10**6), st.integers(1, 512))
def test_bytes_and_tokens_are_each_others_inverse(num_tokens, bytes_per_token, page_size):
    num_bytes = pool_bytes(num_tokens, bytes_per_token=bytes_per_token, page_size=page_size)
    there = pool_tokens(num_bytes, bytes_per_token=bytes_per_token, page_size=page_size)
    assert there == num_pages(num_tokens, page_size) * page_size
    assert num_tokens <= there < num_tokens + page_size


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: latent_kv_bytes_per_token(num_layers=0, kv_lora_rank=512, qk_rope_head_dim=64, element_bytes=2),
        lambda: latent_kv_bytes_per_token(num_layers=1, kv_lora_rank=512, qk_rope_head_dim=-1, element_bytes=2),
        lambda: gqa_kv_bytes_per_token(num_layers=1, num_kv_heads=1, key_dim=1, value_dim=0, element_bytes=2),
        lambda: dflash_drafter(tp_size=0),
        lambda: pool_tokens(-1, bytes_per_token=1),
        lambda: pool_tokens(1, bytes_per_token=0),
        lambda: pool_bytes(1, bytes_per_token=0),
        lambda: pool_bytes(-1, bytes_per_token=1),
        lambda: num_pages(1, 0),
    ],
)
def test_sizes_without_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="must"):
        wrong()


def test_no_page_fits():
    assert pool_tokens(1023, bytes_per_token=64, page_size=16) == 0


def test_a_latent_row_without_a_positional_part():
    assert latent_kv_bytes_per_token(num_layers=2, kv_lora_rank=8, qk_rope_head_dim=0, element_bytes=4) == 64
