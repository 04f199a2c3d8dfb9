"""How each engine spells the settings that a plan takes. One table for the command line that is read, the launch
command that is written, and the sentences between."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from deepdraft.planner.settings import EngineSettings, LlamacppSettings, SglangSettings, VllmSettings

ENGINE_TITLES: Mapping[str, str] = {"sglang": "SGLang", "vllm": "vLLM", "llamacpp": "llama.cpp"}
SETTINGS: Mapping[str, type[EngineSettings]] = {
    "sglang": SglangSettings,
    "vllm": VllmSettings,
    "llamacpp": LlamacppSettings,
}
FRACTION: Mapping[str, str] = {"sglang": "mem_fraction_static", "vllm": "gpu_memory_utilization"}
"""The field that holds the engine's fraction; llama.cpp has none."""
VARIABLES: Mapping[str, tuple[str, str]] = {
    "expandable_segments": ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
    "post_capture_kv_sizing": ("SGLANG_ENABLE_POST_CAPTURE_KV_SIZING", "1"),
    "dsv4_unified_kv": ("SGLANG_HACK_FLASHMLA_BACKEND", "unified_kv_triton"),
    "dsv4_unified_kv_fp8": ("SGLANG_DSV4_UNIFIED_KV_FP8", "1"),
}
"""Fields that are no flags but environment variables: the name, and the value that switches them on."""

_OWN: Mapping[str, Mapping[str, str]] = {
    "sglang": {"speculative_algorithm": "--speculative-algorithm"},
    "vllm": {"num_speculative_tokens": "--speculative-config"},
    "llamacpp": {
        "kv_unified": "--kv-unified",
        "flash_attn": "--flash-attn",
        "num_devices": "--split-mode layer",
        "cache_ram_mib": "--cache-ram",
    },
}


def engine_of(settings: EngineSettings) -> str:
    """sglang, vllm or llamacpp."""
    return next(engine for engine, kind in SETTINGS.items() if isinstance(settings, kind))


def flag_name(engine: str, field: str) -> str:
    """The flag of a field, as the engine's own help spells it: "--mem-fraction-static"; for the allocator's setting
    the environment variable."""
    if field in VARIABLES:
        return "=".join(VARIABLES[field])
    return _OWN[engine].get(field, "--" + field.replace("_", "-"))


def changed(settings: EngineSettings, fields_to_values: Mapping[str, Any]) -> EngineSettings:
    """The settings with other values in those fields."""
    values: Any = fields_to_values
    return replace(settings, **values)


def stated_fields(settings: EngineSettings) -> dict[str, Any]:
    """The fields that differ from what the engine would take without a flag."""
    plain = type(settings)()
    return {
        field.name: value
        for field in fields(settings)
        if (value := getattr(settings, field.name)) != getattr(plain, field.name)
    }


def flag_text(engine: str, field: str, value: Any) -> str:
    """One setting as it would be written: "--chunked-prefill-size 4096", "--enforce-eager"; a switch that is off and
    a value left to the engine are said in words."""
    name = flag_name(engine, field)
    if value is None:
        return f"no {name}"
    if field in VARIABLES:
        return name if value else f"no {name.partition('=')[0]}"
    if field == "flash_attn":
        return f"{name} {'on' if value else 'off'}"
    if field == "kv_unified" and not value:
        return "--no-kv-unified"
    if isinstance(value, bool):
        return name if value else f"no {name}"
    return f"{name} {value:g}" if isinstance(value, float) else f"{name} {value}"
