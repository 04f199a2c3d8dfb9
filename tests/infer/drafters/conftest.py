"""Targets of both forms with random weights, and drafters for them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent))  # makes the modules beside this one importable for the tests

from drafting_case import HIDDEN_SIZE, TARGET_LAYERS, VOCAB_SIZE, DrafterFolder, Drafting, write_drafter

from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.drafters.dflash import DflashDrafter
from deepdraft.infer.drafters.open import open_drafter
from deepdraft.infer.models.decoder import Decoder
from deepdraft.infer.models.load import load_model

transformers = pytest.importorskip("transformers")

COMMON: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": HIDDEN_SIZE,
    "intermediate_size": 64,
    "num_hidden_layers": TARGET_LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}
LATENT = {
    "num_key_value_heads": 4,
    "moe_intermediate_size": 24,
    "n_routed_experts": 4,
    "n_group": 1,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 20,
    "kv_lora_rank": 16,
    "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 12,
    "num_mtp_layers": 0,
}
FORMS = {
    "latent": (transformers.DeepseekV3Config, transformers.DeepseekV3ForCausalLM, {**COMMON, **LATENT}),
    "grouped": (
        transformers.Qwen3Config,
        transformers.Qwen3ForCausalLM,
        {**COMMON, "num_key_value_heads": 2, "head_dim": 8},
    ),
}


@dataclass
class Target:
    """transformers' model, and the folder it was saved to."""

    theirs: nn.Module
    folder: Path

    @cached_property
    def wide(self) -> Decoder:
        """Ours in float64: rounding is out of the way."""
        return self.load(torch.float64)

    @cached_property
    def single(self) -> Decoder:
        return self.load(torch.float32)

    def load(self, dtype: torch.dtype) -> Decoder:
        model = load_model(open_checkpoint(self.folder), dtype=dtype)
        assert isinstance(model, Decoder)
        return model

    @torch.no_grad()
    def hidden_states(self, token_ids: list[int]) -> tuple[Tensor, ...]:
        """transformers': the embedding's [T, H], then each layer's."""
        states = self.theirs(torch.tensor([token_ids]), output_hidden_states=True).hidden_states
        return tuple(state[0] for state in states)


@pytest.fixture(scope="session")
def target_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Target]:
    """The target of a form, latent (MLA) or grouped (GQA); made once."""

    @cache
    def make(form: str) -> Target:
        config_class, model_class, fields = FORMS[form]
        config = config_class(**fields)
        config._attn_implementation = config._experts_implementation = "eager"
        theirs = model_class(config).eval()
        generator = torch.Generator().manual_seed(17)
        with torch.no_grad():
            for name, tensor in [*theirs.named_parameters(), *theirs.named_buffers()]:
                if not name.endswith("inv_freq"):
                    noise = torch.randn(tensor.shape, generator=generator)
                    is_norm = "norm" in name
                    scale = 0.2 if is_norm or tensor.dim() < 2 else 1.5 * tensor.shape[-1] ** -0.5
                    tensor.copy_(noise * scale + (1.0 if is_norm else 0.0))
        folder = tmp_path_factory.mktemp("targets") / form
        theirs.save_pretrained(folder)
        return Target(theirs, folder)

    return make


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., DrafterFolder]:
    """A drafter's folder, with these changes to its config."""

    def make(**changes: Any) -> DrafterFolder:
        return write_drafter(tmp_path_factory.mktemp("drafters") / "drafter", **changes)

    return make


@pytest.fixture(scope="session")
def usual(folder_of: Callable[..., DrafterFolder]) -> DrafterFolder:
    """The drafter without changes."""
    return folder_of()


@pytest.fixture(scope="session")
def drafting_of(target_of: Callable[[str], Target], usual: DrafterFolder) -> Callable[..., Drafting]:
    """A float64 target and a drafter over a new pool; further values are `open_drafter`'s."""

    def make(
        folder: DrafterFolder | None = None,
        *,
        form: str = "grouped",
        page_size: int = 4,
        backend: str = "torch",
        target: Decoder | None = None,
        **values: Any,
    ) -> Drafting:
        target = target or target_of(form).wide
        drafter = open_drafter((folder or usual).path, target, **values)
        assert isinstance(drafter, DflashDrafter)
        return Drafting(target, drafter, page_size, backend)

    return make
