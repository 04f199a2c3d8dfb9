"""What is sent: one long text whose beginnings are all contexts, and endings that tell the prompts of a length apart.

A prompt of L tokens is the text's first L - TAIL_LEN tokens and one ending. The text is standard-library modules in
random order, none twice, most of which the model has seen; endings are cut from modules and help topics that neither
the model nor the drafter has seen (`training.embedded.recipe`), code and prose in turns, the same at every length.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from training.embedded.corpus import read_split, standard_library

from benchmarks.acceptance import windows
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

TAIL_LEN = 256
SEED = 20261130
KINDS = ("code", "prose")


@dataclass(frozen=True, slots=True)
class Texts:
    """Token ids."""

    prefix: tuple[int, ...]
    tails: tuple[tuple[int, ...], ...]
    """Of the kinds in turns."""

    def prompt(self, context_len: int, tail_index: int) -> tuple[int, ...]:
        """Exactly `context_len` tokens."""
        return self.prefix[: context_len - TAIL_LEN] + self.tails[tail_index]


def kind_of(tail_index: int) -> str:
    """What an ending is cut from."""
    return KINDS[tail_index % len(KINDS)]


def read_texts(tokenizer: Tokenizer, *, prefix_len: int, num_tails: int) -> Texts:
    """The same every time on the same Python. Raises ValueError where the standard library is too short."""
    split = read_split(standard_library())
    modules = [each.text for each in split.training if each.kind == "code"]
    random.Random(SEED).shuffle(modules)
    prefix: list[int] = []
    for text in modules:
        if len(prefix) >= prefix_len:
            break
        prefix += tokenizer.encode(text, add_special=False)
    if len(prefix) < prefix_len:
        raise ValueError(f"the standard library has {len(prefix)} tokens, {prefix_len} are wanted")
    seen_prose = [tokenizer.encode(each.text, add_special=False) for each in split.training if each.kind == "prose"]
    held_out = {
        kind: [tokenizer.encode(each.text, add_special=False) for each in split.held_out if each.kind == kind]
        for kind in KINDS
    }
    fill = {"code": held_out["code"], "prose": seen_prose}
    of_kind = {kind: windows(held_out[kind], fill[kind], TAIL_LEN, -(-num_tails // 2)) for kind in KINDS}
    tails = [tail for pair in zip(of_kind["code"], of_kind["prose"], strict=True) for tail in pair]
    return Texts(tuple(prefix[:prefix_len]), tuple(tails[:num_tails]))
