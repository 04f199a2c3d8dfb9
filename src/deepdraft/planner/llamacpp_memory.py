"""Where llama.cpp's memory goes: entries for the host alone, or for one device that holds layers.

Sources: src/llama-model.cpp (load_tensors: the input embedding stays on the host, the output goes with the last
layer); the process's own memory was measured (docs/experiments/planners.md).
"""

from __future__ import annotations

from deepdraft.cost.device import Device
from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.gpu_memory import outside_entries
from deepdraft.planner.ledger import Ledger, LedgerEntry
from deepdraft.planner.llamacpp_buffer import compute_entry, output_bytes
from deepdraft.planner.llamacpp_cache import LlamacppKv, llamacpp_kv
from deepdraft.planner.llamacpp_line import CacheKind
from deepdraft.planner.settings import LlamacppSettings
from deepdraft.planner.shape import Model
from deepdraft.planner.size import MIB

_PROCESS_BYTES = 42 * MIB
_TOKEN_BYTES = 480
_CACHE_NAMES: dict[CacheKind, str] = {
    "full": "KV cache",
    "window": "KV cache of layers with a window",
    "compressed": "compressed rows",
    "index": "keys of the sparse index",
    "state": "recurrent states",
}


def host_entries(model: Model, kv: LlamacppKv, settings: LlamacppSettings) -> tuple[LedgerEntry, ...]:
    """All in host memory; the file's pages count as memory once they were read."""
    vocab_bytes = model.shape.vocab_size * _TOKEN_BYTES
    process = LedgerEntry(
        name="process and vocabulary",
        num_bytes=_PROCESS_BYTES + vocab_bytes,
        place="outside",
        certainty="estimate",
        source="42 MiB and 480 bytes a token of the vocabulary, measured",
        error_bytes=(_PROCESS_BYTES + vocab_bytes) // 3,
    )
    output = LedgerEntry(
        name="output buffer",
        num_bytes=output_bytes(model.shape, kv),
        place="slack",
        certainty="formula",
        source="slots x vocabulary x 4 bytes",
    )
    entries = [process, _weights(model, 1.0, 0), *_caches(kv, 1.0), compute_entry(model.shape, kv, settings), output]
    if settings.cache_ram_mib:
        entries.append(
            LedgerEntry(
                name="prompts kept in host memory",
                num_bytes=settings.cache_ram_mib * MIB,
                place="slack",
                certainty="formula",
                source="--cache-ram, filled with use",
            )
        )
    return tuple(entries)


def device_entries(
    model: Model, device: Device | None, kv: LlamacppKv, settings: LlamacppSettings
) -> tuple[LedgerEntry, ...]:
    """One of `num_devices` that share the layers evenly."""
    if device is None:
        return ()
    share = _share(model, settings)
    # One table of embeddings stays behind, unless the output is the same table and is copied.
    embedding_bytes = min(model.shape.vocab_size * model.shape.hidden * 2, model.weights.total_bytes // 2)
    return (
        *outside_entries(device, 1),
        _weights(model, share, round(embedding_bytes * share)),
        *_caches(kv, share),
        compute_entry(model.shape, kv, settings),
    )


def unexplained_entries(
    model: Model, device: Device | None, calibration: Calibration, *, is_host: bool
) -> tuple[LedgerEntry, ...]:
    """What a start held more, or less, than is foreseen for its settings; nothing where it did not tell."""
    then = calibration.settings
    if not isinstance(then, LlamacppSettings):
        raise UsageError(f"{calibration.source} tells of another engine than llama.cpp")
    if calibration.reserve_bytes is None or device is None or device.memory_bytes is None:
        return ()
    kv = llamacpp_kv(model.shape, then)
    foreseen = host_entries(model, kv, then) if is_host else device_entries(model, device, kv, then)
    used_bytes = int(device.memory_bytes) - calibration.reserve_bytes
    return (
        LedgerEntry(
            name="unexplained at the start that was measured",
            num_bytes=used_bytes - Ledger(foreseen).total_bytes("outside", "weights", "pool", "slack"),
            place="slack",
            certainty="measured",
            source=f"{calibration.source}: what was in use, less what was foreseen",
        ),
    )


def _share(model: Model, settings: LlamacppSettings) -> float:
    """Of the repeating layers, the part that one device holds. The output counts as one layer more."""
    num_layers = model.shape.num_layers + 1
    asked = num_layers if settings.n_gpu_layers is None else min(settings.n_gpu_layers, num_layers)
    return -(-asked // settings.num_devices) / num_layers


def _weights(model: Model, share: float, error_bytes: int) -> LedgerEntry:
    return LedgerEntry(
        name="weights",
        num_bytes=round(model.weights.total_bytes * share),
        place="weights",
        certainty="exact" if model.weights.is_exact and share == 1 and not error_bytes else "formula",
        source=model.weights.source + ("" if share == 1 else f"; {share:.0%} of the layers"),
        error_bytes=error_bytes,
    )


def _caches(kv: LlamacppKv, share: float) -> list[LedgerEntry]:
    return [
        LedgerEntry(
            name=_CACHE_NAMES[cache.kind],
            num_bytes=round(cache.num_bytes * share),
            place="pool",
            certainty="formula",
            source=f"{cache.num_layers} layers, {cache.num_cells:,} cells x {cache.num_streams}",
        )
        for cache in kv.caches
    ]
