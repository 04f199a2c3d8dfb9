"""Acceptance length of the embedded model's drafter in the engine: chain beside trees, near and deep, cold and on
cache hits.

    python -m benchmarks.acceptance [--drafter DRAFTER] [--context-lens 1024,16384] [--prompts N]
        [--temperature T] [--json FILE]

Prompts are windows of exactly the context length that end in one of the standard library's modules or help topics
that neither the model nor the drafter has seen (`training.embedded.recipe`). A module that is too short is preceded
by others that were not seen, a topic by topics that were: those kept apart are 7,000 tokens in all. No text stands
in a prompt twice. The model writes greedily, or at a temperature with a seed for each prompt; greedily it soon
repeats itself, which flatters any drafter. Every prompt runs twice without a flush: cold, and with its prefix in
the radix cache. Plain decoding runs first, and every output is held against it, token for token. Acceptance doesn't
hang on speed, so the machine need not be idle; no time is measured here.

Needs the development environment. The default takes about 15 minutes on one core, nearly all of it prompts of 16k.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal, get_args

from training.embedded.corpus import read_split, standard_library

from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.drafters.open import open_drafter
from deepdraft.infer.engine import Engine
from deepdraft.infer.kernels.select import AUTO
from deepdraft.infer.models.load import load_model
from deepdraft.infer.models.model import Model
from deepdraft.infer.request import Output, Request, SamplingParams
from deepdraft.infer.settings import EngineSettings, SpeculationSettings
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

Kind = Literal["code", "prose"]
CHAIN = 0
BUDGETS = (CHAIN, 8, 16, 32, 64)
OUTPUT_LEN = 128
SEED = 20261129
PAGE_SIZE = 16
NUM_TOGETHER = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One row of the table."""

    kind: Kind
    context_len: int
    budget: int
    """Nodes; CHAIN: a chain"""
    is_hit: bool
    num_prompts: int
    num_rounds: int
    num_accepted: int
    acceptance_len: float
    """Mean over rounds of the accepted drafts + 1."""
    num_different: int
    """Outputs that are not those of plain decoding, token for token."""


def windows(
    texts: Sequence[Sequence[int]], fill: Sequence[Sequence[int]], context_len: int, num_prompts: int
) -> list[tuple[int, ...]]:
    """Windows that end anywhere in one of `texts`, a text as likely as it is long; where it is too short, texts of
    `fill` stand before it. Raises ValueError where `fill` has too little."""
    draw = random.Random(SEED)
    found: list[tuple[int, ...]] = []
    while len(found) < num_prompts:
        text = draw.choices(texts, weights=[len(text) for text in texts])[0]
        stop = draw.randrange(min(64, len(text) - 1), len(text))
        window = list(text[max(0, stop - context_len) : stop])
        others = [other for other in fill if other is not text]
        draw.shuffle(others)
        while len(window) < context_len and others:
            window = [*others.pop(), *window][-context_len:]
        if len(window) < context_len:
            raise ValueError(f"the texts don't fill {context_len} tokens")
        found.append(tuple(window))
    return found


class Runs:
    """One engine per form of draft; prompts go through it a few at a time."""

    def __init__(self, model: Model, tokenizer: Tokenizer, drafter: str, context_len: int, num_prompts: int) -> None:
        self._model, self._tokenizer, self._drafter = model, tokenizer, drafter
        num_pages = -(-(context_len + OUTPUT_LEN) // PAGE_SIZE) + 8
        self._settings = EngineSettings(
            max_context_len=context_len + OUTPUT_LEN,
            kv_pool_tokens=num_pages * PAGE_SIZE * (num_prompts + 1),
            page_size=PAGE_SIZE,
            max_running_requests=NUM_TOGETHER,
            attention_backend=AUTO,
        )

    def plain(self) -> Engine:
        """Without a drafter."""
        return Engine(self._model, self._tokenizer, self._settings)

    def drafting(self, budget: int) -> Engine:
        """With it: a chain of the drafter's length, or a tree."""
        drafter = open_drafter(self._drafter, self._model)
        if drafter is None:
            raise SystemExit("name a drafter")
        settings = (
            SpeculationSettings(tree_budget=drafter.draft_len, tree_top_k=1)
            if budget == CHAIN
            else SpeculationSettings(tree_budget=budget)
        )
        return Engine(self._model, self._tokenizer, self._settings, drafter, settings)


def outputs(
    engine: Engine, prompts: Iterable[tuple[int, ...]], temperature: float
) -> list[tuple[tuple[int, ...], Output]]:
    """Tokens and last Output of each prompt."""
    token_ids: dict[str, list[int]] = {}
    last: dict[str, Output] = {}
    for number, prompt in enumerate(prompts):
        request_id = str(number)
        token_ids[request_id] = []
        sampling = SamplingParams(max_tokens=OUTPUT_LEN, temperature=temperature, seed=number)
        engine.submit(Request(request_id=request_id, prompt_token_ids=prompt, sampling=sampling))
    while engine.has_work:
        for output in engine.step():
            token_ids[output.request_id] += output.token_ids
            last[output.request_id] = output
    return [(tuple(found), last[request_id]) for request_id, found in token_ids.items()]


def cell(
    kind: Kind,
    context_len: int,
    budget: int,
    is_hit: bool,
    found: Sequence[tuple[tuple[int, ...], Output]],
    plain: Sequence[tuple[int, ...]],
) -> Cell:
    """The figures of one pass over the prompts. Raises RuntimeError where a pass was not what it should be."""
    told = [output.speculation for _, output in found if output.speculation is not None]
    cached = [output.num_cached_tokens for _, output in found]
    if any((num_tokens >= context_len - PAGE_SIZE) != is_hit for num_tokens in cached):
        raise RuntimeError(f"a {'hit' if is_hit else 'cold prompt'} with {cached} cached tokens")
    num_rounds = sum(each.num_rounds for each in told)
    num_accepted = sum(each.num_accepted_tokens for each in told)
    return Cell(
        kind=kind,
        context_len=context_len,
        budget=budget,
        is_hit=is_hit,
        num_prompts=len(found),
        num_rounds=num_rounds,
        num_accepted=num_accepted,
        acceptance_len=1 + num_accepted / num_rounds,
        num_different=sum(token_ids != expected for (token_ids, _), expected in zip(found, plain, strict=True)),
    )


def table(cells: Sequence[Cell]) -> str:
    """Markdown: a row for each kind of text, context length and state of the cache."""
    lines = [
        "| text | context | cache | chain | 8 | 16 | 32 | 64 | rounds | outputs that differ |",
        "|---" * 10 + "|",
    ]
    rows = dict.fromkeys((each.kind, each.context_len, each.is_hit) for each in cells)
    for kind, context_len, is_hit in rows:
        of_row = {
            each.budget: each
            for each in cells
            if (each.kind, each.context_len, each.is_hit) == (kind, context_len, is_hit)
        }
        lens = " | ".join(f"{of_row[budget].acceptance_len:.2f}" if budget in of_row else "-" for budget in BUDGETS)
        num_rounds = sum(each.num_rounds for each in of_row.values())
        num_different = sum(each.num_different for each in of_row.values())
        num_outputs = sum(each.num_prompts for each in of_row.values())
        lines.append(
            f"| {kind} | {context_len:,} | {'hit' if is_hit else 'cold'} | {lens} | {num_rounds:,} "
            f"| {num_different} of {num_outputs} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drafter", default="embedded", help="embedded, ngram or a folder (%(default)s)")
    parser.add_argument("--context-lens", default="1024,16384")
    parser.add_argument("--prompts", type=int, default=24, help="of each kind at the shortest length; fewer deeper")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy (%(default)s)")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    checkpoint = open_checkpoint(embedded_model_path())
    model, tokenizer = load_model(checkpoint), checkpoint.tokenizer()
    split = read_split(standard_library())
    texts = {
        kind: [tokenizer.encode(each.text, add_special=False) for each in split.held_out if each.kind == kind]
        for kind in get_args(Kind)
    }
    seen_prose = [tokenizer.encode(each.text, add_special=False) for each in split.training if each.kind == "prose"]
    fill = {"code": texts["code"], "prose": seen_prose}
    context_lens = [int(text) for text in arguments.context_lens.split(",")]
    cells: list[Cell] = []
    for context_len in context_lens:
        num_prompts = max(6, arguments.prompts * context_lens[0] // context_len)
        for kind in get_args(Kind):
            prompts = windows(texts[kind], fill[kind], context_len, num_prompts)
            runs = Runs(model, tokenizer, arguments.drafter, context_len, num_prompts)
            plain = [token_ids for token_ids, _ in outputs(runs.plain(), prompts, arguments.temperature)]
            for budget in BUDGETS:
                engine = runs.drafting(budget)
                for is_hit in (False, True):
                    found = outputs(engine, prompts, arguments.temperature)
                    cells.append(cell(kind, context_len, budget, is_hit, found, plain))
                    print(cells[-1], file=sys.stderr, flush=True)
                    if arguments.json:
                        arguments.json.write_text(json.dumps([asdict(each) for each in cells], indent=1))
    print(table(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
