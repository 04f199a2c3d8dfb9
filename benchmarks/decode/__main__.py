"""Decode of the embedded model, in process through the engine: milliseconds a token against context length, without
a drafter, and with speculation never, automatic, always (trees), and always with the same drafter's chains.

    python -m benchmarks.decode                 # prefix 7 minutes, answers 7, memory 1; all kept in build/decode
    python -m benchmarks.decode --only prefix   # beforehand: needs no quiet machine, may be cut short
    python -m benchmarks.decode --only table    # print again, measure nothing

Every mode has an engine and a pool of its own and answers the same prompts; modes take turns at every prompt. All
prompts of a length share a prefix, and longer ones begin with the shorter ones' text: it is computed once, kept in
the folder (`recording`) and copied into each pool; the last 256 tokens of each prompt are computed. Before the
answers that count each mode gives one at each length that does not. Answers are greedy and of fixed length; those of
all modes must be the same tokens. What is in the folder is not done again, so a run may be interrupted.

Leaves out: several requests at once (`benchmarks.concurrency`), HTTP, time to first token.
"""

from __future__ import annotations

import argparse
import datetime
import gc
import sys
from pathlib import Path

import msgspec
import torch

from benchmarks.peers.machine import machine
from deepdraft.embedded.spec import num_cores
from deepdraft.errors import DeepdraftError, UsageError
from deepdraft.infer.components.clock import Machine
from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.drafters.open import open_drafter
from deepdraft.infer.kernels.select import AUTO as FASTEST
from deepdraft.infer.kv.layout import kv_layout
from deepdraft.units import token_counts

from .answer import Answer, answer
from .memory import Footprint, footprint, measured_footprints
from .mode import MODES, Parts, engine
from .recording import ReplayingModel
from .section import Facts, page
from .stage import PAGE_SIZE, Stage, loaded_stage, record, settings
from .text import TAIL_LEN

PARTS = ("prefix", "answers", "memory", "table")
DEEP_LEN = 50_000
"""From here on half as many answers."""


def main() -> int:
    """Do what is not done yet, then print the tables. Returns the exit code."""
    options = _options()
    if options.footprint:
        print(msgspec.json.encode(_footprint(options)).decode())
        return 0
    try:
        return _run(options)
    except DeepdraftError as error:
        print(f"error: {error.message}" + (f" ({error.hint})" if error.hint else ""), file=sys.stderr)
        return error.exit_code


def _run(options: argparse.Namespace) -> int:
    folder: Path = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    if options.only == ["table"]:
        print(page(_facts(folder), _answers(folder), _footprints(folder)))
        return 0
    stage = _stage(options)
    record(stage, _say)
    if "answers" in options.only:
        _measure(options, stage)
    if "memory" in options.only:
        found = measured_footprints(stage.context_lens, _child_words(options), _say)
        (folder / "memory.json").write_bytes(msgspec.json.encode(found))
    if _answers(folder):
        print(page(_facts(folder), _answers(folder), _footprints(folder)))
    return 0


def _stage(options: argparse.Namespace) -> Stage:
    torch.set_num_threads(options.threads)
    return loaded_stage(options.folder, token_counts(options.context_len), num_tails=options.answers + 1)


# --- answers


def _measure(options: argparse.Namespace, stage: Stage) -> None:
    path: Path = options.folder / "answers.jsonl"
    _keep_facts(options.folder, _facts_now(options, stage))
    done = {each.key for each in _answers(options.folder)}
    parts = _parts(options, stage)
    engines = {mode: engine(mode, parts) for mode in options.modes}
    copying = Machine()
    gc.collect()
    gc.freeze()
    for context_len in stage.context_lens:
        num_answers = max(2, options.answers // (2 if context_len >= DEEP_LEN else 1))
        wanted = {(context_len, index, mode) for index in range(num_answers) for mode in options.modes}
        if wanted <= done:
            continue
        for tail_index in (options.answers, *range(num_answers)):
            copy_bytes_s = copying.copy_bytes_s()
            for mode in _turned(options.modes, tail_index):
                found = answer(
                    engines[mode],
                    mode,
                    stage.texts.prompt(context_len, tail_index),
                    tail_index=tail_index,
                    decode_len=options.decode_len,
                    temperature=options.temperature,
                    copy_bytes_s=copy_bytes_s,
                )
                is_warmup = tail_index == options.answers
                _say(_told(found, is_warmup))
                if not is_warmup and found.key not in done:
                    with path.open("ab") as file:
                        file.write(msgspec.json.encode(found) + b"\n")


def _drafter(options: argparse.Namespace, stage: Stage) -> Drafter:
    drafter = open_drafter(options.drafter, stage.model)
    if drafter is None:
        raise UsageError(
            "without a drafter there is nothing to compare", hint="--drafter embedded, ngram or a folder"
        )
    return drafter


def _parts(options: argparse.Namespace, stage: Stage) -> Parts:
    return Parts(
        model=ReplayingModel(stage.model, stage.recording),
        tokenizer=stage.tokenizer,
        new_drafter=lambda: _drafter(options, stage),
        settings=settings(
            stage.context_lens[-1],
            num_answers=len(stage.context_lens) * (options.answers + 1),
            decode_len=options.decode_len,
            chunk_len=TAIL_LEN,
            backend=options.backend,
        ),
        tree_budget=options.tree_budget,
    )


def _turned(modes: tuple[str, ...], turn: int) -> list[str]:
    """Who begins changes from prompt to prompt, and every other round runs backwards."""
    start = turn % len(modes)
    turned = [*modes[start:], *modes[:start]]
    return turned if turn % 2 == 0 else turned[::-1]


def _told(found: Answer, is_warmup: bool) -> str:
    per_round = f"{found.num_round_tokens / found.num_rounds:.2f} tokens a round" if found.num_rounds else "no rounds"
    return (
        f"{found.context_len:>7,} {'warm-up' if is_warmup else f'prompt {found.tail_index}'} {found.mode:>6}: "
        f"{1e3 * found.token_s:.2f} ms a token, {per_round}, {found.num_plain_steps} of {len(found.step_s)} steps "
        f"plain; prompt {found.prefill_s:.1f} s, {found.num_cached_tokens:,} cached"
    )


# --- what is kept


def _facts_now(options: argparse.Namespace, stage: Stage) -> Facts:
    drafter = _drafter(options, stage)
    own, both = (
        kv_layout(stage.model.config, page_size=PAGE_SIZE, dtype=torch.float32, drafter_layers=layers).bytes_per_token
        for layers in ((), drafter.kv_layers)
    )
    return Facts(
        machine=machine(),
        date=datetime.date.today().isoformat(),
        torch=str(torch.__version__),
        num_threads=options.threads,
        backend=options.backend,
        drafter=options.drafter,
        tree_budget=options.tree_budget,
        decode_len=options.decode_len,
        temperature=options.temperature,
        kv_bytes_per_token=own,
        drafter_kv_bytes_per_token=both - own,
    )


def _keep_facts(folder: Path, facts: Facts) -> None:
    """Raises UsageError where the folder's answers were taken otherwise; another day or load doesn't matter."""
    path = folder / "facts.json"
    if path.is_file():
        kept = _facts(folder)
        if msgspec.structs.replace(facts, machine=kept.machine, date=kept.date) != kept:
            raise UsageError(f"{folder} holds answers that were taken otherwise", hint="name another --folder")
        return
    path.write_bytes(msgspec.json.encode(facts))


def _facts(folder: Path) -> Facts:
    return msgspec.json.decode((folder / "facts.json").read_bytes(), type=Facts)


def _answers(folder: Path) -> list[Answer]:
    path = folder / "answers.jsonl"
    if not path.is_file():
        return []
    return [msgspec.json.decode(line, type=Answer) for line in path.read_bytes().splitlines()]


def _footprints(folder: Path) -> list[Footprint]:
    path = folder / "memory.json"
    return msgspec.json.decode(path.read_bytes(), type=list[Footprint]) if path.is_file() else []


# --- a child that does nothing else, whose memory is looked at


def _footprint(options: argparse.Namespace) -> Footprint:
    stage = _stage(options)
    context_len, mode = int(options.footprint[0]), str(options.footprint[1])
    return footprint(engine(mode, _parts(options, stage)), mode, stage.texts.prompt(context_len, 0))


def _child_words(options: argparse.Namespace) -> list[str]:
    return [
        *(sys.executable, "-m", "benchmarks.decode", "--folder", str(options.folder)),
        *("--context-len", options.context_len, "--answers", str(options.answers), "--threads", str(options.threads)),
        *("--drafter", options.drafter, "--backend", options.backend, "--tree-budget", str(options.tree_budget)),
    ]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("build/decode"), help="keeps everything (%(default)s)")
    parser.add_argument("--context-len", default="1k,4k,16k,64k,128k,185k", help="rounded up to 256 (%(default)s)")
    parser.add_argument("--answers", type=int, default=8, help="to each length, half as many from 50k on (8)")
    parser.add_argument("--decode-len", type=int, default=96, help="tokens of an answer (96)")
    parser.add_argument("--modes", type=lambda text: tuple(text.split(",")), default=MODES, help=", ".join(MODES))
    parser.add_argument("--drafter", default="embedded", help="embedded, ngram or a folder (%(default)s)")
    parser.add_argument("--tree-budget", type=int, default=16, help="nodes of a tree (16)")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy (%(default)s)")
    parser.add_argument("--threads", type=int, default=num_cores(), help="of torch (all cores)")
    parser.add_argument("--backend", default=FASTEST, help="of attention (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS[:3], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--footprint", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
