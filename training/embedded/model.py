"""The model to train: transformers' own DeepseekV3 with two faster inner loops, which change no weight.

On CPUs torch's fused attention wants equal head sizes of keys and values, which MLA has not, and transformers'
experts copy more than they multiply; both loops are written here for training alone. Matrix products run in the
recipe's `matmul_dtype` by autocast over float32 weights. Leaves out the optimizer and the schedule.
Shape letters: B sequences, H heads, T tokens, D head size, N rows, E experts, K experts a token.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM, PreTrainedModel
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.deepseek_v3.modeling_deepseek_v3 import (
    DeepseekV3Attention,
    DeepseekV3Experts,
    DeepseekV3RotaryEmbedding,
    DeepseekV3TopkRouter,
)

from training.embedded.recipe import (
    MODEL_SHAPE,
    ORIGINAL_POSITIONS,
    SPECIAL_TOKENS,
    YARN_FACTOR,
    rope_parameters,
    yarn_softmax_scale,
)

MAX_POSITIONS = int(ORIGINAL_POSITIONS * YARN_FACTOR)
_MIN_BLOCK_LEN = 128


def model_config(*, is_yarn: bool, **changes: object) -> DeepseekV3Config:
    """The recipe's shape as a DeepseekV3 config; `changes` replace fields (tests shrink the model so)."""
    fields: dict[str, Any] = {
        **MODEL_SHAPE,
        "bos_token_id": SPECIAL_TOKENS.index("<|begin|>"),
        "eos_token_id": SPECIAL_TOKENS.index("<|end|>"),
        "pad_token_id": SPECIAL_TOKENS.index("<|end|>"),
        "max_position_embeddings": MAX_POSITIONS if is_yarn else ORIGINAL_POSITIONS,
        "rope_parameters": rope_parameters(is_yarn=is_yarn),
        **changes,
    }
    return DeepseekV3Config(**fields)


def training_model(seed: int, **changes: object) -> DeepseekV3ForCausalLM:
    """A fresh float32 model with unscaled positions and YaRN's softmax scale already in place."""
    torch.manual_seed(seed)
    model = DeepseekV3ForCausalLM(model_config(is_yarn=False, use_cache=False, **changes))
    use_training_loops(model)
    for module in model.modules():
        if isinstance(module, DeepseekV3Attention):
            module.scaling = yarn_softmax_scale()
    return model


def use_training_loops(model: PreTrainedModel) -> None:
    """Let the model compute by `causal_blocks` and `sorted_rows`: whole sequences only, without a KV cache."""
    ALL_ATTENTION_FUNCTIONS.register("causal_blocks", causal_blocks)
    ALL_MASK_ATTENTION_FUNCTIONS.register("causal_blocks", lambda *args, **kwargs: None)
    ALL_EXPERTS_FUNCTIONS.register("sorted_rows", sorted_rows)
    model.config._attn_implementation = "causal_blocks"
    model.config._experts_implementation = "sorted_rows"
    model.config.use_cache = False


def switch_positions(model: DeepseekV3ForCausalLM, *, is_yarn: bool) -> None:
    """Give the model YaRN's frequencies (or unscaled ones) from here on; weights and softmax scale stay."""
    model.config.rope_parameters = rope_parameters(is_yarn=is_yarn)
    model.config.max_position_embeddings = MAX_POSITIONS if is_yarn else ORIGINAL_POSITIONS
    model.model.rotary_emb = DeepseekV3RotaryEmbedding(model.config)


def routers(model: nn.Module) -> Iterator[DeepseekV3TopkRouter]:
    """The routers of all expert layers, bottom first."""
    return (module for module in model.modules() if isinstance(module, DeepseekV3TopkRouter))


def causal_blocks(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **unused: object,
) -> tuple[torch.Tensor, None]:
    """Causal attention by blocks of queries, each against the keys up to its end.

    `query`, `key` (B, H, T, D), `value` (B, H, T, Dv) -> (B, T, H, Dv). No padding: every sequence fills its row.
    """
    num_sequences, num_heads, tokens_len, _ = query.shape
    query = (query * scaling).flatten(0, 1)
    key = key.flatten(0, 1).transpose(1, 2)
    value = value.flatten(0, 1)
    block_len = min(tokens_len, max(_MIN_BLOCK_LEN, tokens_len // 8))
    outputs = []
    for start in range(0, tokens_len, block_len):
        end = min(start + block_len, tokens_len)
        scores = torch.bmm(query[:, start:end], key[:, :, :end])
        future = torch.full((end - start, end - start), float("-inf"), dtype=scores.dtype).triu(1)
        scores[:, :, start:] += future
        # torch._softmax keeps bfloat16 in and out (summing in float32); autocast would copy to float32 and back.
        weights = torch._softmax(scores, -1, False)
        outputs.append(torch.bmm(weights, value[:, :end]))
    output = torch.cat(outputs, dim=1).view(num_sequences, num_heads, tokens_len, -1)
    return output.transpose(1, 2).contiguous(), None


def sorted_rows(
    experts: DeepseekV3Experts, hidden: torch.Tensor, expert_ids: torch.Tensor, expert_weights: torch.Tensor
) -> torch.Tensor:
    """Experts' sum per row: `hidden` (N, D), `expert_ids` and `expert_weights` (N, K) -> (N, D).

    Rows are copied once in the order of their experts, so that each expert multiplies one contiguous slice.
    """
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else hidden.dtype
    flat_ids = expert_ids.reshape(-1)
    order = flat_ids.argsort(stable=True)
    row_ids = order // expert_ids.shape[1]
    num_rows = torch.bincount(flat_ids, minlength=experts.num_experts).tolist()
    gate_up_weights = experts.gate_up_proj.to(dtype).transpose(1, 2).unbind()
    down_weights = experts.down_proj.to(dtype).transpose(1, 2).unbind()
    rows = hidden.index_select(0, row_ids).to(dtype)
    gate_up = torch.cat(
        [part @ weight for part, weight in zip(torch.split(rows, num_rows), gate_up_weights, strict=True)]
    )
    gate, up = gate_up.chunk(2, dim=-1)
    inner = functional.silu(gate) * up
    output = torch.cat(
        [part @ weight for part, weight in zip(torch.split(inner, num_rows), down_weights, strict=True)]
    )
    weighted = output * expert_weights.reshape(-1).index_select(0, order).unsqueeze(1)
    total = torch.zeros(hidden.shape, dtype=weighted.dtype).index_add(0, row_ids, weighted)
    return total.to(hidden.dtype)
