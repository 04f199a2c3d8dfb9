"""Plain prefill and decode of our engine against transformers' model of the same folder, in one process.

    python -m benchmarks.forward [--model FOLDER] [--context-lens 1k,8k,32k] [--threads N] [--json FILE]
                                 [--backend NAME]

Both sides compute in float32, greedily, with random token ids as the prompt. Ours: the engine, scheduler and sampler
included, as it is set up by default (pages of 16 tokens, the fastest attention back end), without the radix cache; no
server. transformers: SDPA attention, `DynamicCache`, logits of the last token only; the prompt in one pass and in
chunks of 512. After the first length of two chunks or more only the faster of these two goes on. The sides take turns
in every round, so that what slows the machine slows both; a ratio is the median of the rounds' own ratios, with their
range. The tokens that the two decode are compared: a benchmark of two models that don't agree is none.

Leaves out: batches, sampling, loading, memory, and transformers' `generate` (its loop costs more than the one here).
Needs the development environment (transformers). The default takes about 5 minutes on two quiet cores, nearly all of
it transformers' 32k.
"""

from __future__ import annotations

import argparse
import importlib
import json
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from benchmarks.peers.machine import machine
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.engine import Engine
from deepdraft.infer.kernels.select import AUTO
from deepdraft.infer.models.load import load_model
from deepdraft.infer.request import Request, SamplingParams
from deepdraft.infer.settings import DEFAULT_CHUNK_LEN, DEFAULT_PAGE_SIZE, EngineSettings

CHUNK_LEN = 512
"""Of transformers' prompts, where they are cut"""
DECODE_LEN = 24
WARM_UP_LEN = 200
ROUNDS = {1024: 5, 8192: 3}
"""By context length up to which; beyond them two."""


class Side(Protocol):
    """One implementation with one sequence in its cache."""

    name: str

    def prefill(self, token_ids: Sequence[int]) -> int:
        """Forget what was, run the prompt and return the likeliest next token."""

    def decode(self, token_id: int) -> int:
        """One more token."""


class Ours:
    """Our engine with a pool that just holds the longest sequence."""

    def __init__(self, folder: Path, *, max_len: int, backend: str) -> None:
        self.name = f"deepdraft, attention {backend}"
        checkpoint = open_checkpoint(folder)
        settings = EngineSettings(
            max_context_len=max_len,
            kv_pool_tokens=-(-max_len // DEFAULT_PAGE_SIZE) * DEFAULT_PAGE_SIZE,
            chunk_len=DEFAULT_CHUNK_LEN,
            attention_backend=backend,
            has_radix_cache=False,
        )
        self._engine = Engine(load_model(checkpoint), checkpoint.tokenizer(), settings)

    def prefill(self, token_ids: Sequence[int]) -> int:
        """As Side.prefill."""
        if self._engine.abort("asked"):
            self._engine.step()
        max_tokens = self._engine.settings.max_context_len - len(token_ids)
        sampling = SamplingParams(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
        self._engine.submit(Request(request_id="asked", prompt_token_ids=tuple(token_ids), sampling=sampling))
        return self._next()

    def decode(self, token_id: int) -> int:
        """As Side.decode: the engine goes on from the token that it gave last."""
        return self._next()

    def _next(self) -> int:
        while True:
            for output in self._engine.step():
                if output.token_ids:
                    return output.token_ids[0]


class Transformers:
    """transformers' model of the same folder; chunk_len None: the prompt in one pass."""

    def __init__(self, model: Any, *, chunk_len: int | None) -> None:
        self.name = "transformers, " + ("one pass" if chunk_len is None else f"chunks of {chunk_len}")
        self._model = model
        self._chunk_len = chunk_len
        self._cache: Any = None

    def prefill(self, token_ids: Sequence[int]) -> int:
        """As Side.prefill."""
        self._cache = _transformers().DynamicCache(config=self._model.config)
        step = self._chunk_len or len(token_ids)
        for first in range(0, len(token_ids), step):
            found = self._run(token_ids[first : first + step])
        return found

    def decode(self, token_id: int) -> int:
        """As Side.decode."""
        return self._run([token_id])

    def _run(self, token_ids: Sequence[int]) -> int:
        with torch.inference_mode():
            out = self._model(torch.tensor([token_ids]), cache=self._cache, use_cache=True, logits_to_keep=1)
        return int(out.logits[0, -1].argmax())


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One side's turn."""

    side: str
    context_len: int
    prefill_s: float
    decode_step_s: float
    """Median of the steps"""
    token_ids: tuple[int, ...]


def one_round(side: Side, token_ids: Sequence[int], decode_len: int) -> Round:
    started = time.perf_counter()
    found = [side.prefill(token_ids)]
    prefill_s = time.perf_counter() - started
    steps = []
    for _ in range(decode_len):
        started = time.perf_counter()
        found.append(side.decode(found[-1]))
        steps.append(time.perf_counter() - started)
    return Round(
        side=side.name,
        context_len=len(token_ids),
        prefill_s=prefill_s,
        decode_step_s=statistics.median(steps),
        token_ids=tuple(found),
    )


def measured(sides: Sequence[Side], context_len: int, vocab_size: int) -> list[Round]:
    """All rounds at one length; which side begins changes from round to round."""
    num_rounds = next((count for longest, count in ROUNDS.items() if context_len <= longest), 2)
    rounds = []
    for round_index in range(num_rounds):
        generator = torch.Generator().manual_seed(round_index)
        prompt = torch.randint(vocab_size, (context_len,), generator=generator).tolist()
        for turn in range(len(sides)):
            rounds.append(one_round(sides[(turn + round_index) % len(sides)], prompt, DECODE_LEN))
            _say(f"{context_len:>7} {rounds[-1].side}: prefill {rounds[-1].prefill_s:.2f} s")
    return rounds


def faster(rounds: Sequence[Round], names: Sequence[str]) -> str:
    """The side with the shortest median prefill."""
    return min(names, key=lambda name: statistics.median(r.prefill_s for r in rounds if r.side == name))


def table(rounds: Sequence[Round], ours: str) -> list[str]:
    """Markdown, a row per length and side of transformers, ours beside it."""
    lines = [
        "| context | transformers' prompt in | prefill tok/s: ours, theirs | ratio (range) "
        "| decode tok/s: ours, theirs | ratio (range) | same tokens |",
        "|--:|---|--:|--:|--:|--:|--:|",
    ]
    for context_len in sorted({r.context_len for r in rounds}):
        at_len = [r for r in rounds if r.context_len == context_len]
        mine = [r for r in at_len if r.side == ours]
        for name in dict.fromkeys(r.side for r in at_len if r.side != ours):
            theirs = [r for r in at_len if r.side == name]
            prefill = _compared(
                [context_len / r.prefill_s for r in mine], [context_len / r.prefill_s for r in theirs]
            )
            decode = _compared([1 / r.decode_step_s for r in mine], [1 / r.decode_step_s for r in theirs])
            same = sum(a.token_ids == b.token_ids for a, b in zip(mine, theirs, strict=True))
            prompt_in = name.removeprefix("transformers, ")
            lines.append(f"| {context_len:,} | {prompt_in} | {prefill} | {decode} | {same} of {len(mine)} rounds |")
    return lines


def _compared(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """Medians and the rounds' ratios; both in the order of the rounds."""
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    return (
        f"{statistics.median(ours):,.0f}, {statistics.median(theirs):,.0f} | "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    )


def all_rounds(folder: Path, context_lens: Sequence[int], *, chunk_len: int, backend: str) -> tuple[list[Round], str]:
    """Every round at every length, and the name of our side. chunk_len: of transformers' prompts."""
    lens = sorted(context_lens)
    model = _transformers().AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa"
    )
    ours = Ours(folder, max_len=lens[-1] + DECODE_LEN + 2, backend=backend)
    theirs: list[Side] = [Transformers(model, chunk_len=None), Transformers(model, chunk_len=chunk_len)]
    sides: list[Side] = [ours, *theirs]
    for side in sides:
        one_round(side, list(range(WARM_UP_LEN)), 4)
    rounds: list[Round] = []
    for context_len in lens:
        rounds += measured(sides, context_len, model.config.vocab_size)
        if len(sides) > 2 and context_len >= 2 * chunk_len:  # the slower way would take minutes at 32k
            name = faster([r for r in rounds if r.context_len == context_len], [side.name for side in theirs])
            sides = [ours, *(side for side in theirs if side.name == name)]
    return rounds, ours.name


def head(folder: Path) -> str:
    """What the figures were taken with."""
    return f"{folder.name}, float32, {torch.get_num_threads()} threads, torch {torch.__version__}; {machine()}\n"


def least_ratios(rounds: Sequence[Round], ours: str) -> tuple[float, float]:
    """Ours over theirs, prefill and decode: the least of the lengths' and sides' median ratios."""
    prefill, decode = [], []
    for context_len, name in dict.fromkeys((r.context_len, r.side) for r in rounds if r.side != ours):
        mine, theirs = ([r for r in rounds if (r.context_len, r.side) == (context_len, s)] for s in (ours, name))
        pairs = list(zip(mine, theirs, strict=True))
        prefill.append(statistics.median(other.prefill_s / one.prefill_s for one, other in pairs))
        decode.append(statistics.median(other.decode_step_s / one.decode_step_s for one, other in pairs))
    return min(prefill), min(decode)


def main() -> int:
    """Measure and print the table."""
    arguments = _arguments()
    torch.set_num_threads(arguments.threads or torch.get_num_threads())
    folder = arguments.model or embedded_model_path()
    rounds, ours = all_rounds(
        folder, arguments.context_lens, chunk_len=arguments.chunk_len, backend=arguments.backend
    )
    print(head(folder))
    print("\n".join(table(rounds, ours)))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(each) for each in rounds]))
    return 0


def _transformers() -> Any:
    """Imported by name: the library's own types are partial."""
    return importlib.import_module("transformers")


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _lens(text: str) -> list[int]:
    return [int(part.removesuffix("k")) * (1024 if part.endswith("k") else 1) for part in text.split(",")]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, help="a Hugging Face folder (default: the embedded model)")
    parser.add_argument("--context-lens", type=_lens, default=_lens("1k,8k,32k"))
    parser.add_argument("--chunk-len", type=int, default=CHUNK_LEN, help="of transformers' prompts (%(default)s)")
    parser.add_argument("--backend", default=AUTO, help="of our attention: auto, native, torch (%(default)s)")
    parser.add_argument("--threads", type=int, help="of torch (default: its own choice, one per core)")
    parser.add_argument("--json", type=Path, help="write the rounds here")
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
