"""From a checkpoint to a model ready to run."""

from __future__ import annotations

import torch

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.checkpoint import Checkpoint
from deepdraft.infer.config import MlaShape, ModelConfig
from deepdraft.infer.kernels.expanded import EXPANSION_PRICES
from deepdraft.infer.kernels.select import backend_name
from deepdraft.infer.models.deepseek_v3 import deepseek_v3
from deepdraft.infer.models.llama import llama
from deepdraft.infer.models.model import Model
from deepdraft.infer.models.weights import STORED_DTYPES, Weights


def load_model(
    checkpoint: Checkpoint,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    attention: str | None = None,
) -> Model:
    """The model with its weights in `dtype`, which it computes with; sums of attention, norms, the router and logits
    are float32 or wider in any case.

    dtype None: float32 on a CPU (its matrix products in bfloat16 can be a hundred times slower), else as stored.
    attention: the back end that it will run with, by name as `kernels.select` takes it; with another one it is as
    right, but long prompts may take the dearer of two forms.

    Raises UsageError, with its name, for a tensor that is missing, has another shape, or has no place in the model,
    and for a back end that isn't known.
    """
    device = device or torch.device("cpu")
    config = checkpoint.config
    stored_dtype = STORED_DTYPES.get(config.dtype)
    weights = Weights(checkpoint, dtype or _default_dtype(config, device), device, stored_dtype=stored_dtype)
    shape = config.attention
    if isinstance(shape, MlaShape):
        model = deepseek_v3(config, shape, weights, price=EXPANSION_PRICES[backend_name(attention, device)])
    else:
        model = llama(config, shape, weights)
    _refuse_unread(checkpoint)
    return model


def _default_dtype(config: ModelConfig, device: torch.device) -> torch.dtype:
    if device.type == "cpu":
        return torch.float32
    return STORED_DTYPES.get(config.dtype, torch.bfloat16)


def _refuse_unread(checkpoint: Checkpoint) -> None:
    """A weight nobody asked for (a bias, a norm) would silently make the output wrong."""
    unread = [name for name in checkpoint.unread_names() if not _is_redundant(name, checkpoint.config)]
    if unread:
        raise UsageError(
            f"the checkpoint has {len(unread)} tensors that have no place in a {checkpoint.config.model_type} model "
            f"of this config, the first is {unread[0]}",
            hint="the config doesn't tell of a feature of the weights; the output would be wrong without them",
        )


def _is_redundant(name: str, config: ModelConfig) -> bool:
    """Frequencies that follow from the config, and a stored copy of a tied matrix."""
    return name.endswith("rotary_emb.inv_freq") or (config.has_tied_embeddings and name == "lm_head.weight")
