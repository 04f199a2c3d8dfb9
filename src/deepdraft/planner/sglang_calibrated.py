"""What one measured start of an SGLang server puts in place of estimates.

A log tells `pre` and what was free after the weights; a pool at a known fraction tells their difference better still,
to half a token: weights = pre x fraction - pool x cell. Two pools at two fractions tell pre / cell.
"""

from __future__ import annotations

from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.ledger import LedgerEntry
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_cell import Cell
from deepdraft.planner.sglang_choice import Choice
from deepdraft.planner.sglang_slack import image_cache_bytes

Entries = tuple[LedgerEntry, ...]


def measured_memory(
    choice: Choice, cell: Cell, calibration: Calibration, outside: Entries, weights: Entries
) -> tuple[Entries, Entries]:
    """The entries outside and of weights, measured where the calibration tells them. Raises UsageError for a
    calibration of another engine or another number of ranks."""
    start = calibration.settings
    if not isinstance(start, SglangSettings):
        raise UsageError("the calibration is of another engine")
    if (start.tp_size, start.pp_size) != (choice.settings.tp_size, choice.settings.pp_size):
        raise UsageError(
            f"the calibration is of tp {start.tp_size} and pp {start.pp_size}", hint="plan for the same ranks"
        )
    pre_bytes = calibration.available_before_weights_bytes
    if pre_bytes is None and calibration.tokens_per_frac is not None:
        pre_bytes = round(calibration.tokens_per_frac * cell.counted)
    if pre_bytes is not None:
        outside = (
            _measured("driver, context and communication", choice.device_bytes - pre_bytes, "outside", calibration),
        )
    else:
        pre_bytes = choice.device_bytes - sum(entry.num_bytes for entry in outside)
    fraction, tokens = start.mem_fraction_static, calibration.kv_pool_tokens
    has_pages = start.page_size * start.dcp_size > 1 or choice.v4 is not None
    is_plain = not (choice.is_post_capture or cell.fixed or start.max_total_tokens or has_pages)
    if fraction is not None and tokens is not None and is_plain and _has_same_cell(choice, start):
        loaded = round(pre_bytes * fraction - (tokens + 0.5) * cell.counted) - image_cache_bytes(choice)
        return outside, (_measured("weights as loaded", loaded, "weights", calibration),)
    if calibration.available_after_weights_bytes is not None:
        loaded = pre_bytes - calibration.available_after_weights_bytes
        later = tuple(entry for entry in weights if entry.name.startswith("draft"))
        return outside, (_measured("weights as loaded", loaded, "weights", calibration), *later)
    return outside, weights


def unexplained_entry(calibration: Calibration, foreseen_reserve_bytes: int) -> LedgerEntry:
    """What the measured start used beyond the ledger, or less than it."""
    assert calibration.reserve_bytes is not None
    return LedgerEntry(
        name="unexplained at the measured start",
        num_bytes=foreseen_reserve_bytes - calibration.reserve_bytes,
        place="slack",
        certainty="measured",
        source=f"{calibration.source}: free once it was up, against the entries above",
        error_bytes=2**27,
    )


def _has_same_cell(choice: Choice, start: SglangSettings) -> bool:
    now = choice.settings
    return (
        start.kv_cache_dtype, start.speculative_algorithm, start.dp_size, start.enable_dp_attention, start.dcp_size,
    ) == (
        now.kv_cache_dtype, now.speculative_algorithm, now.dp_size, now.enable_dp_attention, now.dcp_size,
    )  # fmt: skip


def _measured(name: str, num_bytes: int, place: str, calibration: Calibration) -> LedgerEntry:
    return LedgerEntry(
        name=name,
        num_bytes=num_bytes,
        place="outside" if place == "outside" else "weights",
        certainty="measured",
        source=calibration.source,
    )
