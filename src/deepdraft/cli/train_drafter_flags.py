"""The flags of `deepdraft train-drafter`, and how their values are read."""

from __future__ import annotations

import argparse
from pathlib import Path

from deepdraft.cli.value import count, count_or_none, tokens

RESULTS = "acceptance"
"""The folder of the results files, in that of the job."""


def add_training_flags(parser: argparse.ArgumentParser) -> None:
    """Add them all. None where nothing is said: the defaults are `drafter_training`'s."""
    parser.add_argument("target", metavar="TARGET", help="embedded, a folder or a GGUF file")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="the folder of the job")
    parser.add_argument("--resume", action="store_true", help="go on with the job in DIR; give the same flags again")
    parser.add_argument("--seed", type=count_or_none, metavar="N", help="of prompts, first weights and blocks")

    text = parser.add_argument_group("what is learned")
    text.add_argument(
        "--text", type=Path, nargs="+", metavar="PATH", help="UTF-8 text, a document a file; a folder: its files"
    )
    text.add_argument(
        "--regenerate",
        type=tokens,
        metavar="TOKENS",
        help="let the target write about this much after prompts from the text (750k)",
    )
    text.add_argument(
        "--no-regenerate", action="store_true", help="learn the text's own continuations: quick, and worse"
    )
    text.add_argument("--sequence-len", type=tokens, metavar="TOKENS", help="longest short prompt and answer (1280)")
    text.add_argument("--output-len", type=tokens, metavar="TOKENS", help="tokens of an answer (256)")
    text.add_argument(
        "--long-frac",
        type=_share,
        metavar="SHARE",
        help="of what the last steps learn: answers after prompts 2 to 16 times as long (0.2)",
    )

    drafter = parser.add_argument_group("the drafter")
    drafter.add_argument("--block-size", type=count, metavar="N", help="tokens drafted at once, plus 1 (8)")
    drafter.add_argument("--num-layers", type=count, metavar="N", help="draft layers (3)")
    drafter.add_argument(
        "--target-layers", type=_layers, metavar="N,N...", help="0-based layers whose output it reads (up to five)"
    )
    drafter.add_argument("--draft-window", type=tokens, metavar="TOKENS", help="context a block sees (512)")
    drafter.add_argument("--mask-token-id", type=count_or_none, metavar="N", help="(the vocabulary's own mask token)")

    length = parser.add_argument_group("how long")
    length.add_argument("--steps", type=count, metavar="N", help="optimizer steps (7500)")
    length.add_argument("--tokens", type=tokens, metavar="TOKENS", help="in place of --steps: drafted tokens learned")
    length.add_argument("--num-threads", type=count, metavar="N", help="(torch's own choice)")

    evaluation = parser.add_argument_group("acceptance")
    evaluation.add_argument(
        "--evaluate", type=Path, metavar="DRAFTER", help="train nothing: evaluate the drafter in this folder"
    )
    evaluation.add_argument(
        "--eval-text",
        type=Path,
        nargs="+",
        metavar="PATH",
        help=f"text not learned; writes results files to DIR/{RESULTS}",
    )
    evaluation.add_argument(
        "--eval-context-lens", type=_context_lens, metavar="N,N...", help="prompt lengths (1024,4096)"
    )
    evaluation.add_argument(
        "--tree-budgets", type=_budgets, metavar="N,N...", help="trees to count beside the chain (8,16,32,64)"
    )
    evaluation.add_argument("--eval-prompts", type=count, metavar="N", help="prompts of each length (32)")


def _layers(text: str) -> tuple[int, ...]:
    words = text.split(",")
    if not all(word.isdecimal() for word in words):
        raise argparse.ArgumentTypeError(f"not layer numbers: {text!r}")
    return tuple(int(word) for word in words)


def _context_lens(text: str) -> tuple[int, ...]:
    return tuple(tokens(word) for word in text.split(","))


def _budgets(text: str) -> tuple[int, ...]:
    return tuple(sorted({count(word) for word in text.split(",")}))


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number: {text!r}") from None
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"not a share between 0 and 1: {text}")
    return value
