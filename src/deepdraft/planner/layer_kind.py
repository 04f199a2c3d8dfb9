"""What each layer of a model does for memory: attends to everything, to a window, to a chunk, or keeps a state.

Reads the fields by which Hugging Face configs say it, one function a way. A way that isn't known is refused by the
field's name: a number from the wrong formula is worse than none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

from deepdraft.cost.config_field import Config, first_whole, whole
from deepdraft.errors import UsageError

Kind = Literal["full", "window", "state", "none"]
"""full: every token stays. window: the last `window` tokens. state: a state of fixed size. none: no cache at all."""

_BY_LAYER_TYPE: dict[str, Kind] = {
    "full_attention": "full",
    "attention": "full",
    "deepseek_sparse_attention": "full",
    "global_attention": "full",
    "sliding_attention": "window",
    "sliding_window_attention": "window",
    "local_attention": "window",
    "chunked_attention": "window",
    "linear_attention": "state",
    "mamba": "state",
    "mamba2": "state",
    "kda": "state",
    "moe": "none",
    "mlp": "none",
}
_BY_LETTER: dict[str, Kind] = {"*": "full", "M": "state", "E": "none", "-": "none"}
_WINDOW_PATTERN = {"gemma3_text": 6, "gemma3": 6, "gemma2": 2, "cohere2": 4}
"""Every so manyeth layer is full where a config of that type says nothing: the default of its class."""
_READ = frozenset(
    {
        "layer_types", "layers_block_type", "hybrid_override_pattern", "hybrid_layer_pattern", "linear_attn_config",
        "full_attention_interval", "sliding_window", "sliding_window_pattern", "_sliding_window_pattern",
        "use_sliding_window", "max_window_layers", "attention_chunk_size", "no_rope_layers", "no_rope_layer_interval",
        "compress_ratios", "block_configs", "sparse_attention_config", "num_kv_shared_layers", "kv_lora_rank",
        "index_head_dim", "index_n_heads", "index_topk", "index_topk_freq", "index_skip_topk_offset",
        "index_topk_pattern", "indexer_types", "ssm_state_size", "mamba_num_heads", "mamba_head_dim",
        "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim",
        "linear_conv_kernel_dim", "conv_kernel", "mamba_ssm_dtype", "mamba_ssm_cache_dtype", "attention_k_eq_v",
        "sliding_window_size", "global_head_dim", "num_global_key_value_heads", "attn_type_list",
    }
)  # fmt: skip
_HARMLESS = re.compile(
    r"rope|mtp|^decoder_sparse_step$|_token|^index_share|dropout|bias$|^use_conv|mamba_(hidden_act|proj|chunk|expand)|use_mamba_kernels|"
    r"^swa_|compress_rope|bidirectional|conv_bias|window_chunk|sink|sliding_window_rope|chunk_size_feed_forward"
)
_SUSPECT = re.compile(
    r"window|sliding|sparse|linear_att|lin_att|ssm|mamba|rwkv|recurrent|retention|conv_|state_size|compress|lightning|"
    r"kv_share|shared_kv|share_kv|kv_source|cross_layer|_cla|^cla|yoco|hybrid|attn_type|attention_type|attn_layer|"
    r"block_types|delta|moba|indexer|^index_|gla_|local_attention|attention_window|encoder_decoder|attn_config"
)


def layer_kinds(config: Config) -> tuple[Kind, ...]:
    """One kind for every layer, in order. `config` is the language model's.

    Raises UsageError where the config says something about its attention that isn't known here.
    """
    refuse_unknown(config)
    num_layers = num_hidden_layers(config)
    for read in (
        _letters,
        _linear_attention,
        _type_list,
        _layer_types,
        _interval,
        _zeros_and_ones,
        _chunked,
        _pattern,
    ):
        kinds = read(config, num_layers)
        if kinds is not None:
            return kinds
    return _all_full(num_layers)


def num_hidden_layers(config: Config) -> int:
    """Layers of the model, which some hybrids tell only by the list of their kinds. Raises UsageError where neither
    is there."""
    kinds = config.get("layers_block_type")
    return len(kinds) if isinstance(kinds, list) and kinds else whole(config, "num_hidden_layers")


def window_len(config: Config) -> int:
    """Tokens of the window or chunk. Raises UsageError where the config doesn't say it."""
    found = first_whole(config, ("sliding_window", "sliding_window_size", "attention_chunk_size"))
    if not found:
        raise UsageError("the model has layers with a window, and its config no sliding_window")
    return found


def refuse_unknown(config: Config) -> None:
    """Raise UsageError by the name of the first field that speaks of attention in words not known here."""
    for field, value in config.items():
        if not value or field in _READ or _HARMLESS.search(field) or not _SUSPECT.search(field):
            continue
        raise UsageError(
            f"the model's config has {field}: {_short(value)}, a kind of attention whose memory is not known here"
        )


def _letters(config: Config, num_layers: int) -> tuple[Kind, ...] | None:
    pattern = config.get("hybrid_override_pattern")
    if not isinstance(pattern, str):
        return None
    return tuple(_known(_BY_LETTER, letter, "hybrid_override_pattern") for letter in pattern.replace("|", ""))


def _linear_attention(config: Config, num_layers: int) -> tuple[Kind, ...] | None:
    """Kimi Linear: layers counted from 1."""
    stated = config.get("linear_attn_config")
    if not isinstance(stated, dict):
        return None
    full = set(stated.get("full_attn_layers") or ())
    return tuple("full" if index + 1 in full else "state" for index in range(num_layers))


def _type_list(config: Config, num_layers: int) -> tuple[Kind, ...] | None:
    """MiniMax: 1 is full attention, 0 lightning attention."""
    types = config.get("attn_type_list")
    if not isinstance(types, list) or not types:
        return None
    if any(each != 1 for each in types):
        raise UsageError("the model has lightning attention (attn_type_list), whose memory is not known here")
    return _all_full(num_layers)


def _layer_types(config: Config, num_layers: int) -> tuple[Kind, ...] | None:
    for field in ("layers_block_type", "layer_types"):
        types = config.get(field)
        if isinstance(types, list) and types:
            return tuple(_known(_BY_LAYER_TYPE, str(each), field) for each in types[:num_layers])
    return None


def _interval(config: Config, num_layers: int) -> tuple[Kind, ...] | None:
    """Qwen3-Next: every so manyeth layer attends, the others keep a state."""
    interval = first_whole(config, ("full_attention_interval",))
    if not interval:
        return None
    return tuple("full" if (index + 1) % interval == 0 else "state" for index in range(num_layers))


def _zeros_and_ones(config: Config, num_layers: int) -> tuple[Kind, ...] | None:
    """MiMo-V2: 1 is a layer with a window."""
    pattern = config.get("hybrid_layer_pattern")
    if not isinstance(pattern, list):
        return None
    return tuple("window" if each else "full" for each in pattern[:num_layers])


def _chunked(config: Config, num_layers: int) -> tuple[Kind, ...] | None:
    """Llama 4: layers without rotary positions attend to everything, the others to their chunk. Every fourth is
    without unless the config says otherwise."""
    if not config.get("attention_chunk_size") or not str(config.get("model_type", "")).startswith("llama4"):
        return None
    flags = config.get("no_rope_layers")
    if isinstance(flags, list) and flags:
        return tuple("window" if uses_rope else "full" for uses_rope in flags[:num_layers])
    interval = first_whole(config, ("no_rope_layer_interval",)) or 4
    return tuple("full" if (index + 1) % interval == 0 else "window" for index in range(num_layers))


def _pattern(config: Config, num_layers: int) -> tuple[Kind, ...] | None:
    """A window, and every so manyeth layer full; or a window in all layers, or in those from max_window_layers on."""
    if not config.get("sliding_window") or config.get("use_sliding_window") is False:
        return None
    model_type = str(config.get("model_type", ""))
    pattern = first_whole(config, ("sliding_window_pattern", "_sliding_window_pattern"))
    pattern = pattern or _WINDOW_PATTERN.get(model_type)
    if pattern:
        return tuple("full" if (index + 1) % pattern == 0 else "window" for index in range(num_layers))
    num_full = first_whole(config, ("max_window_layers",)) if config.get("use_sliding_window") else None
    return tuple("full" if index < (num_full or 0) else "window" for index in range(num_layers))


def _all_full(num_layers: int) -> tuple[Kind, ...]:
    kind: Kind = "full"
    return (kind,) * num_layers


def _known(kinds: dict[str, Kind], word: str, field: str) -> Kind:
    if word not in kinds:
        raise UsageError(f"the model's config has a layer of an unknown kind in {field}: {word!r}")
    return kinds[word]


def _short(value: Any) -> str:
    if isinstance(value, Sequence) and not isinstance(value, str):
        value = list(dict.fromkeys(map(str, value)))
    text = str(value)
    return text if len(text) <= 60 else text[:57] + "..."
