"""Train the embedded model: `python -m training.embedded.train --out FOLDER [--resume]`.

Writes below FOLDER: `tokenizer.json`, `checkpoint.pt` (replaced as a whole, every few minutes), and `log.jsonl` (one
line a report, also on stdout). A resumed run takes the same steps as an uninterrupted one: text is a pure function of
the step, and nothing else is drawn after the weights. Leaves out the final folder: see `export`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch.nn import functional
from torch.utils.hooks import RemovableHandle

from training.embedded.corpus import Split, chats, read_split, standard_library
from training.embedded.evaluate import held_out_loss
from training.embedded.model import routers, switch_positions, training_model
from training.embedded.optimizer import Muon, balance, split_parameters
from training.embedded.recipe import Recipe
from training.embedded.sequences import Sequences, encoded
from training.embedded.vocabulary import train_vocabulary

REPORT_EVERY_STEPS = 20
CHECKPOINT_EVERY_S = 300.0
EVALUATE_EVERY_S = 600.0
EVALUATED_TOKENS = 16_384
EVALUATED_LEN = 1024
CHECKPOINT = "checkpoint.pt"
TOKENIZER = "tokenizer.json"
LOG = "log.jsonl"


class Training:
    """A model under training: its weights, its optimizers, and the number of steps taken."""

    def __init__(
        self, recipe: Recipe, sequences: Sequences, model_changes: Mapping[str, object] | None = None
    ) -> None:
        self.recipe = recipe
        self.sequences = sequences
        self.model = training_model(recipe.seed, **(model_changes or {}))
        self.model.train()
        self.num_steps_done = 0
        self.elapsed_s = 0.0
        self.history: list[dict[str, int]] = []
        self._matmul_dtype = getattr(torch, recipe.matmul_dtype)
        matrices, halved, rest = split_parameters(self.model)
        self._muon = Muon(
            matrices,
            lr=recipe.muon_lr,
            weight_decay=recipe.weight_decay,
            halved=halved,
            matmul_dtype=self._matmul_dtype,
        )
        self._adamw = torch.optim.AdamW(rest, lr=recipe.adamw_lr, betas=(0.9, 0.95), weight_decay=0.0, fused=True)
        self._routers = list(routers(self.model))
        self.loads = [torch.zeros(router.num_experts) for router in self._routers]
        self._hooks = [self._count_load(index) for index in range(len(self._routers))]
        self._stage_index = 0

    def step(self) -> float:
        """Take one optimizer step; the batch's mean loss in nats a token, before the step."""
        self._enter_stage(self.recipe.stage_index(self.num_steps_done))
        stage = self.recipe.stages[self._stage_index]
        number = self.num_steps_done - self.recipe.first_step(self._stage_index)
        num_sequences = self.recipe.batch_tokens // stage.sequence_len
        tokens = self.sequences.batch(self._stage_index, number, num_sequences, stage.sequence_len)
        for load in self.loads:
            load.zero_()
        is_low = self._matmul_dtype != torch.float32
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_low):
            logits = self.model(input_ids=tokens[:, :-1]).logits
        loss = functional.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.max_grad_norm)
        self._move()
        self.num_steps_done += 1
        return loss.item()

    def imbalance(self) -> float:
        """The last step's largest load of an expert over the mean load, mean over the layers; 1.0 is even."""
        return sum((load.max() / load.mean()).item() for load in self.loads) / len(self.loads)

    def save(self, file: Path) -> None:
        """Write everything needed to go on, replacing `file` as a whole."""
        content = {
            "model": self.model.state_dict(),
            "muon": self._muon.state_dict(),
            "adamw": self._adamw.state_dict(),
            "num_steps_done": self.num_steps_done,
            "elapsed_s": self.elapsed_s,
            "recipe": asdict(self.recipe),
            "history": self.history,
        }
        partial = file.with_suffix(".partial")
        torch.save(content, partial)
        partial.replace(file)

    def load(self, file: Path) -> None:
        """Go on from a saved file. A different total of tokens is taken over and noted in `history`.

        Raises ValueError where the file was written under another recipe.
        """
        content: dict[str, Any] = torch.load(file, weights_only=True)
        saved, own = content["recipe"], asdict(self.recipe)
        changed = sorted(key for key in own if key != "total_tokens" and saved.get(key) != own[key])
        if changed:
            raise ValueError(f"{file} was written under another recipe: {', '.join(changed)} differ")
        self.model.load_state_dict(content["model"])
        self._muon.load_state_dict(content["muon"])
        self._adamw.load_state_dict(content["adamw"])
        self.num_steps_done = content["num_steps_done"]
        self.elapsed_s = content["elapsed_s"]
        self.history = content["history"]
        if saved["total_tokens"] != own["total_tokens"]:
            self.history.append({"step": self.num_steps_done, "total_tokens_before": saved["total_tokens"]})
        if self.num_steps_done < self.recipe.num_steps():
            self._enter_stage(self.recipe.stage_index(self.num_steps_done))

    def _enter_stage(self, stage_index: int) -> None:
        if stage_index == self._stage_index:
            return
        switch_positions(self.model, is_yarn=self.recipe.stages[stage_index].is_yarn)
        self._stage_index = stage_index

    def _move(self) -> None:
        factor = self.recipe.lr_factor(self.num_steps_done)
        for optimizer, peak_lr in ((self._muon, self.recipe.muon_lr), (self._adamw, self.recipe.adamw_lr)):
            optimizer.param_groups[0]["lr"] = peak_lr * factor
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        for router, load in zip(self._routers, self.loads, strict=True):
            balance(router.e_score_correction_bias, load, self.recipe.router_bias_rate * factor)

    def _count_load(self, index: int) -> RemovableHandle:
        def count(module: torch.nn.Module, inputs: object, outputs: tuple[torch.Tensor, ...]) -> None:
            if module.training:
                chosen = outputs[2].flatten()
                self.loads[index] += torch.bincount(chosen, minlength=len(self.loads[index]))

        return self._routers[index].register_forward_hook(count)


def vocabulary_of(folder: Path, split: Split) -> Tokenizer:
    """The folder's tokenizer, trained on the split's training documents and written where it is not there yet."""
    file = folder / TOKENIZER
    if not file.exists():
        train_vocabulary(document.text for document in split.training).save(str(file))
    return Tokenizer.from_file(str(file))


def run(folder: Path, recipe: Recipe, *, is_resumed: bool) -> None:
    """Train to the recipe's end, with reports, checkpoints and evaluations in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    split = read_split(standard_library())
    tokenizer = vocabulary_of(folder, split)
    documents = encoded(tokenizer, (*split.training, *chats(split.training)))
    held_out = torch.cat(encoded(tokenizer, split.held_out))[:EVALUATED_TOKENS]
    training = Training(recipe, Sequences(documents, recipe.seed))
    if is_resumed:
        training.load(folder / CHECKPOINT)
    _report(folder, event="start", num_tokens=training.sequences.num_tokens, recipe=asdict(recipe))
    _loop(training, folder, held_out)
    training.save(folder / CHECKPOINT)
    _report(folder, event="end", step=training.num_steps_done, held_out_loss=_held_out_loss(training, held_out))


def _loop(training: Training, folder: Path, held_out: torch.Tensor) -> None:
    recipe = training.recipe
    base_s = time.monotonic() - training.elapsed_s
    saved_s = evaluated_s = reported_s = time.monotonic()
    losses: list[float] = []
    while training.num_steps_done < recipe.num_steps():
        losses.append(training.step())
        now_s = time.monotonic()
        training.elapsed_s = now_s - base_s
        step = training.num_steps_done
        if step % REPORT_EVERY_STEPS == 0:
            _report(
                folder,
                step=step,
                tokens=step * recipe.batch_tokens,
                loss=round(sum(losses) / len(losses), 4),
                lr_factor=round(recipe.lr_factor(step), 4),
                tok_s=round(len(losses) * recipe.batch_tokens / (now_s - reported_s)),
                imbalance=round(training.imbalance(), 3),
                elapsed_s=round(training.elapsed_s, 1),
            )
            losses, reported_s = [], now_s
        if now_s - saved_s > CHECKPOINT_EVERY_S:
            training.save(folder / CHECKPOINT)
            saved_s = now_s
        if now_s - evaluated_s > EVALUATE_EVERY_S:
            _report(folder, step=step, held_out_loss=_held_out_loss(training, held_out))
            evaluated_s = time.monotonic()
            reported_s += evaluated_s - now_s


def _held_out_loss(training: Training, held_out: torch.Tensor) -> float:
    training.model.train(False)
    loss = held_out_loss(training.model, held_out, EVALUATED_LEN).nats_per_token
    training.model.train()
    return round(loss, 4)


def _report(folder: Path, **fields: object) -> None:
    line = json.dumps({"time": time.strftime("%H:%M:%S"), **fields})
    print(line, flush=True)
    with (folder / LOG).open("a") as log:
        log.write(line + "\n")


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(description="Train the embedded model on the standard library.")
    parser.add_argument("--out", type=Path, required=True, help="folder for tokenizer, checkpoint and log")
    parser.add_argument("--resume", action="store_true", help="go on from the folder's checkpoint")
    parser.add_argument("--total-tokens", type=int, default=None, help="length of the run; default: the recipe's")
    parser.add_argument("--threads", type=int, default=1, help="threads of torch")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    recipe = Recipe()
    if options.total_tokens is not None:
        recipe = replace(recipe, total_tokens=options.total_tokens)
    run(options.out, recipe, is_resumed=options.resume)


if __name__ == "__main__":
    main()
