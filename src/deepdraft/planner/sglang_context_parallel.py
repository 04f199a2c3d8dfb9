"""Decode context parallelism in SGLang 0.5.23: ranks share a sequence's tokens, so a pool holds so many times more.

Latent rows go to one of `dcp_size` ranks. KV heads are shared out over tp / dcp ranks only. An index and a drafter's
rows stay on every rank. The log's max_total_num_tokens counts the tokens of all. Source:
model_executor/pool_configurator.py (DefaultPoolConfigurator), mem_cache/kv_cache_configurator.py
(logical_token_capacity) and configs/model_config.py (get_num_kv_heads) of 0.5.23. Left out: models with windows,
whose pools do not widen, and with states.
"""

from __future__ import annotations

from deepdraft.cost.kv_family import Family, Grouped, Index, KvFormat, Latent
from deepdraft.errors import UsageError
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_fraction import Version
from deepdraft.planner.shape import Model


def check_context_parallel(version: Version, model: Model, settings: SglangSettings) -> None:
    """Raise UsageError where ranks can't share a sequence, or what they keep of it is not known here."""
    if settings.dcp_size == 1:
        return
    if version != "0.5.23":
        raise UsageError("--dcp-size is known here of SGLang 0.5.23", hint="--engine-version 0.5.23")
    num_ranks = settings.tp_size // (settings.dp_size if settings.enable_dp_attention else 1)
    if num_ranks % settings.dcp_size:
        raise UsageError(f"--dcp-size {settings.dcp_size} does not divide the {num_ranks} ranks of attention")
    if any(
        not isinstance(each, Grouped | Latent | Index) or each.window is not None for each in model.shape.families
    ):
        raise UsageError("--dcp-size with windows, states or compressed rows is not known here")


def shared_row_bytes(family: Family, form: KvFormat, *, tp_size: int, dcp_size: int) -> float:
    """One token's rows on a rank, as its share of a token that `dcp_size` ranks hold together."""
    if isinstance(family, Grouped):
        return family.row_bytes(form, max(tp_size // dcp_size, 1)) / dcp_size
    rows = family.row_bytes(form, tp_size)
    return rows if isinstance(family, Index) else rows / dcp_size
