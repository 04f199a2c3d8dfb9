"""A drafter under training: weights, optimizers, the number of steps taken, and its checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any
from zipfile import is_zipfile

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.blocks import Blocks, blocks_at, drawn_anchors
from deepdraft.infer.drafter_training.draft_module import DraftModule, initialised
from deepdraft.infer.drafter_training.loss import block_loss, depth_weights
from deepdraft.infer.drafter_training.muon import Muon
from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.drafter_training.shape import DrafterShape, TrainingRecipe


class Training:
    """Takes steps on samples. `embedding` and `output` [V, H] are the target's; they are never moved."""

    def __init__(
        self,
        shape: DrafterShape,
        recipe: TrainingRecipe,
        *,
        embedding: Tensor,
        output: Tensor,
        final_norm: Tensor | None = None,
    ) -> None:
        self.shape = shape
        self.recipe = recipe
        self.module = initialised(shape, recipe.seed, final_norm)
        self.num_steps_done = 0
        self._embedding = embedding.clone()
        self._output = output.clone()
        self._dtype = getattr(torch, recipe.matmul_dtype)
        self._weights = depth_weights(shape.draft_len, recipe.loss_gamma)
        matrices = [param for param in self.module.parameters() if param.ndim == 2]
        vectors = [param for param in self.module.parameters() if param.ndim < 2]
        self._muon = Muon(matrices, lr=recipe.muon_lr, weight_decay=recipe.weight_decay, matmul_dtype=self._dtype)
        self._adamw = torch.optim.AdamW(vectors, lr=recipe.adamw_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    def step(self, samples: Sequence[Sample]) -> float:
        """Take one optimizer step on drawn samples and anchors; the loss before the step, in nats."""
        draw = torch.Generator().manual_seed((self.recipe.seed << 24) + self.num_steps_done)
        chosen = self.drawn_samples(samples, draw)
        blocks = blocks_at(chosen, drawn_anchors(chosen, self.recipe.num_anchors, draw), self.shape)
        loss = block_loss(self.logits(blocks).flatten(0, 1), blocks.labels.flatten(0, 1), self._weights)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.module.parameters(), self.recipe.max_grad_norm)
        factor = self.recipe.lr_factor(self.num_steps_done)
        for optimizer, peak_lr in ((self._muon, self.recipe.muon_lr), (self._adamw, self.recipe.adamw_lr)):
            optimizer.param_groups[0]["lr"] = peak_lr * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.num_steps_done += 1
        return loss.item()

    def logits(self, blocks: Blocks) -> Tensor:
        """Of the masks of all blocks, [S, A, L, V]."""
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._dtype != torch.float32):
            hidden = draft_hidden(self.module, blocks, self._embedding)
            return F.linear(hidden[:, :, 1:], self._output)

    def drawn_samples(self, samples: Sequence[Sample], draw: torch.Generator) -> list[Sample]:
        """Samples of one step: short ones at first, then long ones among them."""
        recipe = self.recipe
        long = [sample for sample in samples if sample.is_long]
        short = [sample for sample in samples if not sample.is_long]
        is_early = self.num_steps_done < recipe.long_from_frac * recipe.num_steps
        chosen = []
        for share in torch.rand(recipe.num_sequences, generator=draw).tolist():
            is_long = share < recipe.long_frac and not is_early
            group = long if long and (is_long or not short) else short
            chosen.append(group[int(torch.randint(len(group), (), generator=draw))])
        return chosen

    def save(self, file: Path) -> None:
        """Write everything needed to go on, replacing `file` as a whole."""
        content = {
            "module": self.module.state_dict(),
            "muon": self._muon.state_dict(),
            "adamw": self._adamw.state_dict(),
            "num_steps_done": self.num_steps_done,
            "shape": asdict(self.shape),
            "recipe": asdict(self.recipe),
        }
        partial = file.with_suffix(".partial")
        torch.save(content, partial)
        partial.replace(file)

    def load(self, file: Path) -> None:
        """Go on from a saved file. Raises UsageError where it can't be read or is of a drafter of another shape."""
        if not is_zipfile(file):  # what torch.save writes
            raise UsageError(f"can't read the checkpoint {file}: it is missing or damaged")
        content: dict[str, Any] = torch.load(file, weights_only=True)
        if content["shape"] != asdict(self.shape):
            raise UsageError(f"{file} is of a drafter of another shape", hint="give the flags that it was begun with")
        self.module.load_state_dict(content["module"])
        self._muon.load_state_dict(content["muon"])
        self._adamw.load_state_dict(content["adamw"])
        self.num_steps_done = content["num_steps_done"]


def draft_hidden(module: DraftModule, blocks: Blocks, embedding: Tensor) -> Tensor:
    """Hidden states of all rows of all blocks, [S, A, B, H]."""
    num_sequences, num_anchors, block_size = blocks.block_positions.shape
    token_ids = torch.full((num_sequences, num_anchors, block_size), module.shape.mask_token_id)
    token_ids[..., 0] = blocks.bonus_ids
    hidden: Tensor = module(
        blocks.taps,
        blocks.context_positions,
        F.embedding(token_ids, embedding),
        blocks.block_positions,
        blocks.visible,
    )
    return hidden
