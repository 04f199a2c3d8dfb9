"""The target as training needs it: its model, its tokenizer, and the parts that a drafter shares with it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.models.decoder import Decoder
from deepdraft.infer.models.load import load_model
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

EMBEDDED = "embedded"
MASK_TOKENS = ("<|mask|>", "<|MASK|>", "<mask>", "[MASK]")


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """A loaded target, in float32 on the CPU."""

    name: str
    model: Decoder
    tokenizer: Tokenizer
    max_context_len: int

    @property
    def embedding(self) -> Tensor:
        """[V, H]"""
        return self.model.embedding

    @property
    def output(self) -> Tensor:
        """[V, H]"""
        return self.model.output

    @property
    def final_norm(self) -> Tensor:
        """The weight of the norm before the output matrix, [H]."""
        width = self.model.embedding.shape[1]
        weight: Tensor = self.model.norm.scaled_weight / math.sqrt(width)
        return weight

    def mask_token_id(self) -> int:
        """The vocabulary's own mask token. Raises UsageError where it has none."""
        for token in MASK_TOKENS:
            token_ids = self.tokenizer.encode(token, add_special=False)
            if len(token_ids) == 1 and self.tokenizer.is_special(token_ids[0]):
                return token_ids[0]
        raise UsageError(
            f"the vocabulary of {self.name} has no mask token",
            hint="name a token that no text holds (a reserved one) with --mask-token-id",
        )


def load_target(spec: str, *, num_threads: int | None = None) -> Target:
    """`embedded`, a folder or a GGUF file; num_threads: of all that is computed from here on (None: torch's choice).

    Raises UsageError where there is no model that the stack runs.
    """
    if num_threads is not None:
        torch.set_num_threads(num_threads)
    checkpoint = open_checkpoint(embedded_model_path() if spec == EMBEDDED else Path(spec))
    model = load_model(checkpoint, dtype=torch.float32)
    assert isinstance(model, Decoder)
    max_context_len = checkpoint.config.max_context_len
    return Target(checkpoint.name, model, checkpoint.tokenizer(), max_context_len)
