"""`deepdraft explain FILE...`: from a results file to what breaks, why, and what to change."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deepdraft.cli.output import write_out
from deepdraft.errors import DeepdraftError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from deepdraft.diagnosis.case import Case
    from deepdraft.diagnosis.facts import Facts
    from deepdraft.records import Run

_SECONDS = re.compile(r"^(\d+(?:\.\d+)?)\s*(ms|s)?$")
_BYTES = re.compile(r"^(\d+(?:\.\d+)?)\s*(GB|GiB|MB|MiB)$", re.IGNORECASE)
_FACTOR = {"gb": 1e9, "gib": 2.0**30, "mb": 1e6, "mib": 2.0**20}


def add_command(commands: Any) -> None:
    """Add `explain` to the command line."""
    parser = commands.add_parser(
        "explain",
        help="say what a results file shows: what breaks, why, what to change",
        description="Findings with evidence and remedy from results files. Several files are looked at together: "
        "a run without a drafter beside one with it tells where speculation pays. Options give what the files "
        "lack. Needs the extra `analysis`.",
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="results files")
    parser.add_argument("--model", type=Path, metavar="CONFIG", help="the model's config.json")
    parser.add_argument("--device", metavar="NAME", help="a name (H100) or bandwidth=1.8TB/s,flops=500TFLOP/s")
    parser.add_argument("--tp", type=int, metavar="N", help="ranks that share the model (tensor parallel)")
    parser.add_argument("--kv-bytes", type=int, metavar="N", help="bytes of a KV element (2: bf16, 1: fp8)")
    parser.add_argument("--limits", metavar="ttft=10s,tpot=100ms", help="what the practical zone must meet")
    parser.add_argument("--reserve", metavar="4.2GB", help="memory left on each device once the server is up")
    parser.add_argument(
        "--expected",
        nargs="?",
        const="",
        metavar="MODEL",
        help="compare with what a performance model expects of this model, device and engine (extra `expected`); "
        "MODEL where the server's own name for it is not known there",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object: findings and attribution")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Print the findings. Raises UsageError for options that can't be used, and where the extra is missing."""
    facts = _facts(namespace)
    try:
        from deepdraft.diagnosis.case import cases_of
        from deepdraft.diagnosis.explain import explanation
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("numpy", "scipy"):
            raise
        raise UsageError(
            f"explain needs {missing.name}, which is not installed", hint="pip install 'deepdraft[analysis]'"
        ) from None
    from deepdraft.diagnosis.json_object import explanations_object
    from deepdraft.diagnosis.text import explanations_text

    cases = cases_of(_runs(namespace.files), facts)
    if namespace.expected is not None:
        cases = cases_of(((case.name, case.run) for case in cases), _with_expected(cases, namespace.expected, facts))
    explanations = [explanation(case) for case in cases]
    if namespace.json:
        import json

        write_out(json.dumps(explanations_object(explanations), indent=2) + "\n")
    else:
        write_out(explanations_text(explanations) + "\n")
    return 0


def _runs(files: list[Path]) -> list[tuple[str, Run]]:
    """Each file's run under the shortest name that tells it apart."""
    from deepdraft.records.file import read_run

    names = [path.name for path in files]
    runs = []
    for path in files:
        results = read_run(path)
        for loss in results.damage:
            print(f"deepdraft: {path}: {loss}", file=sys.stderr)
        runs.append((path.name if names.count(path.name) == 1 else str(path), results))
    return runs


def _with_expected(cases: Sequence[Case], named: str, facts: Facts) -> Facts:
    """The facts with expected times for every length of the runs. Raises UsageError where they can't be had."""
    from dataclasses import replace

    from deepdraft.cost.expected import expected_times

    first = cases[0]
    if first.device is None:
        raise UsageError("--expected needs the device", hint="give --device NAME")
    model = named or first.capabilities.model
    if not model:
        raise UsageError("--expected needs the model's name", hint="--expected moonshotai/Kimi-K2.5")
    times = expected_times(
        model=model,
        device=first.device,
        engine=first.capabilities.engine,
        tp_size=first.tp_size,
        context_lens=sorted({point.context_len for case in cases for point in case.points}),
    )
    return replace(facts, expected=times)


def _facts(namespace: argparse.Namespace) -> Facts:
    from deepdraft.cost.device import device
    from deepdraft.cost.model_json import model_shape
    from deepdraft.diagnosis.facts import DEFAULT_TPOT_LIMIT_S, DEFAULT_TTFT_LIMIT_S, Facts

    for name, value in (("--tp", namespace.tp), ("--kv-bytes", namespace.kv_bytes)):
        if value is not None and value < 1:
            raise UsageError(f"{name} must be at least 1")
    limits = _limits(namespace.limits)
    return Facts(
        model=model_shape(namespace.model) if namespace.model is not None else None,
        device=device(namespace.device) if namespace.device is not None else None,
        tp_size=namespace.tp,
        kv_element_bytes=namespace.kv_bytes,
        ttft_limit_s=limits.get("ttft", DEFAULT_TTFT_LIMIT_S),
        tpot_limit_s=limits.get("tpot", DEFAULT_TPOT_LIMIT_S),
        are_limits_given=bool(limits),
        reserve_bytes=_bytes(namespace.reserve),
    )


def _limits(text: str | None) -> dict[str, float]:
    limits: dict[str, float] = {}
    for part in (text or "").split(",") if text else []:
        name, _, value = part.strip().partition("=")
        match = _SECONDS.match(value.strip())
        if name not in ("ttft", "tpot") or not match or float(match[1]) <= 0:
            raise _bad_limit(part)
        limits[name] = float(match[1]) * (1e-3 if match[2] == "ms" else 1.0)
    return limits


def _bad_limit(part: str) -> DeepdraftError:
    return UsageError(f"not a limit: {part.strip()!r}", hint="for example --limits ttft=10s,tpot=100ms")


def _bytes(text: str | None) -> float | None:
    if text is None:
        return None
    match = _BYTES.match(text.strip())
    if not match:
        raise UsageError(f"not an amount of memory: {text!r}", hint="for example --reserve 4.2GB")
    return float(match[1]) * _FACTOR[match[2].lower()]
