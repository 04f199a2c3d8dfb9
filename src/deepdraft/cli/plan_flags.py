"""The engines' flags on the command line of `plan`, each as its engine spells it, and the settings they make.

One parser takes the flags of all three engines; a flag of another engine than the one planned for is refused with the
name that it has there.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from deepdraft.cli.value import count, count_or_none, tokens
from deepdraft.errors import UsageError
from deepdraft.planner.flag import ENGINE_TITLES, SETTINGS, flag_name
from deepdraft.planner.settings import EngineSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag and the field it sets in each engine that has it."""

    words: tuple[str, ...]
    fields: Mapping[str, str]
    read: Callable[[str], Any] | None
    """None for a switch."""
    metavar: str = "N"
    help: str = ""

    @property
    def dest(self) -> str:
        """Where argparse puts it."""
        longest = max(self.words, key=len)
        return "flag_" + longest.lstrip("-").replace("-", "_")


def fraction(text: str) -> float:
    """Above 0, up to 1. Raises argparse.ArgumentTypeError, as all of these do."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"not a fraction above 0 and up to 1: {text!r}")
    return value


def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if value < 0:
        raise argparse.ArgumentTypeError(f"not a number of 0 or more: {text!r}")
    return value


def _chunk(text: str) -> int:
    """-1 is the engine's word for no chunks."""
    return -1 if text == "-1" else tokens(text)


def _on_off(text: str) -> bool | None:
    if text not in ("on", "off", "auto"):
        raise argparse.ArgumentTypeError(f"on, off or auto, not {text!r}")
    return {"on": True, "off": False}.get(text)


def _speculative_tokens(text: str) -> int:
    try:
        value = json.loads(text).get("num_speculative_tokens")
    except (json.JSONDecodeError, AttributeError):
        raise argparse.ArgumentTypeError(f"not a JSON object: {text!r}") from None
    if not isinstance(value, int) or value < 1:
        raise argparse.ArgumentTypeError("it lacks num_speculative_tokens")
    return value


def _shared(words: str, fields: str, read: Callable[[str], Any] | None, metavar: str = "N", help: str = "") -> Flag:
    """`fields`: "sglang:tp_size vllm:tensor_parallel_size"."""
    pairs = dict(pair.split(":") for pair in fields.split())
    return Flag(words=tuple(words.split()), fields=pairs, read=read, metavar=metavar, help=help)


ENGINE_FLAGS: Mapping[str, tuple[Flag, ...]] = {
    "ranks (SGLang and vLLM)": (
        _shared("--tp --tp-size --tensor-parallel-size -tp", "sglang:tp_size vllm:tensor_parallel_size", count),
        _shared("--pp-size --pipeline-parallel-size -pp", "sglang:pp_size vllm:pipeline_parallel_size", count),
        _shared("--dp-size --data-parallel-size -dp", "sglang:dp_size vllm:data_parallel_size", count),
        _shared(
            "--dcp-size --decode-context-parallel-size -dcp",
            "sglang:dcp_size vllm:decode_context_parallel_size",
            count,
            help="ranks that share a sequence's tokens in decode",
        ),
        _shared("--kv-cache-dtype", "sglang:kv_cache_dtype vllm:kv_cache_dtype", str, "NAME"),
        _shared(
            "--expandable-segments",
            "sglang:expandable_segments vllm:expandable_segments",
            None,
            help="the variable PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
        ),
    ),
    "flags of SGLang": (
        _shared("--mem-fraction-static", "sglang:mem_fraction_static", fraction, "F"),
        _shared("--context-length", "sglang:context_length", tokens),
        _shared("--chunked-prefill-size", "sglang:chunked_prefill_size", _chunk),
        _shared("--max-prefill-tokens", "sglang:max_prefill_tokens", tokens),
        _shared("--max-running-requests", "sglang:max_running_requests", count),
        _shared("--max-total-tokens", "sglang:max_total_tokens", tokens),
        _shared("--page-size", "sglang:page_size", count),
        _shared("--attention-backend", "sglang:attention_backend", str, "NAME"),
        _shared("--cuda-graph-max-bs", "sglang:cuda_graph_max_bs", count),
        _shared("--disable-cuda-graph", "sglang:disable_cuda_graph", None),
        _shared("--enable-dp-attention", "sglang:enable_dp_attention", None),
        _shared("--moe-a2a-backend", "sglang:moe_a2a_backend", str, "NAME"),
        _shared("--speculative-algorithm", "sglang:speculative_algorithm", str, "NAME"),
        _shared("--speculative-num-draft-tokens", "sglang:speculative_num_draft_tokens", count),
        _shared(
            "--post-capture-kv-sizing",
            "sglang:post_capture_kv_sizing",
            None,
            help="the variable SGLANG_ENABLE_POST_CAPTURE_KV_SIZING=1 (0.5.23)",
        ),
        _shared("--swa-full-tokens-ratio", "sglang:swa_full_tokens_ratio", _ratio, "R"),
        _shared("--disable-radix-cache", "sglang:disable_radix_cache", None),
        _shared("--dsv4-attn-backend", "sglang:dsv4_attn_backend", str, "NAME"),
        _shared(
            "--dsv4-unified-kv",
            "sglang:dsv4_unified_kv",
            None,
            help="the variable SGLANG_HACK_FLASHMLA_BACKEND=unified_kv_triton (0.5.23 on AMD)",
        ),
        _shared(
            "--dsv4-unified-kv-fp8",
            "sglang:dsv4_unified_kv_fp8",
            None,
            help="the variable SGLANG_DSV4_UNIFIED_KV_FP8=1 beside it",
        ),
        _shared("--mamba-full-memory-ratio", "sglang:mamba_full_memory_ratio", _ratio, "R"),
    ),
    "flags of vLLM": (
        _shared("--gpu-memory-utilization", "vllm:gpu_memory_utilization", fraction, "F"),
        _shared("--kv-cache-memory-bytes --kv-cache-memory", "vllm:kv_cache_memory_bytes", count),
        _shared("--max-model-len", "vllm:max_model_len", tokens),
        _shared("--max-num-batched-tokens", "vllm:max_num_batched_tokens", tokens),
        _shared("--max-num-seqs", "vllm:max_num_seqs", count),
        _shared("--block-size", "vllm:block_size", count),
        _shared("--enforce-eager", "vllm:enforce_eager", None),
        _shared("--num-speculative-tokens", "vllm:num_speculative_tokens", count),
        _shared("--speculative-config", "vllm:num_speculative_tokens", _speculative_tokens, "JSON"),
    ),
    "flags of llama.cpp": (
        _shared("-c --ctx-size", "llamacpp:ctx_size", tokens),
        _shared("-np --parallel", "llamacpp:parallel", count),
        _shared("-kvu --kv-unified", "llamacpp:kv_unified", None),
        _shared("-no-kvu --no-kv-unified", "llamacpp:kv_unified", None),
        _shared("-b --batch-size", "llamacpp:batch_size", count),
        _shared("-ub --ubatch-size", "llamacpp:ubatch_size", count),
        _shared("-ctk --cache-type-k", "llamacpp:cache_type_k", str, "TYPE"),
        _shared("-ctv --cache-type-v", "llamacpp:cache_type_v", str, "TYPE"),
        _shared("-fa --flash-attn", "llamacpp:flash_attn", _on_off, "on|off|auto"),
        _shared("--swa-full", "llamacpp:swa_full", None),
        _shared("-ngl --n-gpu-layers", "llamacpp:n_gpu_layers", count_or_none),
        _shared("-cram --cache-ram", "llamacpp:cache_ram_mib", count_or_none, "MIB"),
        _shared("--num-devices", "llamacpp:num_devices", count, help="devices that share the layers"),
    ),
}
_ALIKE = (
    ("context_length", "max_model_len", "ctx_size"),
    ("mem_fraction_static", "gpu_memory_utilization"),
    ("chunked_prefill_size", "max_num_batched_tokens", "ubatch_size"),
    ("max_running_requests", "max_num_seqs", "parallel"),
    ("page_size", "block_size"),
    ("disable_cuda_graph", "enforce_eager"),
    ("kv_cache_dtype", "cache_type_k"),
)
"""Fields that do the same in their engines."""


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags, a group an engine. One that is not given is None: not said."""
    for title, flags in ENGINE_FLAGS.items():
        group = parser.add_argument_group(title)
        for flag in flags:
            if flag.read is None:
                is_on = not any(word.startswith("--no-") for word in flag.words)
                group.add_argument(
                    *flag.words, dest=flag.dest, action="store_const", const=is_on, help=flag.help or None
                )
            else:
                group.add_argument(
                    *flag.words, dest=flag.dest, type=flag.read, metavar=flag.metavar, help=flag.help or None
                )


def given_fields(namespace: argparse.Namespace, engine: str) -> dict[str, Any]:
    """The fields that the user's flags set for that engine. Raises UsageError for a flag of another engine."""
    given: dict[str, Any] = {}
    for flag in (flag for flags in ENGINE_FLAGS.values() for flag in flags):
        value = getattr(namespace, flag.dest)
        if value is None:
            continue
        if engine not in flag.fields:
            raise _foreign_flag(flag, engine)
        given[flag.fields[engine]] = value
    return given


def settings_with(engine: str, given: Mapping[str, Any], base: EngineSettings | None = None) -> EngineSettings:
    """The settings of an engine: `base`, by default the engine's own choices, with what was given."""
    return replace(base if base is not None else SETTINGS[engine](), **given)


def _foreign_flag(flag: Flag, engine: str) -> UsageError:
    word = max(flag.words, key=len)
    owners = " and ".join(ENGINE_TITLES[owner] for owner in flag.fields)
    hint = None
    for names in _ALIKE:
        own = next((name for name in names if name in SETTINGS[engine].__dataclass_fields__), None)
        if own is not None and set(flag.fields.values()) & set(names):
            hint = f"there it is {flag_name(engine, own)}"
    return UsageError(f"{word} is a flag of {owners}, not of {ENGINE_TITLES[engine]}", hint=hint)
