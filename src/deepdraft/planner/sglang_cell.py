"""Bytes that SGLang divides its budget by: `cell`, one token of the pool on one rank; and what it truly costs.

Sources: model_executor/pool_configurator.py and speculative/dflash_utils.py of 0.5.12.post1 and 0.5.23.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepdraft.cost.kv_dtype import FP8
from deepdraft.cost.kv_family import Compressed, Family, Grouped, Index, KvFormat, Latent, Recurrent
from deepdraft.planner.sglang_choice import Choice

_RATIO_BY_WINDOW = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One token of the pool on one rank, in bytes."""

    counted: float
    """What the pool's budget is divided by."""
    target: float
    """Of it the target model's part."""
    draft: float
    """What the drafter's pool truly takes for it; 0 without a drafter."""
    fixed: int
    """Once per running request, taken from the budget first: recurrent states."""

    @property
    def true(self) -> float:
        """What a token truly takes."""
        return self.target + self.draft


def sglang_cell(choice: Choice) -> Cell:
    """The cell of that version."""
    target = sum(_share(each, choice) for each in choice.model.shape.families) / choice.settings.pp_size
    draft = _draft_rows(choice)
    return Cell(
        counted=_with_draft(choice, target, draft),
        target=target,
        draft=draft,
        fixed=-(-_state_bytes(choice) // choice.settings.pp_size),
    )


def has_window(choice: Choice) -> bool:
    """Whether a second, smaller pool holds the layers with a window."""
    return any(isinstance(each, Grouped | Latent) and each.window is not None for each in choice.model.shape.families)


def _share(family: Family, choice: Choice) -> float:
    """A layer with a window has a pool of `swa_ratio` tokens for each token of the full pool; a model of such layers
    alone has one pool."""
    if isinstance(family, Recurrent):
        return _compressor_state(family, choice)
    form = _compressed_form(choice.form) if isinstance(family, Compressed) else choice.form
    row_bytes = family.row_bytes(form, choice.attention_tp)
    if isinstance(family, Index) and family.has_scales and choice.version == "0.5.12" and family.stride == 1:
        # It counts an index in every layer, shared ones too.
        row_bytes = row_bytes // family.num_layers * choice.model.shape.num_layers
    if family.window is None:
        return row_bytes / family.stride
    is_alone = all(each.window is not None for each in choice.model.shape.families)
    return row_bytes * (1.0 if is_alone else choice.swa_ratio)


def _compressed_form(form: KvFormat) -> KvFormat:
    """DeepSeek-V4's rows are fp8 whatever the flag says."""
    return KvFormat(key=FP8, value=FP8, state=form.state, conv=form.conv)


def _compressor_state(family: Recurrent, choice: Choice) -> float:
    """DeepSeek-V4: the state of ratio 4 goes with every window of the small pool, that of 128 with the request."""
    if family.stride != _RATIO_BY_WINDOW:
        return 0.0
    windows = (each.window for each in choice.model.shape.families if isinstance(each, Compressed) and each.window)
    return choice.swa_ratio * family.state_bytes(choice.form, choice.attention_tp) / next(windows)


def _state_bytes(choice: Choice) -> int:
    return sum(
        each.state_bytes(choice.form, choice.attention_tp)
        for each in choice.model.shape.families
        if isinstance(each, Recurrent) and each.stride != _RATIO_BY_WINDOW
    )


def _draft_rows(choice: Choice) -> float:
    """The drafter's pool has as many tokens as the target's, windows or none."""
    if choice.drafter is None:
        return 0.0
    return float(
        sum(
            each.row_bytes(choice.form, choice.attention_tp) / each.stride
            for each in choice.drafter.shape.families
            if not isinstance(each, Recurrent)
        )
    )


def _with_draft(choice: Choice, target: float, draft: float) -> float:
    """0.5.12: DFlash as if its layers cost what the target's do, nothing for EAGLE, nothing with a second pool.
    0.5.23: DFlash exactly, EAGLE and its like by the number of layers."""
    drafter = choice.drafter
    if drafter is None:
        return target
    num_layers, num_draft = _num_attending(choice), drafter.shape.num_layers
    if choice.version == "0.5.12":
        if drafter.kind != "dflash" or has_window(choice):
            return target
        return float(math.ceil(target * (num_layers + num_draft) / num_layers))
    if drafter.kind == "dflash":
        return target + draft
    return float(int(target * (1 + num_draft / num_layers)))


def _num_attending(choice: Choice) -> int:
    """Layers with rows of keys, as the engine counts them."""
    shape = choice.model.shape
    num_states = sum(each.num_layers for each in shape.families if isinstance(each, Recurrent))
    is_hybrid = num_states and not any(isinstance(each, Compressed) for each in shape.families)
    if not is_hybrid:
        return shape.num_layers
    return sum(each.num_layers for each in shape.families if isinstance(each, Grouped | Latent))
