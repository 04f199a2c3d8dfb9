"""llama.cpp really run: caches and buffers by its log, peak memory by the kernel, beside the plan."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from deepdraft.embedded.llamacpp import smollm2_path
from deepdraft.planner.gguf import open_gguf
from deepdraft.planner.llamacpp import plan_llamacpp
from deepdraft.planner.llamacpp_buffer import compute_bytes
from deepdraft.planner.llamacpp_cache import llamacpp_kv
from deepdraft.planner.settings import LlamacppSettings

_CHILD = Path(__file__).parents[2] / "tests" / "planner" / "llamacpp_child.py"
_MIB = 2**20
_RUNS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("-c 4096", {"n_ctx": 4096}),
    ("-c 8192", {"n_ctx": 8192}),
    ("-c 8192 -ctk q8_0 -ctv q8_0", {"n_ctx": 8192, "cache_type": "q8_0"}),
    ("-c 10000 -np 4 -ctk q8_0 -ctv q8_0", {"n_ctx": 10_000, "n_parallel": 4, "cache_type": "q8_0"}),
    ("-c 2048 -fa off", {"n_ctx": 2048, "flash_attn": False, "prompt_len": 2000}),
    ("-c 8192 -ub 128", {"n_ctx": 8192, "n_ubatch": 128}),
)


def llamacpp_rows() -> Iterator[str]:
    """A Markdown table, a row a run: SmolLM2-135M, one prompt of a batch. A buffer that grows with the context is
    touched no further than the prompt goes, so the run that has one fills its context."""
    model_path = smollm2_path()
    model = open_gguf(model_path)
    yield "| flags | KV, log | KV, plan | compute, log | compute, plan | peak, measured | peak, plan | |"
    yield "|---|---|---|---|---|---|---|---|"
    for words, asked in _RUNS:
        num_batch = asked.get("n_ubatch", 512)
        log, peak_bytes = _run(model_path, {"prompt_len": num_batch, **asked})
        settings = LlamacppSettings(
            ctx_size=asked["n_ctx"],
            parallel=asked.get("n_parallel", 1),
            ubatch_size=num_batch,
            cache_type_k=asked.get("cache_type", "f16"),
            cache_type_v=asked.get("cache_type", "f16"),
            flash_attn=asked.get("flash_attn"),
            cache_ram_mib=0,
        )
        kv = llamacpp_kv(model.shape, settings)
        planned = plan_llamacpp(model, None, settings).device_bytes
        figures = (
            _said(log, r"llama_kv_cache: size = +([\d.]+) MiB"),
            f"{kv.num_bytes / _MIB:.2f}",
            _said(log, r"compute buffer size = +([\d.]+) MiB"),
            f"{compute_bytes(model.shape, kv, settings) / _MIB:.2f}",
            f"{peak_bytes / _MIB:.0f}",
            f"{planned / _MIB:.0f}",
            f"{planned / peak_bytes - 1:+.1%}",
        )
        yield f"| `{words}` | " + " | ".join(figures) + " |"


def _run(model: Path, asked: dict[str, Any]) -> tuple[str, int]:
    done = subprocess.run(
        [sys.executable, str(_CHILD), json.dumps({"model": str(model), **asked})],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return done.stdout + done.stderr, int(json.loads(done.stdout.splitlines()[-1])["peak_bytes"])


def _said(log: str, pattern: str) -> str:
    (found,) = re.findall(pattern, log)
    return str(found)
