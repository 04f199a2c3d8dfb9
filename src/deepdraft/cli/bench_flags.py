"""The components of `deepdraft bench` and their flags. What becomes of them is `bench_prepare`'s."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from deepdraft.cli import bench_prepare
from deepdraft.cli.bench_prepare import Prepared
from deepdraft.cli.value import count, tokens
from deepdraft.errors import UsageError
from deepdraft.units import token_counts


def add_components(parser: argparse.ArgumentParser) -> None:
    """A command for each component."""
    components = parser.add_subparsers(dest="component", metavar="NAME", required=True)
    for add in (_add_kernels, _add_moe, _add_tree, _add_round, _add_client):
        add(components)


def _component(
    components: Any, name: str, prepare: Callable[[argparse.Namespace], Prepared], about: str, *, example: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = components.add_parser(
        name, help=about, description=about[0].upper() + about[1:] + ".", epilog=f"Example: {example}"
    )
    parser.add_argument("--repeats", type=count, metavar="N", help="turns of everything (5; round and client 3)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the results there, case by case")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of the table")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    parser.set_defaults(prepare=prepare)
    return parser


def _add_stack_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num-threads", type=count, metavar="N", help="of torch and the native kernels (torch's own)"
    )


def _add_cell(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--cell-s", type=_seconds, metavar="S", help="each side's turn: the least of the runs that fit (0.05)"
    )


def _add_kernels(components: Any) -> None:
    parser = _component(
        components,
        "kernels",
        bench_prepare.kernels,
        "attention of a decode or verify step over paged KV; peers: the torch back end, torch SDPA, and the same "
        "with all pages in one run",
        example="deepdraft bench kernels --context-len 32k,128k --rows 1,16",
    )
    parser.add_argument("--context-len", type=_lens, metavar="LIST", help="cached tokens (8k,32k)")
    parser.add_argument("--rows", type=_counts, metavar="LIST", help="heads x tree nodes (1,8,16,64)")
    parser.add_argument("--page-size", type=_counts, metavar="LIST", help="tokens of a page, in random order (16)")
    parser.add_argument(
        "--dims",
        nargs="+",
        metavar="NAME",
        choices=("kimi", "embedded"),
        help="512+64 (Kimi K2), 64+16 (embedded model) (both)",
    )
    parser.add_argument(
        "--backend",
        nargs="+",
        metavar="NAME",
        choices=("native", "torch", "triton"),
        help="what is measured (the fastest that is here)",
    )
    parser.add_argument(
        "--peer", nargs="*", metavar="NAME", choices=("torch", "sdpa", "one-run"), help="(all that apply)"
    )
    parser.add_argument(
        "--kv-dtype", choices=("float32", "bfloat16", "float16"), help="of the cache (float32; on a GPU bfloat16)"
    )
    _add_cell(parser)
    _add_stack_flags(parser)


def _add_moe(components: Any) -> None:
    parser = _component(
        components,
        "moe",
        bench_prepare.moe,
        "one mixture-of-experts layer for few rows; peers: transformers' DeepseekV3MoE where it is installed, and a "
        "loop over the experts in torch",
        example="deepdraft bench moe --shape embedded --rows 1,17",
    )
    parser.add_argument("--rows", type=_counts, metavar="LIST", help="tokens of a pass (1,8,17,64)")
    parser.add_argument(
        "--shape",
        nargs="+",
        metavar="NAME",
        choices=("embedded", "kimi"),
        help="the embedded model's, Kimi K2's scaled down (both)",
    )
    parser.add_argument(
        "--max-mib", type=count, metavar="MIB", help="of Kimi K2's weights, on each side (512, or an eighth of free)"
    )
    _add_cell(parser)
    _add_stack_flags(parser)


def _add_tree(components: Any) -> None:
    parser = _component(
        components,
        "tree",
        bench_prepare.tree,
        "a draft tree from a drafter's logits; peers: torch.topk alone, and the plain builder",
        example="deepdraft bench tree --size kimi --budget 16,64,512",
    )
    parser.add_argument("--budget", type=_counts, metavar="LIST", help="nodes, the root not counted (16,64,256,512)")
    parser.add_argument(
        "--size", nargs="+", metavar="NAME", choices=("kimi", "embedded"), help="15 x 163840, 7 x 4096 (both)"
    )
    parser.add_argument("--top-k", type=count, metavar="N", help="candidates of a depth (as many as the budget)")
    _add_cell(parser)
    _add_stack_flags(parser)


def _add_round(components: Any) -> None:
    parser = _component(
        components,
        "round",
        bench_prepare.round,
        "decode rounds of the embedded model through the engine: plain, chain, tree; peer: the plain step",
        example="deepdraft bench round --context-len 1k,64k --mode tree",
    )
    parser.add_argument("--context-len", type=_lens, metavar="LIST", help="prompt tokens (1k,16k)")
    parser.add_argument(
        "--mode", nargs="+", metavar="NAME", choices=("plain", "chain", "tree"), help="plain runs in any case (all)"
    )
    parser.add_argument("--decode-len", type=tokens, metavar="TOKENS", help="of each turn (64)")
    parser.add_argument("--tree-budget", type=count, metavar="N", help="nodes of a tree (16)")
    parser.add_argument("--text", default="code", metavar="KIND", help="of the prompts: as in sweep (code)")
    _add_stack_flags(parser)


def _add_client(components: Any) -> None:
    parser = _component(
        components,
        "client",
        bench_prepare.client,
        "CPU that the measuring client takes for a streamed event; peer: plain sockets with httptools",
        example="deepdraft bench client --streams 1,32",
    )
    parser.add_argument("--streams", type=_counts, metavar="LIST", help="at once (1,8,32)")
    parser.add_argument("--leg-s", type=_seconds, metavar="S", help="how long an answer streams (1)")


def _lens(text: str) -> tuple[int, ...]:
    try:
        return token_counts(text)
    except UsageError as error:
        raise argparse.ArgumentTypeError(error.message) from None


def _counts(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(count(part.strip()) for part in text.split(",")))


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e4:
        raise argparse.ArgumentTypeError(f"not a number of seconds above 0: {text!r}")
    return value
