"""What a model is to the engine: a forward pass over a batch. The models are in their own files.

Shape letters: T tokens of the batch, N rows of logits, V vocabulary, H hidden size, K tapped layers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from deepdraft.infer.batch import Batch
from deepdraft.infer.config import ModelConfig
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kv.pool import PagePool


@dataclass(frozen=True, slots=True, eq=False)
class Forwarded:
    """The result of one pass."""

    logits: Tensor
    """[N, V] float32, of the batch's logit_rows"""
    taps: Tensor | None
    """[T, K * H]: the outputs of the tapped layers side by side, in the order asked for; None where none was"""


class Model(Protocol):
    """Weights and the one forward path. Nothing is kept between passes but what the pool holds."""

    @property
    def config(self) -> ModelConfig:
        """The model's shape."""

    @property
    def embedding(self) -> Tensor:
        """[V, H], of the tokens; a drafter shares it, and `output`."""

    @property
    def output(self) -> Tensor:
        """[V, H], from the final norm's rows to logits; the embedding itself where the two are tied"""

    def forward(
        self, batch: Batch, pool: PagePool, attention: AttentionBackend, *, tapped_layers: tuple[int, ...] = ()
    ) -> Forwarded:
        """Write the batch's KV rows into the pool and return the logits of its logit_rows.

        `tapped_layers` are 0-based layers whose OUTPUT (Hugging Face's hidden_states[i + 1]) a drafter wants.
        """
