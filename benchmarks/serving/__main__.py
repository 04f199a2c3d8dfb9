"""Our server beside transformers' and llama.cpp's on the same weights: prefill and decode of one stream over HTTP.

Two races. The embedded model: `deepdraft serve` and `transformers serve`, both in float32 from the same safetensors.
SmolLM2-135M: `deepdraft serve`, which computes in float32 from the GGUF file, llama.cpp with the same values written
out in float32 (weights and KV cache), and llama.cpp with the file as it ships (Q4_1 weights, float16 cache). All get
the same number of threads. Our client measures all of them; ratios are of one round, taken minutes apart at most.

    python -m benchmarks.serving                            # under 15 minutes; prints Markdown
    python -m benchmarks.serving --lengths 1k --threads 1
"""

from __future__ import annotations

import argparse
import collections
import datetime
import importlib.metadata
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.machine import machine
from deepdraft.embedded import DeepdraftSpec, LlamacppSpec
from deepdraft.embedded.llamacpp import smollm2_path
from deepdraft.embedded.spec import num_cores
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.units import token_counts

from .endless import make_endless
from .gguf_float32 import write_float32
from .race import Contender, Pace, Race, Speed, speeds
from .transformers_server import TransformersSpec

OURS = "deepdraft"
_SMOLLM2_LEN = 8_192
_PACKAGES = ("deepdraft", "torch", "transformers", "xllamacpp")


def main() -> int:
    """Run the races and print a section of Markdown."""
    options = _options()
    pace = Pace(
        context_lens=token_counts(options.lengths),
        decode_len=options.decode_len,
        point_limit_s=options.point_limit,
    )
    taken = (
        f"Taken on {datetime.date.today().isoformat()}, {machine()}. Threads of every server: {options.threads}. "
        f"{', '.join(f'{name} {importlib.metadata.version(name)}' for name in _PACKAGES)}. "
        "Medians over the rounds; ratios are of figures of one round, in brackets the smallest and the largest."
    )
    with tempfile.TemporaryDirectory(prefix="deepdraft-serving-") as folder:
        sections = [f"{taken}\n"]
        for name in options.race or ("embedded", "smollm2"):
            race_folder = Path(folder) / name
            race_folder.mkdir()
            race = _RACES[name](options, race_folder)
            sections.append(section(race, speeds(race, pace, race_folder, _say)))
    print("\n".join(sections))
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.serving", description=__doc__.partition("\n")[0])
    parser.add_argument("--lengths", default="1k,8k,32k", metavar="LIST", help="prompt tokens (1k,8k,32k)")
    parser.add_argument("--decode-len", type=int, default=32, metavar="N", help="tokens to generate (32)")
    parser.add_argument("--threads", type=int, default=num_cores(), metavar="N", help="of every server (all cores)")
    parser.add_argument(
        "--point-limit", type=float, default=150.0, metavar="S", help="seconds for the rounds at one length (150)"
    )
    parser.add_argument("--no-shipped", action="store_true", help="leave llama.cpp with the file as it ships out")
    parser.add_argument("--race", choices=tuple(_RACES), action="append", help="only this one; may be repeated (all)")
    parser.add_argument("--model", type=Path, metavar="FOLDER", help="in place of the embedded model")
    parser.add_argument(
        "--transformers-python", default=sys.executable, metavar="PATH", help="a Python with transformers[serving]"
    )
    return parser.parse_args()


def _embedded_race(options: argparse.Namespace, folder: Path) -> Race:
    source: Path = options.model or embedded_model_path()
    endless = folder / "model"
    make_endless(source, endless)
    peer = TransformersSpec(folder=endless, python=options.transformers_python, num_threads=options.threads)
    return Race(
        title="The embedded model, float32",
        contenders=(
            Contender(name=OURS, server=DeepdraftSpec(model=str(endless), num_threads=options.threads)),
            Contender(name="transformers serve", server=peer, tokenizer=endless / "tokenizer.json"),
        ),
        max_context_len=262_144,
    )


def _smollm2_race(options: argparse.Namespace, folder: Path) -> Race:
    return smollm2_race(folder, num_threads=options.threads, has_shipped=not options.no_shipped)


def smollm2_race(folder: Path, *, num_threads: int, has_shipped: bool) -> Race:
    """Ours and llama.cpp's with a float32 file that is written into `folder`; the file as it ships is a third."""
    shipped, float32 = smollm2_path(), folder / "float32.gguf"
    _say(f"writing {float32.name}")
    write_float32(shipped, float32)
    contenders = (
        Contender(name=OURS, server=DeepdraftSpec(model=str(shipped), num_threads=num_threads)),
        Contender(
            name="llama.cpp, float32",
            server=LlamacppSpec(num_threads=num_threads, model_path=float32, has_float32_cache=True),
        ),
        Contender(name="llama.cpp, Q4_1", server=LlamacppSpec(num_threads=num_threads)),
    )
    return Race(
        title="SmolLM2-135M",
        contenders=contenders if has_shipped else contenders[:2],
        max_context_len=_SMOLLM2_LEN,
    )


_RACES = {"embedded": _embedded_race, "smollm2": _smollm2_race}


def section(race: Race, found: Sequence[Speed]) -> str:
    """A table: per length and server the medians over rounds, and ours over theirs round by round."""
    lines = [
        f"### {race.title}",
        "",
        "| context | server | prefill tok/s | ours / theirs | decode tok/s | ours / theirs | rounds |",
        "|---:|---|---:|---:|---:|---:|---:|",
    ]
    for context_len in dict.fromkeys(speed.context_len for speed in found):
        here = [speed for speed in found if speed.context_len == context_len]
        ours = {speed.round_index: speed for speed in here if speed.contender == OURS}
        for contender in race.contenders:
            theirs = [speed for speed in here if speed.contender == contender.name]
            cells = [f"{context_len:,}", contender.name]
            for figure in ("prefill_tok_s", "decode_tok_s"):
                pairs = [(getattr(ours[each.round_index], figure), getattr(each, figure)) for each in theirs]
                cells += [_median([value for _, value in pairs], ".1f"), _ratio(pairs, contender.name == OURS)]
            lines.append(f"| {' | '.join([*cells, str(len(theirs))])} |")
    return "\n".join([*lines, "", *_doubts(found)])


def _doubts(found: Sequence[Speed]) -> list[str]:
    """Which server died, which figures a guard puts in doubt, and in how many rounds."""
    died = [
        f"- {speed.context_len:,}, {speed.contender}: the server died in the prefill"
        for speed in found
        if speed.is_lost
    ]
    counts = collections.Counter(
        (speed.context_len, speed.contender, name) for speed in found for name in speed.violated
    )
    rounds = collections.Counter((speed.context_len, speed.contender) for speed in found)
    return died + [
        f"- {context_len:,}, {contender}: {name} was violated in {count} of {rounds[context_len, contender]} rounds"
        for (context_len, contender, name), count in counts.items()
    ]


def _median(values: Sequence[float | None], form: str) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):{form}}" if known else "unknown"


def _ratio(pairs: Sequence[tuple[float | None, float | None]], is_ours: bool) -> str:
    ratios = [ours / theirs for ours, theirs in pairs if ours is not None and theirs]
    if is_ours or not ratios:
        return ""
    middle = f"{statistics.median(ratios):.2f}"
    return middle if len(ratios) == 1 else f"{middle} ({min(ratios):.2f} to {max(ratios):.2f})"


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
