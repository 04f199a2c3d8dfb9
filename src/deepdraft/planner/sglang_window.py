"""A windows' pool that SGLang 0.5.23 sizes by the running requests instead of by a ratio.

Without a radix cache nothing is kept for reuse, so no more windows live at once than requests run:

    cap   requests x (window + 128 x draft tokens + page + what a step allocates) + 2 chunks + a page, in whole pages

and the rest of the budget is the full pool's. Source: model_executor/pool_configurator.py (compute_swa_request_cap,
SWARequestCapPoolConfigurator) and mem_cache/allocation_sizing.py of 0.5.23. Left out: the scheduler without overlap,
drafts of more than one branch, SGLANG_SWA_EVICTION_INTERVAL (128), and pools for disaggregation.
"""

from __future__ import annotations

from deepdraft.cost.kv_family import Family, Grouped, Latent
from deepdraft.planner.sglang_choice import Choice

_EVICTION_INTERVAL = 128


def window_cap_tokens(choice: Choice) -> int | None:
    """Tokens of the windows' pool where the running requests cap it; None where it follows the ratio, or there is
    none."""
    families = choice.model.shape.families
    windows = [each.window for each in families if _has_window(each)]
    has_full = any(isinstance(each, Grouped | Latent) and each.window is None for each in families)
    is_capped = choice.version == "0.5.23" and choice.settings.disable_radix_cache and choice.settings.is_chunked
    if not (windows and has_full and is_capped) or choice.max_running is None:
        return None
    page_size = choice.page_size
    a_step = page_size if choice.num_draft_tokens == 1 else 2 * choice.num_draft_tokens
    a_request = max(window or 0 for window in windows) + _EVICTION_INTERVAL * choice.num_draft_tokens
    num_ranks = choice.settings.dp_size if choice.settings.enable_dp_attention else 1
    num_requests = max(choice.max_running // num_ranks, 1)
    tokens = (a_request + page_size + a_step) * num_requests + 2 * choice.chunk_len + page_size
    return -(-tokens // page_size) * page_size


def admits_a_request(choice: Choice, tokens: int) -> bool:
    """Whether the windows' pool beside `tokens` is above a window and a page, which a prefill asks for.

    0.5.23 refuses to start on one that is not. Models of windows alone have one pool.
    """
    families = choice.model.shape.families
    windows = [each.window for each in families if _has_window(each)]
    if choice.version != "0.5.23" or not windows or window_cap_tokens(choice) is not None:
        return True
    if all(each.window is not None for each in families):
        return True
    of_windows = int(tokens * choice.swa_ratio) // choice.page_size * choice.page_size
    return of_windows > max(window or 0 for window in windows) + choice.page_size


def window_token_bytes(choice: Choice) -> float:
    """One token of the windows' pool, in all its layers of a rank."""
    rows = (
        each.row_bytes(choice.form, choice.attention_tp) for each in choice.model.shape.families if _has_window(each)
    )
    return sum(rows) / choice.settings.pp_size


def _has_window(family: Family) -> bool:
    return isinstance(family, Grouped | Latent) and family.window is not None
