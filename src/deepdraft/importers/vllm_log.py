"""The log of a vLLM server (0.20 to 0.32): memory from its start, acceptance over its life.

Every ten seconds it prints averages of everything it ran; no line tells of one request or its length, so the log
gives no points.
"""

from __future__ import annotations

import re
from typing import Any

from deepdraft.adapters.log import spec_metrics_acceptance
from deepdraft.importers.document import Document
from deepdraft.importers.field import file_name
from deepdraft.importers.imported import Imported
from deepdraft.importers.memory_note import GIB, memory_notes
from deepdraft.records import Ternary

TOOL = "a vLLM log"
_UNKNOWNS = ("figures of single requests and their lengths: a line covers ten seconds of everything the engine ran",)
_TRAPS = ("for hybrid models `KV cache size` is concurrency x context limit, not a capacity a token",)
_MARKS = ("KV cache size:", "Avg generation throughput:", "Initializing a V1 LLM engine")
_VERSION = re.compile(r"(?:LLM engine \(v|vLLM API server version )(\d[\w.+]*)")
_POOL = re.compile(r"KV cache size: ([\d,]+) tokens")
_CONCURRENCY = re.compile(r"Maximum concurrency for ([\d,]+) tokens per request: ([\d.]+)x")
_MODEL = re.compile(r"with config: model='([^']+)'")
_METHOD = re.compile(r"SpeculativeConfig\(method='([^']+)'")
_BYTES = {
    "weight_bytes": re.compile(r"Model loading took ([\d.]+) GiB"),
    "kv_cache_bytes": re.compile(r"Available KV cache memory: ([\d.]+) GiB"),
    "graph_bytes": re.compile(r"Graph capturing finished in .*? took ([\d.]+) GiB"),
    "activation_bytes": re.compile(r"([\d.]+) ?GiB for peak activation"),
}
_SETTING_NAMES = (
    "max_model_len", "gpu_memory_utilization", "max_num_batched_tokens", "max_num_seqs", "block_size",
    "tensor_parallel_size", "data_parallel_size", "kv_cache_dtype", "enforce_eager", "enable_prefix_caching",
    "enable_chunked_prefill", "quantization", "decode_context_parallel_size",
)  # fmt: skip


def recognises(document: Document) -> bool:
    """By lines that only this engine writes."""
    return not document.objects and any(mark in document.text for mark in _MARKS)


def read(document: Document) -> Imported:
    """Memory, settings and acceptance; no points."""
    text = document.text
    memory = {
        name: round(float(found[-1]) * GIB) for name, pattern in _BYTES.items() if (found := pattern.findall(text))
    }
    pools, concurrency = _POOL.findall(text), _CONCURRENCY.findall(text)
    pool = int(pools[-1].replace(",", "")) if pools else None
    settings = _settings(text)
    if memory:
        settings["memory"] = memory
    methods, versions, models = _METHOD.findall(text), _VERSION.findall(text), _MODEL.findall(text)
    is_configured = "with config: model=" in text
    speculation: Ternary = (
        "yes" if methods else "no" if is_configured and "speculative_config=None" in text else "unknown"
    )
    notes = memory_notes(memory, pool)
    acceptance = spec_metrics_acceptance(text)
    if acceptance is not None and acceptance.stated_acceptance_len is not None:
        speculation = "yes"
        notes.append(
            (
                "acceptance",
                f"acceptance length {acceptance.stated_acceptance_len:.2f} over everything the log covers "
                f"({acceptance.source.removeprefix('server log: ')}); it belongs to no length",
            )
        )
    max_len = settings.get("max_model_len") or (int(concurrency[-1][0].replace(",", "")) if concurrency else None)
    block = settings.get("block_size")
    return Imported(
        tool=TOOL,
        lines=(),
        engine="vllm",
        engine_version=versions[-1] if versions else None,
        model=file_name(models[-1]) if models else None,
        speculation=speculation,
        speculation_method=methods[-1] if methods else None,
        max_context_len=max_len if isinstance(max_len, int) else None,
        kv_pool_tokens=pool,
        page_size=block if isinstance(block, int) else None,
        settings=settings,
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        notes=tuple(notes),
    )


def _settings(text: str) -> dict[str, Any]:
    """From `non-default args: {...}` and the engine's configuration, as numbers, truth values or text."""
    found: dict[str, Any] = {}
    for name in _SETTING_NAMES:
        pattern = rf"(?:'{name}': |\b{name}=)(?:'([^']*)'|([^,)}}\s]+))"
        matches = re.findall(pattern, text)
        if not matches:
            continue
        quoted, word = matches[-1]
        if quoted:
            found[name] = quoted
        elif word in ("True", "False"):
            found[name] = word == "True"
        elif re.fullmatch(r"\d+", word):
            found[name] = int(word)
        elif re.fullmatch(r"\d*\.\d+", word):
            found[name] = float(word)
    return found
