"""vLLM's settings with its own choices in place of those that were left open.

Sources, of vLLM 0.32.0: engine/arg_utils.py (defaults by device), config/cache.py, config/vllm.py
(max_concurrent_batches).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepdraft.cost.device import Device
from deepdraft.cost.kv_dtype import kv_dtype
from deepdraft.cost.kv_family import Family, Grouped, Index, KvFormat, Latent
from deepdraft.errors import UsageError
from deepdraft.planner.settings import VllmSettings
from deepdraft.planner.shape import Drafter, Model
from deepdraft.planner.size import GIB
from deepdraft.planner.v4_layers import V4Layers, v4_layers
from deepdraft.planner.vllm_blocks import DEFAULT_BLOCK_LEN, BlockLayout, block_layout
from deepdraft.planner.vllm_v4 import BLOCK_LEN, KV_CACHE_DTYPE, check_v4_drafter, check_v4_dtype, v4_layout

_DEFAULT_UTILIZATION = 0.92


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmChoice:
    """One deployment, nothing left open."""

    model: Model
    device: Device
    device_bytes: int
    settings: VllmSettings
    utilization: float
    num_batched: int
    """max_num_batched_tokens: a prefill's chunk."""
    num_seqs: int
    max_len: int
    """max_model_len."""
    kv_cache_dtype: str
    layout: BlockLayout

    @property
    def drafter(self) -> Drafter | None:
        """None where nothing drafts."""
        return _drafter(self.model, self.settings)

    @property
    def families(self) -> tuple[Family, ...]:
        """Target's and drafter's."""
        return _families(self.model, self.settings)

    @property
    def v4(self) -> V4Layers | None:
        """DeepSeek-V4's layers, a drafter's windows among them; None for every other model."""
        return v4_layers(self.families)

    @property
    def form(self) -> KvFormat:
        """How the cache is stored."""
        return _form(self.model, self.kv_cache_dtype)

    @property
    def num_ranks(self) -> int:
        """Devices that talk to each other."""
        settings = self.settings
        return settings.tensor_parallel_size * settings.pipeline_parallel_size * settings.data_parallel_size

    @property
    def effective(self) -> Mapping[str, Any]:
        """By vLLM's own names."""
        return {
            "gpu_memory_utilization": self.utilization,
            "max_num_batched_tokens": self.num_batched,
            "max_num_seqs": self.num_seqs,
            "block_size": self.layout.block_len,
            "max_model_len": self.max_len,
            "kv_cache_dtype": self.kv_cache_dtype,
        }


def vllm_choice(model: Model, device: Device, settings: VllmSettings) -> VllmChoice:
    """What takes effect. Raises UsageError for a device without a stated memory, a model without a context limit, a
    fraction that is none, speculation without a drafter, and caches that vLLM can't put into one pool or not keep in
    the type asked for."""
    if device.memory_bytes is None:
        raise UsageError(f"the memory of {device.name} is not known", hint="give memory=96GB among its figures")
    max_len = settings.max_model_len or model.shape.max_context_len
    if not max_len:
        raise UsageError(f"the context limit of {model.shape.name} is not known", hint="give --max-model-len")
    utilization = _DEFAULT_UTILIZATION if settings.gpu_memory_utilization is None else settings.gpu_memory_utilization
    if not 0 < utilization <= 1:
        raise UsageError(f"--gpu-memory-utilization must be above 0 and at most 1: {utilization:g}")
    if settings.num_speculative_tokens and model.drafter is None:
        raise UsageError("speculation without a drafter", hint="name one with --drafter")
    _check_context_parallel(model, settings)
    device_bytes = int(device.memory_bytes)
    default_batched, default_seqs = _default_batch(device_bytes, device.name)
    num_batched = settings.max_num_batched_tokens or default_batched
    stored = _stored(model, settings.kv_cache_dtype)
    return VllmChoice(
        model=model,
        device=device,
        device_bytes=device_bytes,
        settings=settings,
        utilization=utilization,
        num_batched=num_batched,
        num_seqs=settings.max_num_seqs or min(default_seqs, num_batched),
        max_len=max_len,
        kv_cache_dtype=stored,
        layout=_layout(model, settings, num_batched, _form(model, stored)),
    )


def _default_batch(device_bytes: int, device_name: str) -> tuple[int, int]:
    """max_num_batched_tokens and max_num_seqs of a server."""
    if device_bytes >= 160 * GIB:
        return 16384, 1024
    if device_bytes >= 70 * GIB and "a100" not in device_name.lower():
        return 8192, 1024
    return 2048, 256


def _check_context_parallel(model: Model, settings: VllmSettings) -> None:
    """As config/parallel.py and config/model.py do; windows, states and drafters beside it are not known here."""
    dcp_size, tp_size = settings.decode_context_parallel_size, settings.tensor_parallel_size
    if dcp_size == 1:
        return
    families = _families(model, settings)
    most = tp_size // max((each.num_kv_heads for each in families if isinstance(each, Grouped)), default=1)
    if dcp_size < 1 or tp_size % dcp_size or dcp_size > most:
        raise UsageError(
            f"--decode-context-parallel-size {dcp_size} does not fit {tp_size} ranks",
            hint=f"a divisor, at most {most}",
        )
    is_plain = all(isinstance(each, Grouped | Latent | Index) and each.window is None for each in families)
    if not is_plain or _drafter(model, settings) is not None:
        raise UsageError("--decode-context-parallel-size with windows, states or a drafter is not known here")


def _stored(model: Model, asked: str) -> str:
    """The cache's type in effect."""
    if v4_layers(model.shape.families) is not None:
        check_v4_dtype(asked)
        return KV_CACHE_DTYPE
    return (model.shape.kv_cache_dtype or model.shape.dtype) if asked == "auto" else asked


def _layout(model: Model, settings: VllmSettings, num_batched: int, form: KvFormat) -> BlockLayout:
    pp_size = settings.pipeline_parallel_size
    num_batches = 2 if pp_size == 1 else pp_size  # asynchronous scheduling keeps one batch ahead; each stage has one
    families = _families(model, settings)
    layers = v4_layers(families)
    if layers is not None:
        check_v4_drafter(families)
        return v4_layout(
            layers,
            pp_size=pp_size,
            block_len=settings.block_size or BLOCK_LEN,
            in_flight_len=(pp_size + 1) * num_batched,
            num_draft=settings.num_speculative_tokens or 0,
        )
    return block_layout(
        families,
        form,
        tp_size=settings.tensor_parallel_size,
        pp_size=pp_size,
        block_len=settings.block_size or DEFAULT_BLOCK_LEN,
        in_flight_len=num_batches * num_batched,
        num_draft=settings.num_speculative_tokens or 0,
        has_chunks=model.shape.model_type.startswith("llama4"),
        dcp_size=settings.decode_context_parallel_size,
    )


def _form(model: Model, stored: str) -> KvFormat:
    """Recurrent states as the model asks (mamba_ssm_dtype); a convolution's window as activations are."""
    by_dtype = KvFormat.of(kv_dtype(stored))
    return KvFormat(
        key=by_dtype.key,
        value=by_dtype.value,
        state=kv_dtype(model.shape.state_dtype),
        conv=kv_dtype(model.shape.dtype),
        has_sparse_fp8_rows=by_dtype.has_sparse_fp8_rows,
    )


def _drafter(model: Model, settings: VllmSettings) -> Drafter | None:
    return model.drafter if settings.num_speculative_tokens else None


def _families(model: Model, settings: VllmSettings) -> tuple[Family, ...]:
    drafter = _drafter(model, settings)
    return (*model.shape.families, *(drafter.shape.families if drafter is not None else ()))
