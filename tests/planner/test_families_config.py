"""KV cache of models by name, each figure by hand from the fields of its published config.json."""

import pytest

from deepdraft.cost.kv_dtype import BFLOAT16, FP8
from deepdraft.cost.kv_family import KvFormat, kv_bytes_per_sequence, kv_bytes_per_token
from deepdraft.errors import UsageError
from deepdraft.planner.families_config import kv_families

BF16 = KvFormat.of(BFLOAT16)
COMMON = {"hidden_size": 4096, "num_attention_heads": 64, "vocab_size": 128000}
LATENT = COMMON | {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
MIB = 2**20


def growing(config: dict, tp_size: int = 1) -> float:
    return kv_bytes_per_token(kv_families(COMMON | config), BF16, tp_size)


def fixed(config: dict, tp_size: int = 1) -> int:
    return kv_bytes_per_sequence(kv_families(COMMON | config), BF16, tp_size)


QWEN3_8B = {"num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 128, "use_sliding_window": False,
            "sliding_window": None, "max_window_layers": 36}  # fmt: skip
GEMMA_3 = {"model_type": "gemma3_text", "num_hidden_layers": 62, "num_key_value_heads": 16, "head_dim": 128,
           "sliding_window": 1024}  # fmt: skip
GEMMA_4 = {"num_hidden_layers": 30, "num_key_value_heads": 8, "head_dim": 256, "global_head_dim": 512,
           "num_global_key_value_heads": 2, "attention_k_eq_v": True, "num_kv_shared_layers": 0,
           "sliding_window": 1024,
           "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5}  # fmt: skip
GPT_OSS = {"num_hidden_layers": 36, "num_key_value_heads": 8, "head_dim": 64, "sliding_window": 128,
           "hidden_size": 2880, "layer_types": ["sliding_attention", "full_attention"] * 18}  # fmt: skip
MIMO = {"num_hidden_layers": 48, "num_key_value_heads": 4, "head_dim": 192, "v_head_dim": 128, "sliding_window": 128,
        "sliding_window_size": 128, "attention_chunk_size": 128, "swa_num_key_value_heads": 8, "swa_head_dim": 192,
        "swa_v_head_dim": 128, "hybrid_layer_pattern": [0, 1, 1, 1, 1] + ([0, 1, 1, 1, 1, 1] * 7) + [0]}  # fmt: skip
LLAMA_4 = {"model_type": "llama4_text", "num_hidden_layers": 48, "num_key_value_heads": 8, "head_dim": 128,
           "attention_chunk_size": 8192}  # fmt: skip
QWEN3_NEXT = {"num_hidden_layers": 48, "num_key_value_heads": 2, "head_dim": 256, "full_attention_interval": 4,
              "linear_num_value_heads": 32, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
              "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "hidden_size": 2048,
              "decoder_sparse_step": 1}  # fmt: skip
KIMI_LINEAR = {"num_hidden_layers": 27, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
               "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "num_heads": 32,
                                      "head_dim": 128, "short_conv_kernel_size": 4}}  # fmt: skip
NEMOTRON_H = {"num_hidden_layers": 88, "num_key_value_heads": 2, "head_dim": 128, "ssm_state_size": 128,
              "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "sliding_window": None,
              "mamba_hidden_act": "silu", "use_mamba_kernels": True,
              "hybrid_override_pattern": "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*"
                                         "EMEMEMEM*EMEMEMEME"}  # fmt: skip
MINIMAX_M3 = {"num_hidden_layers": 60, "num_key_value_heads": 4, "head_dim": 128,
              "sparse_attention_config": {"use_sparse_attention": True, "sparse_index_dim": 128,
                                          "sparse_attention_freq": [0] * 3 + [1] * 57,
                                          "sparse_disable_index_value": [0] * 3 + [1] * 57}}  # fmt: skip
SUPER = {"num_hidden_layers": 4, "head_dim": 128, "num_attention_heads": 64,
         "block_configs": [{"attention": {"n_heads_in_group": 8}}, {"attention": {"no_op": True}},
                           {"attention": {"n_heads_in_group": 16}},
                           {"attention": {"n_heads_in_group": 8}}]}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "per_token"),
    [
        pytest.param(QWEN3_8B, 36 * 8 * 256 * 2, id="Qwen3-8B 147,456"),
        pytest.param(LATENT | {"num_hidden_layers": 61}, 61 * 576 * 2, id="DeepSeek-V3 70,272"),
        pytest.param(LATENT | {"num_hidden_layers": 61, "index_head_dim": 128, "index_topk": 2048},
                     61 * (1152 + 132), id="DeepSeek-V3.2"),
        pytest.param(LATENT | {"num_hidden_layers": 4, "index_head_dim": 128, "index_topk": 2048,
                     "indexer_types": ["full", "shared", "shared", "full"]}, 4 * 1152 + 2 * 132, id="shared index"),
        pytest.param(GEMMA_3, 10 * 16 * 256 * 2, id="Gemma 3 27B"),
        pytest.param(GEMMA_4, 5 * 2 * 1024 * 2, id="Gemma 4 26B"),
        pytest.param(GPT_OSS, 18 * 8 * 128 * 2, id="gpt-oss-120b 36,864"),
        pytest.param(MIMO, 9 * 4 * 320 * 2, id="MiMo-V2-Flash"),
        pytest.param(LLAMA_4, 12 * 8 * 256 * 2, id="Llama 4 Scout"),
        pytest.param(QWEN3_NEXT, 12 * 2 * 512 * 2, id="Qwen3-Next 24,576"),
        pytest.param(KIMI_LINEAR, 7 * 576 * 2, id="Kimi-Linear 8,064"),
        pytest.param(NEMOTRON_H, 8 * 2 * 256 * 2, id="Nemotron 3 Super"),
        pytest.param(MINIMAX_M3, 60 * 4 * 256 * 2 + 57 * 128 * 2, id="MiniMax-M3"),
        pytest.param(SUPER, (8 + 4 + 8) * 256 * 2, id="Nemotron-Super (NAS)"),
        pytest.param({"num_hidden_layers": 32, "num_key_value_heads": 8, "sliding_window": 4096}, 0, id="windows"),
    ],
)  # fmt: skip
def test_what_grows(config, per_token):
    assert growing(config) == per_token


@pytest.mark.parametrize(
    ("config", "per_sequence"),
    [
        pytest.param(QWEN3_8B, 0, id="Qwen3-8B"),
        pytest.param(GEMMA_3, 52 * 1024 * 16 * 256 * 2, id="Gemma 3 27B: 416 MiB"),
        pytest.param(GEMMA_4, 25 * 1024 * 8 * 512 * 2, id="Gemma 4 26B: 200 MiB"),
        pytest.param(GPT_OSS, 18 * 128 * 8 * 128 * 2, id="gpt-oss-120b: 4.5 MiB"),
        pytest.param(MIMO, 39 * 128 * 8 * 320 * 2, id="MiMo-V2-Flash"),
        pytest.param(LLAMA_4, 36 * 8192 * 8 * 256 * 2, id="Llama 4 Scout: 1,152 MiB"),
        pytest.param(QWEN3_NEXT, 72 * MIB + 36 * (2 * 16 * 128 + 32 * 128) * 3 * 2, id="Qwen3-Next: 72 MiB + conv"),
        pytest.param(KIMI_LINEAR, 40 * MIB + 20 * 3 * 32 * 128 * 3 * 2, id="Kimi-Linear: 40 MiB + conv"),
        pytest.param(NEMOTRON_H, 40 * (128 * 64 * 128 * 4 + (8192 + 2 * 8 * 128) * 3 * 2), id="Nemotron 3 Super"),
    ],
)
def test_what_is_fixed(config, per_sequence):
    assert fixed(config) == per_sequence


def test_deepseek_v4_flash():
    """43 layers, 2 without compression, then 4 and 128 by turns; the 44th ratio is the prediction layer's."""
    config = COMMON | {
        "num_hidden_layers": 43, "head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128,
        "sliding_window": 128, "num_key_value_heads": 1,
        "compress_ratios": [0, 0, *([4, 128] * 20), 4, 0], "compress_rope_theta": 160000,
    }  # fmt: skip
    families, form = kv_families(config), KvFormat.of(FP8)
    assert kv_bytes_per_token(families, form) == 21 * 584 / 4 + 20 * 584 / 128 + 21 * 132 / 4
    states = 21 * 8 * 4 * (512 + 128) * 4 + 20 * 128 * 2 * 512 * 4
    assert kv_bytes_per_sequence(families, form) == 43 * 128 * 584 + states
    with pytest.raises(UsageError, match="compress_ratios"):
        kv_families(config | {"compress_ratios": [0, 8] * 22})


def test_head_dim_is_the_configs_own():
    """hidden / heads would be half for Qwen3-Next and 30 % low for gpt-oss."""
    assert growing(QWEN3_NEXT | {"num_attention_heads": 16}) == 24_576
    assert growing(GPT_OSS) == 36_864
    assert growing({"num_hidden_layers": 1, "num_key_value_heads": 1}) == 2 * 64 * 2


def test_layers_that_share_a_cache_have_none_of_their_own():
    """Gemma 3n keeps the last layers' keys and values in earlier ones."""
    types = (["sliding_attention"] * 4 + ["full_attention"]) * 7
    config = {"num_hidden_layers": 35, "num_key_value_heads": 2, "head_dim": 256, "sliding_window": 512,
              "num_kv_shared_layers": 15, "layer_types": types}  # fmt: skip
    assert growing(config) == 4 * 2 * 512 * 2
    assert fixed(config) == 16 * 512 * 2 * 512 * 2


def test_ranks_share_heads_and_states_but_no_latent():
    assert growing(LATENT | {"num_hidden_layers": 61}, tp_size=8) == 70_272
    assert growing(QWEN3_8B, tp_size=8) * 8 == growing(QWEN3_8B)
    assert growing(QWEN3_8B, tp_size=16) == growing(QWEN3_8B, tp_size=8)
    assert fixed(QWEN3_NEXT, tp_size=4) * 4 == fixed(QWEN3_NEXT)
