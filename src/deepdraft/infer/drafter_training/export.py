"""A drafter's folder in the published format: config.json and model.safetensors, as DFlash checkpoints have them.

The names of weights are `draft_module`'s. Leaves out running a drafter in the engine: `deepdraft.infer.drafters`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.draft_module import DraftModule
from deepdraft.infer.drafter_training.shape import DrafterShape

CONFIG = "config.json"
WEIGHTS = "model.safetensors"


def write_drafter(module: DraftModule, folder: Path) -> None:
    """Write both files, the weights in bfloat16, without embedding and output matrix, which are the target's."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / CONFIG).write_text(json.dumps(drafter_config(module.shape), indent=2) + "\n")
    weights = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in module.state_dict().items()}
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))


def read_drafter(folder: Path) -> DraftModule:
    """The module of a folder that `write_drafter` wrote, in float32.

    Raises UsageError where the folder holds no drafter of this form.
    """
    file = folder / CONFIG
    try:
        shape = shape_of_config(json.loads(file.read_text()))
        weights = load_file(folder / WEIGHTS)
    except OSError as error:
        raise UsageError(
            f"no drafter in {folder}: {error.strerror or error}",
            hint="name a folder with config.json and model.safetensors",
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{file} is no config of a drafter that is trained here: {error!r}") from None
    module = DraftModule(shape)
    try:
        module.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    except RuntimeError as error:
        raise UsageError(f"the weights in {folder} don't fit their config: {error}") from None
    return module


def drafter_config(shape: DrafterShape) -> dict[str, Any]:
    """The fields of config.json. `draft_window_size` is our own: the window of context it was trained for."""
    return {
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "hidden_act": "silu",
        "hidden_size": shape.hidden_size,
        "intermediate_size": shape.intermediate_size,
        "num_hidden_layers": shape.num_layers,
        "num_attention_heads": shape.num_heads,
        "num_key_value_heads": shape.num_kv_heads,
        "head_dim": shape.head_dim,
        "attention_bias": False,
        "is_causal": False,
        "rms_norm_eps": shape.norm_eps,
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
        "max_position_embeddings": shape.max_positions,
        "vocab_size": shape.vocab_size,
        "tie_word_embeddings": False,
        "block_size": shape.block_size,
        "num_target_layers": shape.num_target_layers,
        "dflash_config": {
            "mask_token_id": shape.mask_token_id,
            "target_layer_ids": list(shape.target_layers),
            "draft_window_size": shape.draft_window,
        },
        "dtype": "bfloat16",
    }


def shape_of_config(config: dict[str, Any]) -> DrafterShape:
    """The other way round. Raises KeyError or TypeError for a field that is missing."""
    own = config["dflash_config"]
    return DrafterShape(
        hidden_size=config["hidden_size"],
        vocab_size=config["vocab_size"],
        mask_token_id=own["mask_token_id"],
        target_layers=tuple(own["target_layer_ids"]),
        num_target_layers=config["num_target_layers"],
        num_layers=config["num_hidden_layers"],
        intermediate_size=config["intermediate_size"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        block_size=config["block_size"],
        draft_window=own["draft_window_size"],
        max_positions=config["max_position_embeddings"],
        rope_theta=config["rope_theta"],
        norm_eps=config["rms_norm_eps"],
    )
