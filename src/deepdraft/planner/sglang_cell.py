"""Bytes that SGLang divides its budget by: `cell`, one token of the pool on one rank; and what it truly costs.

Sources: model_executor/pool_configurator.py and speculative/dflash_utils.py of 0.5.12.post1 and 0.5.23.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from deepdraft.cost.kv_family import Family, Grouped, Index, Latent, Recurrent
from deepdraft.planner.sglang_choice import Choice
from deepdraft.planner.sglang_context_parallel import shared_row_bytes
from deepdraft.planner.sglang_v4 import V4Form
from deepdraft.planner.sglang_v4_0_5_12 import v4_inflation, v4_token_bytes
from deepdraft.planner.sglang_window import window_cap_tokens, window_token_bytes


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
    once: int = 0
    """Taken from the budget once: a windows' pool that the running requests cap."""

    @property
    def true(self) -> float:
        """What a token truly takes."""
        return self.target + self.draft


def sglang_cell(choice: Choice) -> Cell:
    """The cell of that version."""
    if choice.v4 is not None:
        return _v4_cell(choice, choice.v4)
    target = sum(_share(each, choice) for each in choice.model.shape.families) / choice.settings.pp_size
    draft, cap = _draft_rows(choice), window_cap_tokens(choice)
    return Cell(
        counted=_with_draft(choice, target, draft),
        target=target,
        draft=draft,
        fixed=-(-_state_bytes(choice) // choice.settings.pp_size),
        once=round((cap or 0) * window_token_bytes(choice)),
    )


def has_window(choice: Choice) -> bool:
    """Whether a second, smaller pool holds the layers with a window."""
    return any(isinstance(each, Grouped | Latent) and each.window is not None for each in choice.model.shape.families)


def _share(family: Family, choice: Choice) -> float:
    """A layer with a window has a pool of `swa_ratio` tokens for each token of the full pool, or one that the running
    requests cap; a model of such layers alone has one pool."""
    if isinstance(family, Recurrent):
        return 0.0
    dcp_size = choice.settings.dcp_size
    if dcp_size > 1:
        return shared_row_bytes(family, choice.form, tp_size=choice.attention_tp, dcp_size=dcp_size)
    row_bytes = family.row_bytes(choice.form, choice.attention_tp)
    if isinstance(family, Index) and family.has_scales and choice.version == "0.5.12":
        # It counts an index in every layer, shared ones too.
        row_bytes = row_bytes // family.num_layers * choice.model.shape.num_layers
    if family.window is None:
        return row_bytes
    if window_cap_tokens(choice) is not None:
        return 0.0
    is_alone = all(each.window is not None for each in choice.model.shape.families)
    return row_bytes * (1.0 if is_alone else choice.swa_ratio)


def _v4_cell(choice: Choice, form: V4Form) -> Cell:
    """DeepSeek-V4: the pool's token, raised by speculation."""
    num_mtp = choice.model.shape.num_mtp_layers
    if choice.version == "0.5.12":
        target, inflation = v4_token_bytes(form, num_mtp), v4_inflation(form, num_mtp)
    else:
        target, inflation = form.token_bytes, form.inflation
    return Cell(counted=target * inflation, target=target, draft=form.draft_token_bytes, fixed=0)


def _state_bytes(choice: Choice) -> int:
    return sum(
        each.state_bytes(choice.form, choice.attention_tp)
        for each in choice.model.shape.families
        if isinstance(each, Recurrent)
    )


def _draft_rows(choice: Choice) -> float:
    """The drafter's pool has as many tokens as the target's, windows or none."""
    if choice.drafter is None:
        return 0.0
    return float(
        sum(
            each.row_bytes(choice.form, choice.attention_tp)
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
    dcp_size = choice.settings.dcp_size
    return int(target * dcp_size * (1 + num_draft / num_layers)) / dcp_size


def _num_attending(choice: Choice) -> int:
    """Layers with rows of keys, as the engine counts them."""
    shape = choice.model.shape
    if not any(isinstance(each, Recurrent) for each in shape.families):
        return shape.num_layers
    return sum(each.num_layers for each in shape.families if isinstance(each, Grouped | Latent))
