"""A DFlash drafter's config.json (as z-lab publishes them) to `DflashConfig`, held against its target.

The draft layers are Qwen3's whatever the target is, so their shape is read like a Qwen3 model's. Fields of DFlash's
own stand in `dflash_config`, or beside the others. What the weights were trained for and there is no code for is
refused by the field that says so: DFlash 2 (convolutions, candidate selector), Domino heads, Laguna's norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepdraft.infer.checkpoint.config_json import model_config
from deepdraft.infer.checkpoint.field import Fields
from deepdraft.infer.config import GqaShape, ModelConfig
from deepdraft.infer.errors import UnsupportedModel

_HINT = "deepdraft runs DFlash drafters (architectures DFlashDraftModel) beside the target that they were trained for"
_OTHER_FORMS = {
    "conv_kernel_size": "the convolutions of DFlash 2 are not supported",
    "conv_group_size": "the convolutions of DFlash 2 are not supported",
    "selector_rank": "the candidate selector of DFlash 2 is not supported",
    "selector_top_k": "the candidate selector of DFlash 2 is not supported",
    "projector_type": "a head of its own (Domino) is not supported",
    "attention_sink_bias": "attention sinks are not supported",
    "attention_value_scale": "scaled values are not supported",
    "use_swa": "supported are sliding windows by layer_types and sliding_window",
    "sample_from_anchor": "supported is a block that starts with the bonus token and predicts the tokens after it",
}
_KINDS = ("full_attention", "sliding_attention")
_QWEN3_MAX_WINDOW_LAYERS = 28
"""transformers' default: from which layer on attention slides where layer_types says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DflashConfig:
    """One drafter."""

    layers: ModelConfig
    """The shape of the draft layers; the vocabulary is the target's"""
    attention: GqaShape
    block_size: int
    """Rows of a draft pass: the bonus token and block_size - 1 masks"""
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    """Target layers, from 0, whose outputs are the context features, side by side in this order"""
    is_causal: bool
    """Whether a row of the block sees only the rows before it; usually all see all"""
    sliding_window: int | None
    """Context tokens that every layer was trained to see; None: all"""
    draft_window_size: int | None
    """What the drafter's makers advise as draft window (a field of this project's own); None: nothing"""
    input_embedding_scale: float
    output_multiplier: float
    final_logit_softcapping: float | None


def dflash_config(stated: Mapping[str, Any], target: ModelConfig) -> DflashConfig:
    """The drafter that a config.json's fields state, for this target. Raises UnsupportedModel, with the field's name,
    for what there is no code for, what makes no sense, and what doesn't fit the target."""
    try:
        return _config(Fields(stated), target)
    except UnsupportedModel as refusal:
        refusal.hint = _HINT
        raise


def default_target_layer_ids(num_target_layers: int, num_draft_layers: int) -> tuple[int, ...]:
    """DFlash's own rule: evenly from the second layer to the third-to-last, as many as there are draft layers.

    Raises UnsupportedModel for several layers of a target with fewer than 4.
    """
    if num_draft_layers == 1:
        return (num_target_layers // 2,)
    if num_target_layers < 4:
        raise UnsupportedModel("dflash_config.target_layer_ids", reason="the target is too small for the default")
    step = (num_target_layers - 4) / (num_draft_layers - 1)
    return tuple(round(1 + index * step) for index in range(num_draft_layers))


def _config(config: Fields, target: ModelConfig) -> DflashConfig:
    architectures = config.stated.get("architectures")
    if architectures not in (None, ["DFlashDraftModel"]):
        raise config.refused("architectures", architectures, "supported is DFlashDraftModel only")
    config.only("model_type", "qwen3")
    own = _own_fields(config)
    for name, reason in _OTHER_FORMS.items():
        own.absent(name, reason)
    own.only("use_aux_hidden_state", True)
    _fits(config, "hidden_size", target.hidden_size)
    _fits(config, "vocab_size", target.vocab_size)
    _fits(own, "num_target_layers", target.num_layers)
    sliding_window = _sliding_window(config)
    layers = model_config(_as_qwen3(config.stated, target))
    assert isinstance(layers.attention, GqaShape)  # qwen3's
    return DflashConfig(
        layers=layers,
        attention=layers.attention,
        block_size=own.integer("block_size", 16, minimum=2),
        mask_token_id=_mask_token_id(own, target.vocab_size),
        target_layer_ids=_target_layer_ids(own, target.num_layers, layers.num_layers),
        is_causal=config.flag("is_causal", sliding_window is not None),  # absent: as z-lab's own code takes it
        sliding_window=sliding_window,
        draft_window_size=own.optional_integer("draft_window_size"),
        input_embedding_scale=own.number("input_embedding_scale", 1.0),
        output_multiplier=own.number("output_multiplier", 1.0),
        final_logit_softcapping=own.number("final_logit_softcapping") if _is_set(own) else None,
    )


def _own_fields(config: Fields) -> Fields:
    """The fields of dflash_config, and those that stand beside it where it lacks them."""
    nested = config.stated.get("dflash_config") or {}
    if not isinstance(nested, Mapping):
        raise config.refused("dflash_config", nested, "it must be an object")
    return Fields({**config.stated, **nested}, path="dflash_config.")


def _as_qwen3(stated: Mapping[str, Any], target: ModelConfig) -> dict[str, Any]:
    """What a Qwen3 model's config says; windows and causality are DFlash's own matter."""
    left_out = ("layer_types", "use_sliding_window", "sliding_window", "is_causal")
    kept = {name: value for name, value in stated.items() if name not in left_out}
    return {**kept, "model_type": "qwen3", "vocab_size": target.vocab_size}


def _fits(fields: Fields, name: str, of_target: int) -> None:
    value = fields.stated.get(name)
    if value not in (None, of_target):
        raise fields.refused(name, value, f"the target's is {of_target}: this drafter is for another model")
    if value is None and name == "hidden_size":
        raise fields.refused(name, value, "a drafter has to state it")


def _mask_token_id(own: Fields, vocab_size: int) -> int:
    mask_token_id = own.integer("mask_token_id", minimum=0)
    if mask_token_id >= vocab_size:
        raise own.refused("mask_token_id", mask_token_id, f"the vocabulary has {vocab_size} tokens")
    return mask_token_id


def _target_layer_ids(own: Fields, num_target_layers: int, num_draft_layers: int) -> tuple[int, ...]:
    if not own.has("target_layer_ids"):
        return default_target_layer_ids(num_target_layers, num_draft_layers)
    stated = own.stated["target_layer_ids"]
    if not isinstance(stated, list) or not stated:
        raise own.refused("target_layer_ids", stated, "it must be a list of the target's layers")
    for index in stated:
        if not isinstance(index, int) or not 0 <= index < num_target_layers:
            raise own.refused("target_layer_ids", stated, f"the target has layers 0 to {num_target_layers - 1}")
    return tuple(stated)


def _sliding_window(config: Fields) -> int | None:
    """The window of all layers; None where they see everything. Layers of both kinds are refused."""
    num_layers = config.integer("num_hidden_layers", 32)
    kinds = config.stated.get("layer_types")
    if kinds is None:
        first = config.integer("max_window_layers", _QWEN3_MAX_WINDOW_LAYERS, minimum=0)
        is_sliding = config.flag("use_sliding_window", False)
        kinds = [_KINDS[is_sliding and index >= first] for index in range(num_layers)]
    if not isinstance(kinds, list) or len(kinds) != num_layers or any(kind not in _KINDS for kind in kinds):
        raise config.refused("layer_types", kinds, f"it must name one of {', '.join(_KINDS)} for each layer")
    if len(set(kinds)) > 1:
        raise config.refused("layer_types", kinds, "supported are layers of one kind")
    return config.integer("sliding_window") if kinds[0] == "sliding_attention" else None


def _is_set(own: Fields) -> bool:
    """0 is how configs write that logits are not capped."""
    return bool(own.stated.get("final_logit_softcapping"))
