"""How good a model is: loss on held-out text, loss by position, and how often what it writes is Python.

Works on any causal language model of transformers, so that the exported folder is judged as others will load it.
Leaves out what is printed of it: see `card`.
"""

from __future__ import annotations

import ast
import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import cast

import torch
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedModel, PreTrainedTokenizerBase

from training.embedded.recipe import ASSISTANT, BEGIN, USER


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """Mean loss over predicted tokens, in nats a token."""

    nats_per_token: float
    num_tokens: int

    def bits_per_byte(self, tokens_per_byte: float) -> float:
        """The same loss per byte of text, given the text's tokens a byte: comparable between vocabularies."""
        return self.nats_per_token / math.log(2) * tokens_per_byte


@dataclass(frozen=True, slots=True)
class Continuation:
    """What a model wrote after a prompt."""

    prompt: str
    text: str
    is_ended: bool
    """Whether the model ended the text itself, before the limit of tokens."""


def held_out_loss(model: PreTrainedModel, tokens: torch.Tensor, sequence_len: int) -> HeldOutLoss:
    """Loss on `tokens` (1-D int64), cut into sequences of `sequence_len`; each one is predicted from its own start.

    A rest shorter than `sequence_len` is left out. Raises ValueError where the text is shorter than one sequence.
    """
    losses = torch.stack(token_losses(model, tokens, sequence_len))
    return HeldOutLoss(losses.mean().item(), losses.numel())


def loss_by_position(
    model: PreTrainedModel, tokens: torch.Tensor, sequence_len: int, bounds: Sequence[int]
) -> dict[tuple[int, int], HeldOutLoss]:
    """Loss of positions [lower, upper) within sequences of `sequence_len`, for neighbouring `bounds`."""
    losses = torch.stack(token_losses(model, tokens, sequence_len))
    parts = {(lower, upper): losses[:, lower:upper] for lower, upper in pairwise(bounds)}
    return {span: HeldOutLoss(part.mean().item(), part.numel()) for span, part in parts.items()}


@torch.no_grad()
def token_losses(model: PreTrainedModel, tokens: torch.Tensor, sequence_len: int) -> list[torch.Tensor]:
    """Loss of each token in each full sequence, (sequence_len,) each, in nats."""
    num_sequences = (len(tokens) - 1) // sequence_len
    if num_sequences == 0:
        raise ValueError(f"{len(tokens)} tokens do not fill one sequence of {sequence_len}")
    losses = []
    for index in range(num_sequences):
        window = tokens[index * sequence_len : (index + 1) * sequence_len + 1]
        logits = model(input_ids=window[None, :-1]).logits[0]
        losses.append(functional.cross_entropy(logits.float(), window[1:], reduction="none"))
    return losses


@torch.no_grad()
def continuation(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    *,
    max_new_tokens: int,
    temperature: float = 0.0,
) -> Continuation:
    """What the model writes after `prompt`: greedy at temperature 0, else sampled by torch's seed."""
    token_ids = tokenizer(prompt, return_tensors="pt").input_ids
    choice = {"do_sample": True, "temperature": temperature, "top_p": 0.95} if temperature else {"do_sample": False}
    output = cast(GenerationMixin, model).generate(
        token_ids, attention_mask=torch.ones_like(token_ids), max_new_tokens=max_new_tokens, **choice
    )
    new_ids = output[0, token_ids.shape[1] :].tolist()
    is_ended = tokenizer.eos_token_id in new_ids
    if is_ended:
        new_ids = new_ids[: new_ids.index(tokenizer.eos_token_id)]
    return Continuation(prompt, str(tokenizer.decode(new_ids)), is_ended)


def chat_prompt(request: str) -> str:
    """A user's request as the chat template renders it, up to where the answer begins."""
    return f"{BEGIN}{USER}{request}{ASSISTANT}"


def is_python(text: str) -> bool:
    """Whether `text` parses."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return bool(text.strip())


def has_body(code: str) -> bool:
    """Whether `code` parses as a function that does something after its docstring."""
    if not is_python(code):
        return False
    (function, *_) = ast.parse(code).body
    if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    num_docstrings = 0 if ast.get_docstring(function) is None else 1
    return len(function.body) > num_docstrings


def first_block(code: str) -> str:
    """The first function or class of `code` with its body: everything before the next line that is not indented.

    Code that was cut off in mid-line keeps its last, partial line only where no later line follows.
    """
    lines = textwrap.dedent(code).split("\n")
    for index, line in enumerate(lines[1:], start=1):
        if line and not line[0].isspace() and not line.startswith((")", "#")):
            return "\n".join(lines[:index])
    return "\n".join(lines)
