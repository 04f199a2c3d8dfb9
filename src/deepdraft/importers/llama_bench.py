"""`llama-bench -o json` and `-o jsonl`: one object a test (pp, tg or pg at a depth). As of llama.cpp of October 2026.

It runs the engine alone: no server, no HTTP, no sampling. `pp512 @ d16384` processes 512 tokens after 16,384 that are
in the cache already; it is no prompt of 16,384 tokens, and no time to first token follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.importers.document import Document
from deepdraft.importers.field import count, file_name, known, numbers, one, positive, samples, text
from deepdraft.importers.imported import Imported
from deepdraft.records import Reported, ReportedFigure

TOOL = "llama-bench"
_UNKNOWNS = ("time to first token: nothing is sent to a server", "anything about a drafter: none is run")
_TRAPS = (
    "the engine alone, on random tokens and without sampling: a server is slower by its own time",
    "pp at a depth is the rate of its own tokens behind that depth, not of a prompt of that length",
    "the prompt's tokens a second count the prompt in batches of n_batch; the last token's logits come with them",
)
_KEPT = (
    "n_batch", "n_ubatch", "n_threads", "type_k", "type_v", "n_gpu_layers", "n_cpu_moe", "split_mode", "flash_attn",
    "backends", "cpu_info", "gpu_info", "model_type", "model_size", "model_n_params", "no_kv_offload", "tensor_split",
)  # fmt: skip


def recognises(document: Document) -> bool:
    """By the fields that only this tool writes together."""
    return _is_test(document.first)


def read(document: Document) -> Imported:
    """One point a test; tests of other settings than the first's say so."""
    first = document.first
    lines, losses = [], []
    for place, test in enumerate(document.objects, start=1):
        line = _line(test, first) if _is_test(test) else None
        if line is None:
            losses.append(f"test {place} lacks its lengths or times")
        else:
            lines.append(line)
    build = text(first, "build_commit")
    return Imported(
        tool=TOOL,
        version=f"b{count(first, 'build_number')} ({build})" if build else None,
        lines=tuple(lines),
        engine="llamacpp",
        engine_version=build,
        model=file_name(text(first, "model_filename")) or text(first, "model_type"),
        device=text(first, "gpu_info") or text(first, "cpu_info"),
        speculation="no",
        settings={name: first[name] for name in _KEPT if name in first},
        measured_at=text(first, "test_time"),
        text="random tokens",
        unknowns=_UNKNOWNS,
        traps=_TRAPS,
        losses=tuple(losses),
    )


def _is_test(test: Mapping[str, Any]) -> bool:
    return {"n_prompt", "n_gen", "avg_ns", "build_commit"} <= test.keys()


def _line(test: Mapping[str, Any], first: Mapping[str, Any]) -> Reported | None:
    num_prompt, num_gen, depth = (count(test, name) for name in ("n_prompt", "n_gen", "n_depth"))
    if num_prompt is None or num_gen is None or not num_prompt + num_gen:
        return None
    depth = depth or 0  # older builds have no depth
    name = (f"pp{num_prompt}" if num_prompt else "") + (f"+tg{num_gen}" if num_prompt and num_gen else "")
    name = name or f"tg{num_gen}"
    figures = _figures(test, num_prompt, num_gen, depth)
    if not figures:
        return None
    changed = [
        f"{key} {_written(test[key])}"
        for key in (*_KEPT, "model_filename")
        if key in test and test[key] != first.get(key)
    ]
    remarks = [f"{name} @ d{depth}"]
    if not num_prompt and not depth:
        remarks.append("decoded from an empty cache")
    return Reported(
        context_len=max(depth + (num_prompt if num_prompt and not num_gen else 0), 1),
        decode_len=num_gen or None,
        figures=figures,
        is_cold=True if not depth else None,
        workload="random tokens" + (f"; {', '.join(changed)}" if changed else ""),
        remarks=tuple(remarks),
    )


def _written(value: Any) -> str:
    """A setting without the folders of a machine."""
    return (file_name(value) or value) if isinstance(value, str) else str(value)


def _figures(test: Mapping[str, Any], num_prompt: int, num_gen: int, depth: int) -> dict[str, ReportedFigure]:
    seconds = [value / 1e9 for value in numbers(test, "samples_ns") if value]
    mean_s = positive(test, "avg_ns")
    statistic = None
    if not seconds and mean_s is not None:
        seconds, statistic = [mean_s / 1e9], "mean"

    def rate(num_tokens: int, definition: str) -> ReportedFigure | None:
        if statistic is not None:
            return one(num_tokens / seconds[0], statistic, definition=definition)
        return samples([num_tokens / value for value in seconds], definition=definition)

    if num_prompt and num_gen:
        return known({"total_tok_s": rate(num_prompt + num_gen, "prompt and generated tokens / time of both")})
    if num_gen:
        how = "generated tokens / time of as many decode steps, without sampling"
        return known({"decode_tok_s": rate(num_gen, how)})
    figures = {
        "server_prefill_tok_s": rate(num_prompt, f"{num_prompt} tokens after {depth} in the cache / their time")
    }
    if not depth:
        figures["prefill_tok_s"] = rate(num_prompt, "prompt tokens / time of the prefill alone, no server around it")
    return known(figures)
