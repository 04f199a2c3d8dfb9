"""Checkpoint folders for tests: real safetensors headers over files of zeros that take no room on disk."""

from __future__ import annotations

import json
import struct
from pathlib import Path

TINY_LATENT = {
    "model_type": "deepseek_v3", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "kv_lora_rank": 32, "q_lora_rank": 48, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
    "vocab_size": 1000, "intermediate_size": 128, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16",
}  # fmt: skip


def write_shard(path: Path, tensors: dict[str, int]) -> None:
    """A file whose header gives each tensor that many bytes."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, num_bytes in tensors.items():
        header[name] = {"dtype": "U8", "shape": [num_bytes], "data_offsets": [at, at + num_bytes]}
        at += num_bytes
    text = json.dumps(header).encode()
    with path.open("wb") as stream:
        stream.write(struct.pack("<Q", len(text)) + text)
        stream.truncate(8 + len(text) + at)


def write_checkpoint(folder: Path, shards: list[dict[str, int]], config: dict = TINY_LATENT) -> Path:
    """A folder with config.json and the shards."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for index, tensors in enumerate(shards):
        write_shard(folder / f"model-{index:05}.safetensors", tensors)
    return folder


SHARDS = [
    {
        "model.embed_tokens.weight": 2000,
        "model.layers.0.self_attn.q_a_proj.weight": 100,
        "model.layers.0.self_attn.kv_a_proj_with_mqa.weight": 50,
        "model.layers.0.self_attn.q_b_proj.weight": 400,
        "model.layers.0.mlp.gate_proj.weight": 800,
        "model.layers.0.input_layernorm.weight": 10,
    },
    {
        "model.layers.1.mlp.gate.weight": 40,
        "model.layers.1.mlp.experts.0.down_proj.weight_packed": 1600,
        "model.layers.2.mlp.experts.0.down_proj.weight_packed": 1700,
        "lm_head.weight": 2000,
    },
]
"""Of the tiny latent model: 200 bytes on every rank, 6,800 shared, 1,700 of the prediction layer."""
