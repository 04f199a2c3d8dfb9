"""A model's shape from the metadata of its GGUF file, as llama.cpp reads it for its caches.

Source: llama.cpp of October 2026, src/llama-model.cpp (load_hparams, create_memory), src/llama-hparams.cpp, and
load_arch_hparams of each src/models/*.cpp named in the tables. A kind of attention that isn't known is refused by its
key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Sized
from typing import Any

from deepdraft.cost.kv_family import Family, Grouped, Latent, Recurrent
from deepdraft.errors import UsageError
from deepdraft.planner.shape import Shape
from deepdraft.planner.v4_layers import v4_families

_WINDOW_PATTERN = {
    "afmoe": 4, "cohere2": 4, "exaone-moe": 4, "exaone4": 4, "gemma2": 2, "gemma3": 6, "gemma3n": 5, "gpt-oss": 2,
    "llama4": 4, "olmo2": 4, "plamo3": 8,
}  # fmt: skip
"""Every so manyeth layer attends to everything, where the file does not list them."""
_IGNORES_WINDOW = frozenset({"llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "mistral3", "starcoder2", "phi3"})
"""llama.cpp gives these a full cache, whatever window the file states."""
_BY_INTERVAL = frozenset({"qwen3next", "qwen35", "qwen35moe"})
_BY_HEADS = frozenset({"nemotron_h", "nemotron_h_moe", "granitehybrid", "jamba"})
"""Layers without KV heads keep a state, unless they are an MLP alone."""
_ALL_STATES = frozenset({"mamba", "mamba2"})
_V4 = "deepseek4"
_UNKNOWN = ("indexer", "kda.", "wkv", "shortconv", "compress", "token_shift", "linear_attention", "decision")


def shape_of_metadata(metadata: Mapping[str, Any], name: str) -> Shape:
    """The shape that the keys describe. Raises UsageError where one is missing or tells of an unknown cache."""
    arch = metadata.get("general.architecture")
    if not isinstance(arch, str):
        raise UsageError(f"{name} does not say its architecture (general.architecture)")
    keys = _Keys(metadata, arch)
    keys.refuse_unknown()
    num_layers = keys.whole("block_count") - keys.number("nextn_predict_layers", 0)
    num_experts = keys.number("expert_count", 0)
    vocab_size = keys.number("vocab_size", 0) or keys.length("tokenizer.ggml.tokens")
    rank = keys.number("attention.kv_lora_rank", 0)
    is_v4 = arch == _V4
    is_latent = rank > 0 and keys.number("attention.key_length_mla", 0) > 0
    return Shape(
        name=str(metadata.get("general.name") or name),
        model_type=arch,
        families=_v4_families(keys) if is_v4 else _families(keys, num_layers, rank if is_latent else 0),
        num_layers=num_layers,
        hidden=keys.whole("embedding_length"),
        num_qo_heads=max(keys.by_layer("attention.head_count", num_layers, 0)),
        vocab_size=vocab_size,
        max_context_len=keys.number("context_length", 0) or None,
        dtype="float16",
        kv_lora_rank=rank if is_latent else None,
        qk_rope_head_dim=keys.number("rope.dimension_count", 0) if is_latent or is_v4 else None,
        v_head_dim=keys.number("attention.value_length_mla", 0) if is_latent else None,
        num_experts=num_experts,
        num_experts_per_token=keys.number("expert_used_count", 0),
        num_moe_layers=num_layers - keys.number("leading_dense_block_count", 0)
        if keys.number("expert_count", 0)
        else 0,
        expert_mlp=keys.most("expert_feed_forward_length"),
        num_streams=keys.number("hyper_connection.count", 1),
        dense_mlp=keys.most("feed_forward_length"),
    )


def _v4_families(keys: _Keys) -> tuple[Family, ...]:
    """Prediction layers in the file have a window as well."""
    ratios = keys.get("attention.compress_ratios")
    num_layers = keys.whole("block_count")
    if not isinstance(ratios, list) or len(ratios) < num_layers:
        raise UsageError(f"the file has no usable {_V4}.attention.compress_ratios: {ratios!s:.60}")
    return v4_families(
        [int(each) for each in ratios[:num_layers]],
        dim=keys.whole("attention.key_length"),
        rope_dim=keys.whole("rope.dimension_count"),
        index_dim=keys.whole("attention.indexer.key_length"),
        window=keys.whole("attention.sliding_window"),
    )


def _families(keys: _Keys, num_layers: int, kv_lora_rank: int) -> tuple[Family, ...]:
    num_owning = num_layers - keys.number("attention.shared_kv_layers", 0)
    if kv_lora_rank:
        rope = keys.whole("rope.dimension_count")
        return (Latent(num_layers=num_owning, kv_lora_rank=kv_lora_rank, qk_rope_head_dim=rope),)
    has_state = _state_layers(keys, num_layers)
    has_window = _window_layers(keys, num_layers)
    heads = keys.by_layer("attention.head_count_kv", num_layers, keys.by_layer("attention.head_count", num_layers, 0))
    groups = Counter(
        (heads[layer], has_window[layer]) for layer in range(num_owning) if heads[layer] and not has_state[layer]
    )
    families: list[Family] = [
        _grouped(keys, num_kv_heads, count, is_window=is_window)
        for (num_kv_heads, is_window), count in groups.items()
    ]
    if any(has_state):
        families.append(_recurrent(keys, sum(has_state)))
    return tuple(families)


def _grouped(keys: _Keys, num_kv_heads: int, num_layers: int, *, is_window: bool) -> Grouped:
    heads = max(keys.by_layer("attention.head_count", num_layers, 0))
    plain = keys.whole("embedding_length") // heads if heads else 0
    key_dim = keys.number("attention.key_length", plain)
    value_dim = keys.number("attention.value_length", plain)
    if is_window:
        key_dim = keys.number("attention.key_length_swa", key_dim)
        value_dim = keys.number("attention.value_length_swa", value_dim)
    return Grouped(
        num_layers=num_layers,
        num_kv_heads=num_kv_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        window=keys.whole("attention.sliding_window") if is_window else None,
    )


def _window_layers(keys: _Keys, num_layers: int) -> Sequence[bool]:
    window = keys.number("attention.sliding_window", 0)
    if not window or keys.arch in _IGNORES_WINDOW:
        return [False] * num_layers
    stated = keys.get("attention.sliding_window_pattern")
    if isinstance(stated, list):
        return [bool(each) for each in stated[:num_layers]]
    every = stated if isinstance(stated, int) else _WINDOW_PATTERN.get(keys.arch)
    if not every:
        raise UsageError(
            f"{keys.arch}.attention.sliding_window is {window}, and which layers have it is not known for {keys.arch}"
        )
    return [layer % every < every - 1 for layer in range(num_layers)]


def _state_layers(keys: _Keys, num_layers: int) -> Sequence[bool]:
    if not keys.get("ssm.state_size"):
        return [False] * num_layers
    if keys.arch in _ALL_STATES:
        return [True] * num_layers
    if keys.arch in _BY_INTERVAL:
        stated = keys.get("attention.recurrent_layers")
        if isinstance(stated, list):
            return [bool(each) for each in stated[:num_layers]]
        every = keys.number("full_attention_interval", 4)
        return [(layer + 1) % every != 0 for layer in range(num_layers)]
    if keys.arch in _BY_HEADS:
        heads = keys.by_layer("attention.head_count_kv", num_layers, 0)
        mlp = keys.by_layer("feed_forward_length", num_layers, 0)
        is_split = keys.arch.startswith("nemotron")
        return [not heads[layer] and not (is_split and mlp[layer]) for layer in range(num_layers)]
    raise UsageError(f"{keys.arch}.ssm.state_size: which layers of {keys.arch} keep a state is not known here")


def _recurrent(keys: _Keys, num_layers: int) -> Recurrent:
    """llama.cpp's n_embd_s and n_embd_r."""
    state, inner = keys.whole("ssm.state_size"), keys.whole("ssm.inner_size")
    kernel, groups = keys.number("ssm.conv_kernel", 0), keys.number("ssm.group_count", 0)
    return Recurrent(
        num_layers=num_layers,
        num_heads=1,
        state_elements=state * inner,
        conv_elements=max(kernel - 1, 0) * (inner + 2 * groups * state),
    )


class _Keys:
    """The metadata, by keys of the architecture."""

    def __init__(self, metadata: Mapping[str, Any], arch: str) -> None:
        self.arch = arch
        self._metadata = metadata

    def get(self, key: str) -> Any:
        return self._metadata.get(f"{self.arch}.{key}")

    def refuse_unknown(self) -> None:
        for key, value in self._metadata.items():
            own = key.removeprefix(f"{self.arch}.")
            if self.arch == _V4 and own.startswith(("attention.indexer.", "attention.compress_")):
                continue
            if value and own != key and any(part in own for part in _UNKNOWN):
                raise UsageError(
                    f"the file has {key}: {value!s:.60}, a kind of attention whose memory is not known here"
                )

    def number(self, key: str, default: int) -> int:
        """A whole number; of a list that is everywhere the same, that number."""
        value = self.get(key)
        if isinstance(value, list) and value and len(set(value)) == 1:
            value = value[0]
        return default if value is None or isinstance(value, list | str | float) else int(value)

    def whole(self, key: str) -> int:
        """A positive one. Raises UsageError where there is none."""
        value = self.number(key, 0)
        if value < 1:
            raise UsageError(f"the file has no usable {self.arch}.{key}: {self.get(key)!r}")
        return value

    def most(self, key: str) -> int:
        """The greatest of a list, or the one number; 0 where it is not said."""
        value = self.get(key)
        return max(value, default=0) if isinstance(value, list) else self.number(key, 0)

    def by_layer(self, key: str, num_layers: int, default: int | Sequence[int]) -> Sequence[int]:
        """One number a layer."""
        value = self.get(key)
        if isinstance(value, list):
            return value[:num_layers]
        if value is None and not isinstance(default, int):
            return default
        return [self.number(key, default if isinstance(default, int) else 0)] * num_layers

    def length(self, key: str) -> int:
        """Of an array, by its whole name."""
        value = self._metadata.get(key)
        return len(value) if isinstance(value, Sized) else 0
