"""From SGLang's budget to tokens of the pool, and the requests that run at once.

budget = free after weights - pre x (1 - fraction), where pre is what was free before them. Recurrent states are taken
out first, in a ratio to the rest. Sources: `_profile_available_bytes`, `_handle_max_mamba_cache` and
`resolve_max_num_reqs` of 0.5.12.post1 and 0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.planner.sglang_cell import Cell
from deepdraft.planner.sglang_choice import Choice
from deepdraft.planner.sglang_v4 import V4Form
from deepdraft.planner.sglang_v4_pool import V4Pool, v4_pool
from deepdraft.planner.sglang_window import admits_a_request

_SLOTS_A_REQUEST = 3
"""Recurrent states kept for each running request, for its prefix in the radix cache; without that, 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What is allocated on one rank."""

    num_tokens: int
    num_state_slots: int
    state_bytes: int
    """Recurrent states, those of tokens under verification included."""
    max_running: int
    v4: V4Pool | None = None
    """DeepSeek-V4's buffers, of 0.5.23."""


def pool_of(choice: Choice, cell: Cell, budget_bytes: int) -> Pool:
    """The pool of that budget; none of its tokens below 1 page, or where windows beside them admit no request."""
    if choice.v4 is not None and choice.version == "0.5.23":
        return _v4_pool_of(choice, choice.v4, budget_bytes)
    num_slots, state_bytes = _states(choice, cell, budget_bytes)
    page_size = choice.page_size
    tokens = (
        max(int((budget_bytes - cell.once - state_bytes) / cell.counted), 0) if cell.counted else choice.context_len
    )
    if choice.settings.max_total_tokens is not None:
        tokens = min(tokens, choice.settings.max_total_tokens)
    tokens = tokens // page_size * page_size
    if not admits_a_request(choice, tokens):
        tokens = 0
    return Pool(
        num_tokens=tokens,
        num_state_slots=num_slots,
        state_bytes=state_bytes,
        max_running=_max_running(choice, cell, tokens, num_slots),
    )


def _v4_pool_of(choice: Choice, form: V4Form, budget_bytes: int) -> Pool:
    found = v4_pool(form, budget_bytes, context_len=choice.context_len, max_tokens=choice.settings.max_total_tokens)
    return Pool(
        num_tokens=found.num_tokens, num_state_slots=0, state_bytes=0, max_running=found.num_requests, v4=found
    )


def _states(choice: Choice, cell: Cell, budget_bytes: int) -> tuple[int, int]:
    """Slots for recurrent states, and all the bytes that states take."""
    if not cell.fixed:
        return 0, 0
    ratio = choice.settings.mamba_full_memory_ratio
    if choice.version == "0.5.12":
        num_drafted = (choice.max_running or 0) * choice.num_draft_tokens if choice.num_draft_tokens > 1 else 0
        drafted_bytes = num_drafted * cell.fixed
        num_slots = max(int((budget_bytes - drafted_bytes) * ratio / (1 + ratio)) // cell.fixed, 0)
        return num_slots, num_slots * cell.fixed + drafted_bytes
    return _joint_states(choice, cell, budget_bytes * ratio / (1 + ratio))


def _joint_states(choice: Choice, cell: Cell, share_bytes: float) -> tuple[int, int]:
    """0.5.23: slots and the states of tokens under verification share one part of the budget; each has one more to
    pad."""
    num_draft = choice.num_draft_tokens if choice.num_draft_tokens > 1 else 0
    slots_a_request = _slots_a_request(choice)
    each_bytes = cell.fixed * (1 + num_draft / slots_a_request)
    num_slots = max(int((share_bytes - cell.fixed * (1 + num_draft)) // each_bytes), 0)
    num_drafting = min(choice.max_running or 0, num_slots // slots_a_request) + 1
    return num_slots, (num_slots + 1 + num_drafting * num_draft) * cell.fixed


def _slots_a_request(choice: Choice) -> int:
    return 1 if choice.settings.disable_radix_cache else _SLOTS_A_REQUEST


def _max_running(choice: Choice, cell: Cell, tokens: int, num_slots: int) -> int:
    limit = choice.max_running or min(max(int(tokens / choice.context_len * 512), 2048), 4096)
    if choice.version == "0.5.23":
        limit = min(limit, max(tokens // 2, 1))
    if cell.fixed:
        limit = min(limit, num_slots // _slots_a_request(choice))
    return max(limit, 0)
