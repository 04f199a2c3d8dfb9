import pytest

from deepdraft.cost.device import Device, device
from deepdraft.cost.floor import (
    attention_params,
    attention_prefill_flops,
    decode_floor_s,
    linear_prefill_flops,
    prefill_floor_s,
    step_weight_bytes,
    unique_experts,
)
from deepdraft.cost.known_model import known_model
from deepdraft.cost.model_json import shape_of_config

LLAMA_8B = shape_of_config(
    {
        "hidden_size": 4096,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "torch_dtype": "bfloat16",
    }
)
KIMI = known_model("Kimi K2.6")
CARD = device("RTX PRO 6000")


def test_parameters_of_a_known_model():
    """Llama 3.1 8B: 8.03e9 parameters with embedding and head; a step reads all but the embedding."""
    assert attention_params(LLAMA_8B) == 4096 * 4096 * 2 + 4096 * 1024 * 2
    assert step_weight_bytes(LLAMA_8B) == pytest.approx(2 * (8.03e9 - 128256 * 4096), rel=0.001)
    assert step_weight_bytes(LLAMA_8B, tp_size=8) == step_weight_bytes(LLAMA_8B) / 8
    assert step_weight_bytes(LLAMA_8B, 64) == step_weight_bytes(LLAMA_8B), (
        "a dense model reads the same for any number"
    )


def test_a_mixture_reads_more_experts_for_more_tokens():
    assert KIMI is not None
    assert unique_experts(KIMI, 1) == pytest.approx(8)
    assert unique_experts(KIMI, 4) == pytest.approx(384 * (1 - (1 - 8 / 384) ** 4))
    assert unique_experts(KIMI, 10_000) == pytest.approx(384)
    assert unique_experts(LLAMA_8B, 8) == 0
    assert step_weight_bytes(KIMI, 8, 8) > 2 * step_weight_bytes(KIMI, 1, 8)


def test_the_reference_deployments_floors():
    """facts: 185k tokens are 13.0 GB of KV, 7.25 ms at 1.792 TB/s; weights of one token at TP8 some 4 to 6 GB."""
    assert KIMI is not None
    weights_s = step_weight_bytes(KIMI, 1, 8) / CARD.bandwidth_bytes_s
    assert 1.5e-3 < weights_s < 3.5e-3
    assert decode_floor_s(KIMI, CARD, 185_000, 8) - weights_s == pytest.approx(7.25e-3, rel=0.01)
    assert attention_prefill_flops(KIMI, 1e5, is_absorbed=True) / attention_prefill_flops(KIMI, 1e5) == pytest.approx(
        (576 + 512) / (192 + 128)
    )
    absorbed_per_device = attention_prefill_flops(KIMI, 1.0, is_absorbed=True) / 8 / 9.14e-9
    assert absorbed_per_device == pytest.approx(58e12, rel=0.01)


def test_prefill_grows_with_the_square_in_attention_alone():
    assert linear_prefill_flops(LLAMA_8B, 2_000) == 2 * linear_prefill_flops(LLAMA_8B, 1_000)
    assert attention_prefill_flops(LLAMA_8B, 2_000) == 4 * attention_prefill_flops(LLAMA_8B, 1_000)
    assert attention_prefill_flops(LLAMA_8B, 1_000, is_absorbed=True) == attention_prefill_flops(LLAMA_8B, 1_000)
    assert linear_prefill_flops(LLAMA_8B, 1) == pytest.approx(2 * (8.03e9 - 2 * 128256 * 4096), rel=0.001)


def test_the_prefill_floor():
    whole = linear_prefill_flops(LLAMA_8B, 10_000) + attention_prefill_flops(LLAMA_8B, 10_000)
    assert prefill_floor_s(LLAMA_8B, CARD, 10_000) == pytest.approx(whole / 503.8e12)
    assert prefill_floor_s(LLAMA_8B, CARD, 10_000, 4) == pytest.approx(whole / 503.8e12 / 4)
    assert prefill_floor_s(LLAMA_8B, Device(name="d", bandwidth_bytes_s=1e12), 10_000) is None
    small = shape_of_config(
        {
            "hidden_size": 4096,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 128256,
            "quantization_config": {"quant_method": "fp8"},
        }
    )
    faster = prefill_floor_s(small, CARD, 1_000)
    assert faster is not None and faster < 0.6 * (prefill_floor_s(LLAMA_8B, CARD, 1_000) or 0.0)
