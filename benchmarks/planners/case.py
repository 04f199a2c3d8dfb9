"""The models of the comparison, and what one sequence's cache truly takes, worked out by hand from their configs.

One sequence of CONTEXT_LEN tokens, keys and values in bfloat16, on one device: latent rows are on every
tensor-parallel rank alike, everything else is meant unsplit. A window keeps its last tokens; a state is there from
the first token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from deepdraft.cost.bundled_config import bundled_config

CONTEXT_LEN = 32_768


@dataclass(frozen=True, slots=True)
class Case:
    """One config and its truth."""

    name: str
    config_name: str
    truth: str
    """The arithmetic, in figures of the config; evaluated as it stands."""
    words: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Fields added to the config's text_config."""

    @property
    def num_bytes(self) -> int:
        """The arithmetic's value."""
        return int(eval(self.truth, {"__builtins__": {}}))

    @property
    def config(self) -> dict[str, Any]:
        """The config.json."""
        found = bundled_config(self.config_name)
        if found is None:
            raise LookupError(self.config_name)
        config = dict(found.config)
        if self.extra:
            config["text_config"] = dict(config["text_config"]) | dict(self.extra)
        return config


_GEMMA = "10 * 16 * (128 + 128) * 2 * 32768 + 52 * 16 * (128 + 128) * 2 * 1024"
_GEMMA_WORDS = "layers 6, 12, ... 60 attend to everything (10 of 62), 52 to a window of 1,024; 16 KV heads of 128"
CASES = (
    Case(
        "Qwen3-8B",
        "qwen3-8b",
        "36 * 8 * (128 + 128) * 2 * 32768",
        "36 layers, 8 KV heads, key and value of 128, 2 bytes",
    ),
    Case(
        "DeepSeek-V3 (flat)",
        "deepseek-v3",
        "61 * (512 + 64) * 2 * 32768",
        "61 layers, one row of kv_lora_rank + qk_rope_head_dim, 2 bytes; no heads, and no values apart",
    ),
    Case(
        "Kimi K2.6 (nested)",
        "kimi-k2.6",
        "61 * (512 + 64) * 2 * 32768",
        "as DeepSeek-V3; its figures stand in text_config",
    ),
    Case("Gemma 3 27B", "gemma-3-27b", _GEMMA, f"{_GEMMA_WORDS}; as released, the pattern being a default"),
    Case(
        "Gemma 3 27B, layer_types",
        "gemma-3-27b",
        _GEMMA,
        "the same with every layer's kind spelled out, as newer transformers save it",
        {"layer_types": ["full_attention" if (layer + 1) % 6 == 0 else "sliding_attention" for layer in range(62)]},
    ),
    Case(
        "gpt-oss-120b",
        "gpt-oss-120b",
        "18 * 8 * (64 + 64) * 2 * 32768 + 18 * 8 * (64 + 64) * 2 * 128",
        "every second of 36 layers has a window of 128; 8 KV heads of 64, which is not 2880 / 64",
    ),
    Case(
        "Qwen3-Next-80B-A3B",
        "qwen3-next-80b-a3b",
        "12 * 2 * (256 + 256) * 2 * 32768 + 36 * (32 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 32 * 128) * 2)",
        "every fourth of 48 layers attends, 2 KV heads of 256; 36 keep a state of 32 x 128 x 128 in float32 and the "
        "last 3 inputs of a convolution over 2 x 16 x 128 + 32 x 128 channels",
    ),
    Case(
        "DeepSeek-V4-Flash",
        "deepseek-v4-flash",
        "21 * (32768 // 4) * (512 * 2 + 128 + 4) + 20 * (32768 // 128) * 512 * 2 + 43 * 128 * 512 * 2 "
        "+ 21 * 8 * 4 * (512 + 128) * 4 + 20 * 128 * 2 * 512 * 4",
        "21 layers keep a row of 512 for 4 tokens and an index of 128 bytes with a scale, 20 a row for 128 tokens, "
        "all 43 a window of 128; compressors hold 8 or 128 tokens, keys and scores, in float32",
    ),
)
