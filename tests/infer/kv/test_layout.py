import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.infer.config import GqaShape, MlaShape, ModelConfig, RopeShape
from deepdraft.infer.kv.layout import KvLayout, LayerShape, kv_layout
from deepdraft.infer.kv.pool import PagePool

KIMI_ATTENTION = MlaShape(
    num_qo_heads=64,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)


def config(attention: MlaShape | GqaShape, num_layers: int) -> ModelConfig:
    return ModelConfig(
        model_type="deepseek_v3" if isinstance(attention, MlaShape) else "llama",
        vocab_size=100,
        hidden_size=64,
        intermediate_size=128,
        num_layers=num_layers,
        rms_norm_eps=1e-5,
        attention=attention,
        moe=None,
        rope=RopeShape(theta=10_000.0),
        max_context_len=1024,
        has_tied_embeddings=True,
        dtype="bfloat16",
        eos_token_ids=(0,),
        bos_token_id=None,
    )


def gqa(num_qo_heads: int, num_kv_heads: int, head_dim: int) -> GqaShape:
    return GqaShape(
        num_qo_heads=num_qo_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, has_qk_norm=False, has_bias=False
    )


def test_kimi_k2_keeps_one_latent_row_a_layer():
    layout = kv_layout(config(KIMI_ATTENTION, 61), page_size=16, dtype=torch.bfloat16)
    assert layout.layers == (LayerShape(1, 576, 512, is_latent=True),) * 61
    assert layout.bytes_per_token == 70_272
    assert layout.bytes_per_page == 16 * 70_272


@pytest.mark.parametrize(
    ("attention", "num_layers", "dtype", "known"),
    [
        pytest.param(gqa(9, 3, 64), 30, torch.float16, 23_040, id="SmolLM2-135M f16"),
        pytest.param(gqa(9, 3, 64), 30, torch.float32, 46_080, id="SmolLM2-135M f32"),
        pytest.param(gqa(32, 8, 128), 36, torch.bfloat16, 147_456, id="Qwen3-8B bf16"),
    ],
)
def test_grouped_queries_keep_keys_and_values_of_each_kv_head(attention, num_layers, dtype, known):
    layout = kv_layout(config(attention, num_layers), page_size=1, dtype=dtype)
    shape = LayerShape(attention.num_kv_heads, attention.head_dim, attention.head_dim, is_latent=False)
    assert layout.layers == (shape,) * num_layers
    assert layout.bytes_per_token == known


def test_a_drafters_layers_are_further_layers_of_the_same_pages():
    target = kv_layout(config(KIMI_ATTENTION, 61), page_size=1, dtype=torch.bfloat16)
    drafter = kv_layout(config(gqa(64, 8, 128), 6), page_size=1, dtype=torch.bfloat16)
    both = KvLayout(target.layers + drafter.layers, 1, torch.bfloat16)
    assert both.bytes_per_token == 70_272 + 24_576


@pytest.mark.parametrize("page_size", [0, -16])
def test_a_page_holds_at_least_one_token(page_size):
    with pytest.raises(UsageError, match=f"page of {page_size} tokens"):
        kv_layout(config(KIMI_ATTENTION, 1), page_size=page_size, dtype=torch.float32)


width = st.integers(1, 9)
latent_shapes = st.builds(
    lambda rank, rope: LayerShape(1, rank + rope, rank, is_latent=True), rank=width, rope=st.integers(0, 9)
)
gqa_shapes = st.builds(LayerShape, num_kv_heads=width, key_dim=width, value_dim=width, is_latent=st.just(False))


@given(
    layers=st.lists(latent_shapes | gqa_shapes, min_size=1, max_size=4),
    page_size=st.integers(1, 20),
    num_pages=st.integers(1, 20),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]),
)
def test_the_formula_is_what_the_tensors_take(layers, page_size, num_pages, dtype):
    layout = KvLayout(tuple(layers), page_size, dtype)
    pool = PagePool(layout, num_pages)
    assert pool.num_bytes == num_pages * layout.bytes_per_page == pool.num_tokens * layout.bytes_per_token
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for layer in map(pool.layer, range(len(layers)))
        for tensor in (layer.keys, layer.values)
    }
    assert sum(storages.values()) == pool.num_bytes
