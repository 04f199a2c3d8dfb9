"""What is gone of a GPU's memory before an engine counts, and what weights take besides their stored bytes.

Estimates from public start-up logs of SGLang: the driver's total less "Load weight begin. avail mem".

    RTX PRO 6000, 4 ranks over PCIe   1.19 GiB, and 0.39 GiB for communication   (sgl-project/sglang issue 40558)
    RTX 4090, 2 ranks over PCIe       0.26 GiB for communication                 (issue 16920)
    H200, 8 ranks over NVLink         1.04 to 1.10 GiB, and 1.9 to 2.0 GiB       (pull request 11716, issue 6017)
"""

from __future__ import annotations

from deepdraft.cost.device import Device
from deepdraft.planner.ledger import LedgerEntry
from deepdraft.planner.shape import Shape, Weights

GIB = 2**30
_CONTEXT_BYTES = round(1.15 * GIB)
_CONTEXT_ERROR_BYTES = round(0.15 * GIB)
_PCIE_BASE_BYTES, _PCIE_RANK_BYTES = round(0.13 * GIB), round(0.065 * GIB)
_LINK_RANK_BYTES = round(0.25 * GIB)
_LOADER_FRAC = 0.01


def outside_entries(device: Device, num_ranks: int) -> tuple[LedgerEntry, ...]:
    """Driver, context and communication."""
    context = LedgerEntry(
        name="driver and context",
        num_bytes=_CONTEXT_BYTES,
        place="outside",
        certainty="estimate",
        source="1.04 to 1.19 GiB in public logs of H200 and RTX PRO 6000",
        error_bytes=_CONTEXT_ERROR_BYTES,
    )
    if num_ranks == 1:
        return (context,)
    if device.has_fast_link:
        num_bytes, words = _LINK_RANK_BYTES * num_ranks, "0.25 GiB a rank: 2.0 GiB seen with 8 ranks over NVLink"
    else:
        num_bytes = _PCIE_BASE_BYTES + _PCIE_RANK_BYTES * num_ranks
        words = "0.13 GiB + 0.065 GiB a rank: 0.26 and 0.39 GiB seen with 2 and 4 ranks over PCIe"
    communication = LedgerEntry(
        name="communication (NCCL)",
        num_bytes=num_bytes,
        place="outside",
        certainty="estimate",
        source=words,
        error_bytes=round(0.3 * num_bytes),
    )
    return context, communication


def weight_entries(
    shape: Shape, weights: Weights, *, tp_size: int, pp_size: int, name: str = "weights"
) -> tuple[LedgerEntry, ...]:
    """The rank's stored bytes and what loading adds."""
    num_bytes = weights.rank_bytes(tp_size, pp_size)
    stored = LedgerEntry(
        name=name,
        num_bytes=num_bytes,
        place="weights",
        certainty="exact" if weights.is_exact else "formula",
        source=f"{weights.source}; {weights.replicated_bytes / GIB:.2f} GiB of it on every rank, the rest shared by "
        f"{tp_size}",
    )
    loader = LedgerEntry(
        name=f"{name}: rounding and workspaces of the loader",
        num_bytes=round(_LOADER_FRAC * num_bytes),
        place="weights",
        certainty="estimate",
        source="1 % of the stored bytes: repacked layouts, allocator blocks; 0.5 to 2 % seen",
        error_bytes=round(_LOADER_FRAC * num_bytes),
    )
    return stored, loader


def absorbed_entry(shape: Shape, *, tp_size: int, pp_size: int) -> tuple[LedgerEntry, ...]:
    """Copies of the latent's up-projection in the layout of absorbed attention, beside the projection itself."""
    if not shape.is_latent:
        return ()
    heads = -(-shape.num_qo_heads // tp_size)
    width = (shape.qk_nope_head_dim or 0) + (shape.v_head_dim or 0)
    num_layers = sum(each.num_layers for each in shape.families if hasattr(each, "kv_lora_rank"))
    return (
        LedgerEntry(
            name="absorbed latent projections",
            num_bytes=num_layers * heads * width * (shape.kv_lora_rank or 0) * 2 // pp_size,
            place="weights",
            certainty="formula",
            source="layers x heads of a rank x (nope + value) x kv_lora_rank x 2 (w_kc and w_vc of deepseek_v2.py)",
        ),
    )
