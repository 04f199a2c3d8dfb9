"""The least that decode and prefill can take on a device: bytes that must be read, operations that must be done.

A floor is no forecast: good kernels attain 25 to 50 % of the bandwidth with one stream. What is measured below a
floor was not measured as it says. Collectives, launches and drafting are left out: they only add.
"""

from __future__ import annotations

from deepdraft.cost.device import Device
from deepdraft.cost.model_json import ModelShape


def attention_params(model: ModelShape) -> int:
    """Weights of one layer's attention projections."""
    q_width = model.num_qo_heads * model.key_dim
    o_width = model.num_qo_heads * model.value_dim
    if model.attention == "grouped":
        kv_width = model.num_kv_heads * (model.key_dim + model.value_dim)
        return model.hidden * (q_width + kv_width + o_width)
    latent, rope = model.kv_lora_rank or 0, model.qk_rope_head_dim or 0
    q = model.hidden * q_width
    if model.q_lora_rank:
        q = model.hidden * model.q_lora_rank + model.q_lora_rank * q_width
    kv = model.hidden * (latent + rope) + latent * model.num_qo_heads * (model.key_dim - rope + model.value_dim)
    return q + kv + o_width * model.hidden


def unique_experts(model: ModelShape, num_tokens: int) -> float:
    """Experts of a layer that a step of so many tokens reads, if each token chose its own by chance (the most)."""
    if not model.num_experts:
        return 0.0
    share = model.num_experts_per_token / model.num_experts
    return model.num_experts * (1.0 - (1.0 - share) ** num_tokens)


def step_weight_bytes(model: ModelShape, num_tokens: int = 1, tp_size: int = 1) -> float:
    """Bytes of weights that one step of `num_tokens` tokens reads on each rank, all of them split over the ranks."""
    mlp = 3 * model.hidden
    num_moe_layers = model.num_layers - model.num_dense_layers
    other = model.num_layers * attention_params(model) + model.hidden * model.vocab_size
    experts = num_moe_layers * mlp * model.expert_mlp * unique_experts(model, num_tokens)
    shared = num_moe_layers * mlp * model.expert_mlp * model.num_shared_experts
    dense = model.num_dense_layers * mlp * model.dense_mlp
    bits = model.weight_bits * (other + shared + (dense if model.num_experts else 0))
    bits += model.expert_bits * (experts + (0 if model.num_experts else dense))
    return bits / 8 / tp_size


def decode_floor_s(model: ModelShape, device: Device, context_len: float, tp_size: int = 1) -> float:
    """The least time of one decode step of one request: weights for one token and its whole KV cache, read once at
    full bandwidth."""
    kv_bytes = context_len * model.kv_bytes_per_token(tp_size)
    return (step_weight_bytes(model, 1, tp_size) + kv_bytes) / device.bandwidth_bytes_s


def linear_prefill_flops(model: ModelShape, num_tokens: float) -> float:
    """Operations of a prefill that grow with its length: two for each weight a token passes."""
    mlp = 3 * model.hidden
    num_moe_layers = model.num_layers - model.num_dense_layers
    params = model.num_layers * attention_params(model)
    params += model.num_dense_layers * mlp * model.dense_mlp
    params += num_moe_layers * mlp * model.expert_mlp * (model.num_experts_per_token + model.num_shared_experts)
    return 2.0 * params * num_tokens


def attention_prefill_flops(model: ModelShape, num_tokens: float, *, is_absorbed: bool = False) -> float:
    """Operations of causal attention over a prompt: layers x heads x (key + value width) x length^2.

    `is_absorbed`: latent attention computed on the latent itself (key = latent + rope, value = latent), as decode
    does; several times the operations of the expanded form. Without a latent there is no difference.
    """
    width = model.key_dim + model.value_dim
    if is_absorbed and model.attention == "latent":
        width = 2 * (model.kv_lora_rank or 0) + (model.qk_rope_head_dim or 0)
    return float(model.num_layers) * model.num_qo_heads * width * num_tokens**2


def prefill_floor_s(model: ModelShape, device: Device, num_tokens: float, tp_size: int = 1) -> float | None:
    """The least time of a prefill at the device's arithmetic peak; None where the peak is not known.

    Weights of 8 bits or fewer may be multiplied at twice the bf16 rate; attention is taken at the bf16 rate.
    """
    if device.flops is None:
        return None
    rate = 2.0 if min(model.expert_bits, model.weight_bits) <= 8 else 1.0
    flops = linear_prefill_flops(model, num_tokens) / rate + attention_prefill_flops(model, num_tokens)
    return flops / tp_size / device.flops
