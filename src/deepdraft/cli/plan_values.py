"""The arguments of `plan` that are no engine's flags: the model, a measured start, the wish, the output."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from deepdraft.cli.plan_flags import fraction
from deepdraft.cli.value import count, tokens

_BYTES = re.compile(r"^(\d+(?:\.\d+)?)\s*(GB|GiB|MB|MiB|TB|TiB)?$", re.IGNORECASE)
_FACTOR = {"": 1, "gb": 10**9, "gib": 2**30, "mb": 10**6, "mib": 2**20, "tb": 10**12, "tib": 2**40}


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
    """Add them, in groups."""
    parser.add_argument(
        "model", metavar="MODEL", nargs="?", help="a config.json, a checkpoint's folder, a .gguf file, or a name"
    )
    what = parser.add_argument_group("what is planned")
    what.add_argument("--device", metavar="NAME", help="a name (H100), or memory=80GiB,bandwidth=3.3TB/s")
    what.add_argument(
        "--engine", choices=("sglang", "vllm", "llamacpp"), metavar="NAME", help="sglang, vllm, llamacpp"
    )
    what.add_argument("--engine-version", metavar="X.Y.Z", help="whose arithmetic counts (the newest known)")
    what.add_argument(
        "--drafter",
        "--speculative-draft-model-path",
        metavar="MODEL",
        help="a drafter's config.json, folder or name; mtp: the model's own prediction layers",
    )
    what.add_argument(
        "--weight-bytes", type=_bytes, metavar="554.3GiB", help="the weights as stored, where not known"
    )
    start = parser.add_argument_group("a start that was measured")
    start.add_argument("--server-log", type=Path, metavar="FILE", help="its log: SGLang, vLLM or llama.cpp")
    start.add_argument("--server", metavar="URL", help="the server itself, where it runs")
    start.add_argument(
        "--pool",
        type=_pool,
        action="append",
        default=[],
        metavar="FRACTION=TOKENS",
        help="its KV pool; given twice, for two fractions, no model is needed",
    )
    start.add_argument(
        "--started-with",
        type=_setting,
        action="append",
        default=[],
        metavar="FLAG=VALUE",
        help="a flag of that start which the log does not tell; may be repeated",
    )
    start.add_argument("--check", metavar="URL", help="hold the plan against what this server reports")
    _add_server_flags(start)
    wish = parser.add_argument_group("the other way round")
    wish.add_argument("--target-context", type=tokens, metavar="200k", help="find flags that hold such requests")
    wish.add_argument("--requests", type=count, metavar="N", help="how many of them at once (1)")
    wish.add_argument("--margin", type=_margin, metavar="F", help="share of the pool to spare (0.02)")
    wish.add_argument("--died", choices=("start", "prefill"), help="when it died: which way to turn")
    out = parser.add_argument_group("output")
    out.add_argument("--json", action="store_true", help="one JSON object")
    out.add_argument("--emit", choices=("command", "systemd"), help="only the launch command, or a systemd unit")
    out.add_argument("--html", type=Path, metavar="FILE", help="also write the picture as a page")
    out.add_argument("--sources", action="store_true", help="the formula or source of each part of memory")
    out.add_argument("--fractions", type=_fractions, default=[], metavar="0.85,0.94", help="other fractions to show")


def _add_server_flags(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--api-key", metavar="KEY", help="sent as a bearer token (the variable OPENAI_API_KEY)")
    group.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'", help="another header")
    group.add_argument("--ca-file", type=Path, metavar="FILE", help="trust this certificate authority (PEM)")
    group.add_argument("--insecure", action="store_true", help="do not check the server's certificate")


def _bytes(text: str) -> int:
    match = _BYTES.match(text.strip())
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"not an amount of memory: {text!r} (for example 554.3GiB)")
    return round(float(match[1]) * _FACTOR[(match[2] or "").lower()])


def _pool(text: str) -> tuple[float, int]:
    left, mark, right = text.partition("=")
    if not mark:
        raise argparse.ArgumentTypeError(f"not FRACTION=TOKENS: {text!r} (for example 0.94=218484)")
    return fraction(left), tokens(right.replace(",", ""))


def _setting(text: str) -> tuple[str, str]:
    name, mark, value = text.lstrip("-").partition("=")
    if not mark or not name or not value:
        raise argparse.ArgumentTypeError(f"not FLAG=VALUE: {text!r} (for example mem-fraction-static=0.94)")
    return name.replace("-", "_"), value


def _margin(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"not a share from 0 to 1: {text!r}")
    return value


def _fractions(text: str) -> list[float]:
    return [fraction(part) for part in text.split(",") if part.strip()]
