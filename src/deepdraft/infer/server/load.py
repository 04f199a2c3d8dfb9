"""From the flags to a `Service`: opens the model, sizes the pool, builds the engine. The only module here that needs
torch."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from deepdraft.cost.kv import pool_bytes
from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.checkpoint import Checkpoint
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.control.decision import SpeculationMode
from deepdraft.infer.drafters.dflash import DflashDrafter
from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.drafters.open import open_drafter
from deepdraft.infer.engine import Engine
from deepdraft.infer.kernels.select import AUTO, attention_backend, fallback_notice
from deepdraft.infer.kv.layout import LayerShape, kv_layout
from deepdraft.infer.memory import available_bytes
from deepdraft.infer.models.load import load_model
from deepdraft.infer.models.model import Model
from deepdraft.infer.pool_size import context_limit, kv_pool_tokens
from deepdraft.infer.server.metrics import Metrics
from deepdraft.infer.server.service import ServerFacts, Service
from deepdraft.infer.server.settings import EMBEDDED, ServeSettings
from deepdraft.infer.server.worker import EngineWorker
from deepdraft.infer.settings import (
    DEFAULT_CHUNK_LEN,
    DEFAULT_MAX_RUNNING_REQUESTS,
    DEFAULT_PAGE_SIZE,
    DEFAULT_TREE_BUDGET,
    DEFAULT_TREE_TOP_K,
    EngineSettings,
    SpeculationSettings,
)
from deepdraft.version import VERSION

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_DEVICE = torch.device("cpu")


def load_service(settings: ServeSettings) -> Service:
    """Load the model and allocate the pool. Raises UsageError for what can't be served."""
    num_threads = settings.num_threads or max(1, len(os.sched_getaffinity(0)) - 1)
    torch.set_num_threads(num_threads)
    path = embedded_model_path() if settings.model == EMBEDDED else Path(settings.model)
    checkpoint = open_checkpoint(path)
    max_context_len = context_limit(checkpoint.config, settings.max_context_len)
    tokenizer = checkpoint.tokenizer()
    dtype = _dtype(settings.dtype)
    model = load_model(checkpoint, dtype=dtype, device=_DEVICE, attention=settings.attention_backend)
    drafter = _drafter(settings, model)
    speculation = _speculation(settings)
    layers = () if drafter is None else drafter.kv_layers
    engine_settings = _engine_settings(settings, checkpoint, max_context_len, layers)
    engine = Engine(model, tokenizer, engine_settings, drafter, speculation)
    metrics = Metrics(has_drafter=drafter is not None)
    worker = EngineWorker(
        engine,
        metrics,
        max_running_requests=engine.settings.max_running_requests,
        max_queued_requests=settings.max_queued_requests,
    )
    own_name = EMBEDDED if settings.model == EMBEDDED else checkpoint.name
    names = settings.served_model_names or (own_name,)
    facts = ServerFacts(
        model_names=names,
        max_context_len=max_context_len,
        kv_pool_tokens=engine.settings.kv_pool_tokens,
        vocab_size=checkpoint.config.vocab_size,
        created_s=int(time.time()),
        settings={
            **_shown(settings, checkpoint, engine, path, names[0], num_threads),
            "speculation": None if drafter is None else _shown_drafting(settings, drafter, speculation, engine),
        },
    )
    return Service(
        worker=worker, tokenizer=tokenizer, metrics=metrics, facts=facts, max_body_bytes=settings.max_body_bytes
    )


def _drafter(settings: ServeSettings, model: Model) -> Drafter | None:
    """None for --drafter none. Raises UsageError as `open_drafter` does, and for a window below the draft block."""
    drafter = open_drafter(
        settings.drafter, model, draft_window=settings.draft_window, draft_sink=settings.draft_sink
    )
    if drafter is not None and settings.draft_window is not None and settings.draft_window < drafter.scratch_len:
        raise UsageError(
            f"--draft-window {settings.draft_window} is shorter than the drafter's block of {drafter.scratch_len}",
            hint="give it several blocks, like 512",
        )
    return drafter


def _speculation(settings: ServeSettings) -> SpeculationSettings:
    usual_mode: SpeculationMode = "auto" if settings.simulate_acceptance_len is None else "always"
    return SpeculationSettings(
        mode=settings.speculation or usual_mode,
        tree_budget=settings.tree_budget or DEFAULT_TREE_BUDGET,
        tree_top_k=settings.tree_top_k or DEFAULT_TREE_TOP_K,
        is_spine_first=settings.is_spine_first,
        simulate_acceptance_len=settings.simulate_acceptance_len,
    )


def _engine_settings(
    settings: ServeSettings, checkpoint: Checkpoint, max_context_len: int, drafter_layers: tuple[LayerShape, ...]
) -> EngineSettings:
    """The weights are loaded: what is free now is there for the pool."""
    kv_dtype = settings.dtype or "float32"
    page_size = settings.page_size or DEFAULT_PAGE_SIZE
    layout = kv_layout(checkpoint.config, page_size=page_size, dtype=DTYPES[kv_dtype], drafter_layers=drafter_layers)
    pool_tokens = kv_pool_tokens(
        layout,
        available_bytes=available_bytes(_DEVICE),
        max_context_len=max_context_len,
        mem_fraction=settings.mem_fraction,
        stated_tokens=settings.kv_pool_tokens,
    )
    return EngineSettings(
        max_context_len=max_context_len,
        kv_pool_tokens=pool_tokens,
        page_size=page_size,
        chunk_len=settings.chunk_len or DEFAULT_CHUNK_LEN,
        max_running_requests=settings.max_running_requests or DEFAULT_MAX_RUNNING_REQUESTS,
        attention_backend=attention_backend(settings.attention_backend, _DEVICE).name,
        kv_dtype=kv_dtype,
        device=str(_DEVICE),
        has_radix_cache=settings.has_radix_cache,
        is_checked=settings.is_checked,
        defragment=settings.defragment,
    )


def _dtype(name: str | None) -> torch.dtype | None:
    if name is None:
        return None
    if name not in DTYPES:
        raise UsageError(f"--dtype {name}: not one of {', '.join(DTYPES)}")
    return DTYPES[name]


def _shown(
    settings: ServeSettings, checkpoint: Checkpoint, engine: Engine, path: Path, name: str, num_threads: int
) -> Mapping[str, Any]:
    """/server_info: everything as it takes effect."""
    config, pool, effective = checkpoint.config, engine.pool, engine.settings
    bytes_per_token = pool.layout.bytes_per_token
    return {
        "engine": "deepdraft",
        "version": VERSION,
        "model": name,
        "model_path": str(path),
        "model_type": config.model_type,
        "model_notes": checkpoint.notes,
        "dtype": settings.dtype or "float32",
        "weight_dtype": config.dtype,
        "weight_bytes": checkpoint.num_bytes,
        **asdict(effective),
        "attention_note": fallback_notice(_DEVICE) if settings.attention_backend in (None, AUTO) else None,
        "kv_pool_pages": pool.num_pages,
        "kv_pool_bytes": pool.num_bytes,
        "predicted_kv_pool_bytes": pool_bytes(
            effective.kv_pool_tokens, bytes_per_token=bytes_per_token, page_size=effective.page_size
        ),
        "kv_bytes_per_token": bytes_per_token,
        "chunked_prefill_size": effective.chunk_len,
        "max_queued_requests": settings.max_queued_requests,
        "max_body_bytes": settings.max_body_bytes,
        "num_threads": num_threads,
        "versions": {"deepdraft": VERSION, "python": platform.python_version(), "torch": str(torch.__version__)},
    }


def _shown_drafting(
    settings: ServeSettings, drafter: Drafter, speculation: SpeculationSettings, engine: Engine
) -> Mapping[str, Any]:
    """/server_info's `speculation`. A null is what this drafter does not have."""
    dflash = drafter if isinstance(drafter, DflashDrafter) else None
    element_bytes = engine.pool.layout.dtype.itemsize
    return {
        "method": drafter.name,
        "mode": speculation.mode,
        "drafter": settings.drafter,
        "draft_len": drafter.draft_len,
        "block_size": dflash.block_size if dflash else None,
        "tree_budget": speculation.tree_budget,
        "tree_top_k": speculation.tree_top_k if dflash else 1,
        "spine_first": speculation.is_spine_first,
        "draft_window": dflash.window.window_len if dflash else None,
        "draft_sink": dflash.window.sink_len if dflash else None,
        "simulate_acceptance_len": speculation.simulate_acceptance_len,
        "kv_bytes_per_token": sum(layer.bytes_per_token(element_bytes) for layer in drafter.kv_layers),
    }
