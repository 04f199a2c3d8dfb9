"""The families of a model's KV cache (cost.kv_family) from its config.json.

Layers that keep the cache of an earlier one (num_kv_shared_layers) have none of their own. Sources: the configuration
and modeling files of the models named in each function.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.cost.config_field import Config, first_whole, whole
from deepdraft.cost.kv_family import Family, Grouped, Index, Latent, Recurrent
from deepdraft.errors import UsageError
from deepdraft.planner.layer_kind import Kind, layer_kinds, refuse_unknown, window_len
from deepdraft.planner.v4_layers import v4_families


def kv_families(config: Config) -> tuple[Family, ...]:
    """Of the language model's own part of a config. Raises UsageError for a kind of attention not known here."""
    if isinstance(config.get("compress_ratios"), list):
        refuse_unknown(config)
        return _compressed(config)
    if isinstance(config.get("block_configs"), list):
        refuse_unknown(config)
        return _by_block(config)
    kinds = layer_kinds(config)
    num_shared = first_whole(config, ("num_kv_shared_layers",)) or 0
    kinds = kinds[: len(kinds) - num_shared]
    families = [*_full(config, kinds.count("full")), *_window(config, kinds.count("window"))]
    num_states = kinds.count("state")
    if num_states:
        families.append(_recurrent(config, num_states))
    return (*families, *_index(config, kinds))


def _full(config: Config, num_layers: int) -> Sequence[Family]:
    if not num_layers:
        return ()
    if config.get("kv_lora_rank"):
        return (
            Latent(
                num_layers=num_layers,
                kv_lora_rank=whole(config, "kv_lora_rank"),
                qk_rope_head_dim=first_whole(config, ("qk_rope_head_dim",)) or 0,
                is_sparse=bool(config.get("index_head_dim")),
            ),
        )
    head_dim = first_whole(config, ("global_head_dim",)) or key_dim(config)
    is_own = "global_head_dim" in config  # Gemma 4's full layers
    return (
        Grouped(
            num_layers=num_layers,
            num_kv_heads=first_whole(config, ("num_global_key_value_heads",)) or num_kv_heads(config),
            key_dim=head_dim,
            value_dim=head_dim if is_own else value_dim(config),
        ),
    )


def _window(config: Config, num_layers: int) -> Sequence[Family]:
    """MiMo-V2 gives these layers heads of their own (swa_*)."""
    if not num_layers:
        return ()
    if config.get("kv_lora_rank"):
        raise UsageError("the model has latent attention in a window (kv_lora_rank with sliding_window)")
    width = first_whole(config, ("swa_head_dim",))
    return (
        Grouped(
            num_layers=num_layers,
            num_kv_heads=first_whole(config, ("swa_num_key_value_heads",)) or num_kv_heads(config),
            key_dim=width or key_dim(config),
            value_dim=first_whole(config, ("swa_v_head_dim",)) or width or value_dim(config),
            window=window_len(config),
        ),
    )


def _index(config: Config, kinds: Sequence[Kind]) -> Sequence[Family]:
    """Keys of the index: DSA (DeepSeek-V3.2, GLM-5, where some layers use another's) and MiniMax-M3."""
    sparse = config.get("sparse_attention_config")
    if isinstance(sparse, dict) and sparse.get("use_sparse_attention", True):
        layers = [bool(each) for each in sparse.get("sparse_attention_freq") or [1] * len(kinds)]
        has_no_value = [bool(each) for each in sparse.get("sparse_disable_index_value") or [0] * len(layers)]
        num_rows = sum(
            is_sparse * (1 if no_value else 2) for is_sparse, no_value in zip(layers, has_no_value, strict=True)
        )
        return (Index(num_layers=num_rows, dim=whole(sparse, "sparse_index_dim"), has_scales=False),)
    if not config.get("index_head_dim"):
        return ()
    types = config.get("indexer_types")
    num_indexed = types[: len(kinds)].count("full") if isinstance(types, list) else kinds.count("full")
    return (Index(num_layers=num_indexed, dim=whole(config, "index_head_dim")),)


def _recurrent(config: Config, num_layers: int) -> Recurrent:
    kda = config.get("linear_attn_config")
    if isinstance(kda, dict):  # Kimi Linear, Kimi K3: a convolution each for queries, keys and values
        heads, dim, kernel = whole(kda, "num_heads"), whole(kda, "head_dim"), whole(kda, "short_conv_kernel_size")
        return Recurrent(
            num_layers=num_layers,
            num_heads=heads,
            state_elements=heads * dim * dim,
            conv_elements=3 * heads * dim * (kernel - 1),
        )
    if config.get("linear_num_value_heads"):  # Gated DeltaNet: Qwen3-Next, Qwen3.5
        heads, key_heads = whole(config, "linear_num_value_heads"), whole(config, "linear_num_key_heads")
        key, value = whole(config, "linear_key_head_dim"), whole(config, "linear_value_head_dim")
        kernel = whole(config, "linear_conv_kernel_dim")
        return Recurrent(
            num_layers=num_layers,
            num_heads=heads,
            state_elements=heads * key * value,
            conv_elements=(2 * key_heads * key + heads * value) * (kernel - 1),
        )
    if config.get("ssm_state_size"):  # Mamba-2: Nemotron-H
        heads, dim, state = (
            whole(config, "mamba_num_heads"),
            whole(config, "mamba_head_dim"),
            whole(config, "ssm_state_size"),
        )
        groups, kernel = whole(config, "n_groups"), whole(config, "conv_kernel")
        return Recurrent(
            num_layers=num_layers,
            num_heads=heads,
            state_elements=heads * dim * state,
            conv_elements=(heads * dim + 2 * groups * state) * (kernel - 1),
        )
    raise UsageError(
        "the model has layers with a recurrent state whose size its config does not tell in known fields"
    )


def _compressed(config: Config) -> tuple[Family, ...]:
    """DeepSeek-V4: a ratio a layer, and one more for the prediction layer."""
    return v4_families(
        config["compress_ratios"][: whole(config, "num_hidden_layers")],
        dim=whole(config, "head_dim"),
        rope_dim=first_whole(config, ("qk_rope_head_dim",)) or 0,
        index_dim=whole(config, "index_head_dim"),
        window=window_len(config),
    )


def _by_block(config: Config) -> tuple[Family, ...]:
    """Models of an architecture search (Nemotron-Super): attention differs from block to block, or is left out."""
    heads = whole(config, "num_attention_heads")
    groups: dict[tuple[int, int | None], int] = {}
    for block in config["block_configs"]:
        attention = block.get("attention") or {}
        per_group = attention.get("n_heads_in_group")
        if attention.get("no_op") or attention.get("replace_with_linear") or not per_group:
            continue
        key = (heads // int(per_group), attention.get("window_length"))
        groups[key] = groups.get(key, 0) + 1
    return tuple(
        Grouped(num_layers=count, num_kv_heads=kv, key_dim=key_dim(config), value_dim=key_dim(config), window=window)
        for (kv, window), count in groups.items()
    )


def num_kv_heads(config: Config) -> int:
    """KV heads of the ordinary layers; as many as query heads where the config doesn't tell."""
    return first_whole(config, ("num_key_value_heads", "multi_query_group_num")) or whole(
        config, "num_attention_heads"
    )


def key_dim(config: Config) -> int:
    """Width of a key. Often not hidden / heads: the config's own field comes first."""
    stated = first_whole(config, ("head_dim", "attention_head_dim", "kv_channels"))
    return stated or whole(config, "hidden_size") // whole(config, "num_attention_heads")


def value_dim(config: Config) -> int:
    """Width of a value; a key's where the config doesn't tell."""
    return first_whole(config, ("v_head_dim",)) or key_dim(config)
