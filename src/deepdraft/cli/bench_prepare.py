"""From the flags of a component of `deepdraft bench` to something to run. What needs torch is imported here, when a
component is asked for, so that the rest of the command line does without.

All functions raise UsageError for what can't be measured here.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from deepdraft.errors import UsageError
from deepdraft.records.component import ComponentCase

if TYPE_CHECKING:
    from deepdraft.infer.components.turns import Timing, Watch

_NEEDED = ("numpy", "safetensors", "tokenizers", "torch")
_HINT = (
    'run: pip install "deepdraft[serve]"; for the CPU build of torch first: '
    "pip install torch --index-url https://download.pytorch.org/whl/cpu"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Ready to measure."""

    settings: dict[str, Any]
    environment: dict[str, Any]
    cases: Callable[[Callable[[], bool], Callable[[str], None]], Iterator[ComponentCase]]
    """(whether a stop is asked for, whom to tell what is measured next) -> the cases as they are measured"""


def kernels(namespace: argparse.Namespace) -> Prepared:
    """Attention."""
    timing = _stack(namespace)
    from deepdraft.infer.components.kernels import KernelSettings, backends_here, kernel_cases

    settings = KernelSettings(
        timing=timing,
        dtype=namespace.kv_dtype,
        **_said(
            namespace,
            context_lens="context_len",
            row_counts="rows",
            page_sizes="page_size",
            dims="dims",
            backends="backend",
            peers="peer",
        ),
    )
    shown = {"backends": settings.backends or backends_here(timing.device)[:1], "kv_dtype": settings.cache_dtype}
    return _prepared(settings, lambda watch: kernel_cases(settings, watch), shown)


def moe(namespace: argparse.Namespace) -> Prepared:
    """A mixture-of-experts layer."""
    timing = _stack(namespace, is_cpu_only=True)
    from deepdraft.infer.components.moe import MoeSettings, moe_cases

    max_bytes = None if namespace.max_mib is None else namespace.max_mib << 20
    said = _said(namespace, row_counts="rows", shapes="shape")
    settings = MoeSettings(timing=timing, max_bytes=max_bytes, **said)
    return _prepared(settings, lambda watch: moe_cases(settings, watch))


def tree(namespace: argparse.Namespace) -> Prepared:
    """A draft tree."""
    timing = _stack(namespace, is_cpu_only=True)
    from deepdraft.infer.components.tree import TreeSettings, tree_cases

    settings = TreeSettings(timing=timing, top_k=namespace.top_k, **_said(namespace, budgets="budget", sizes="size"))
    return _prepared(settings, lambda watch: tree_cases(settings, watch))


def round(namespace: argparse.Namespace) -> Prepared:
    """Decode rounds."""
    timing = _stack(namespace, is_cpu_only=True, num_repeats=3)
    from deepdraft.bench.text import text_source
    from deepdraft.infer.components.decode_round import RoundSettings, round_cases

    source = text_source(namespace.text)
    settings = RoundSettings(
        timing=timing,
        **_said(
            namespace, context_lens="context_len", modes="mode", decode_len="decode_len", tree_budget="tree_budget"
        ),
    )
    return _prepared(settings, lambda watch: round_cases(settings, source.pieces(0), watch), {"text": source.label})


def client(namespace: argparse.Namespace) -> Prepared:
    """The measuring client; needs no torch."""
    from deepdraft.selftest.client_cost import ClientSettings, client_cases

    said = _said(namespace, stream_counts="streams", num_repeats="repeats", leg_s="leg_s")
    settings = ClientSettings(**said)
    return Prepared(
        settings=asdict(settings),
        environment={},
        cases=lambda is_asked_to_stop, report: client_cases(
            settings, is_asked_to_stop=is_asked_to_stop, report=report
        ),
    )


def _prepared(
    settings: Any,
    cases: Callable[[Watch], Iterator[ComponentCase]],
    shown: dict[str, Any] | None = None,
) -> Prepared:
    from deepdraft.infer.components.environment import torch_environment
    from deepdraft.infer.components.turns import Watch

    found = {name: value for name, value in _fields(settings).items() if name != "timing"}
    timing = {"num_repeats": settings.timing.num_repeats, "cell_s": settings.timing.cell_s}
    return Prepared(
        settings={**found, **timing, **(shown or {})},
        environment=torch_environment(settings.timing.device),
        cases=lambda is_asked_to_stop, report: cases(Watch(is_asked_to_stop=is_asked_to_stop, report=report)),
    )


def _fields(settings: Any) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def _stack(namespace: argparse.Namespace, *, is_cpu_only: bool = False, num_repeats: int | None = None) -> Timing:
    """Threads set, the device, and how often. Raises UsageError where packages are missing."""
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"bench {namespace.component} needs {', '.join(missing)}", hint=_HINT)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    from deepdraft.infer.components.environment import set_num_threads
    from deepdraft.infer.components.turns import DEFAULT_CELL_S, DEFAULT_NUM_REPEATS, timing

    set_num_threads(namespace.num_threads)
    return timing(
        num_repeats=namespace.repeats or num_repeats or DEFAULT_NUM_REPEATS,
        cell_s=getattr(namespace, "cell_s", None) or DEFAULT_CELL_S,
        is_cpu_only=is_cpu_only,
    )


def _said(namespace: argparse.Namespace, **flags: str) -> dict[str, Any]:
    """Settings, by name, of the flags that were given; lists become tuples."""
    found = {name: getattr(namespace, flag) for name, flag in flags.items()}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items() if value is not None
    }
