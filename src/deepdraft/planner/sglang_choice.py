"""What SGLang chooses where a flag is not given, and the whole deployment that follows: one frozen `Choice`.

Sources: server_args.py of 0.5.12.post1, and arg_groups/{memory,cuda_graph,speculative}_hook.py and overrides.py
(`post_capture_kv_sizing_planned`) of 0.5.23.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.cost.device import Device
from deepdraft.cost.kv_dtype import FP8, kv_dtype
from deepdraft.cost.kv_family import Compressed, Grouped, Index, KvFormat, Recurrent
from deepdraft.errors import UsageError
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_context_parallel import check_context_parallel
from deepdraft.planner.sglang_fraction import Version, auto_fraction, default_chunk, default_graph_max_bs
from deepdraft.planner.sglang_v4 import PAGE_SIZE, V4Form
from deepdraft.planner.sglang_v4_choice import v4_form
from deepdraft.planner.shape import Drafter, Model

_SPECULATIVE_MAX_RUNNING = 48
_DFLASH_DRAFT_TOKENS = 16
_EAGLE_DRAFT_TOKENS = 4
_DEFAULT_WINDOW_RATIO = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A deployment with every choice made."""

    version: Version
    model: Model
    device: Device
    settings: SglangSettings
    drafter: Drafter | None
    """The one that drafts; None without speculation."""
    attention_tp: int
    """Ranks that share the attention heads."""
    form: KvFormat
    context_len: int
    chunk_len: int
    max_running: int | None
    """As given, or as speculation sets it; None: by the pool."""
    num_draft_tokens: int
    """Tokens of a request in one verify step; 1 without speculation."""
    backend: str
    graph_max_bs: int
    """0 without CUDA graphs."""
    swa_ratio: float
    mem_fraction: float
    is_post_capture: bool
    """Whether the pool is sized after graphs were captured."""
    page_size: int
    """In effect: DeepSeek-V4's is 256 whatever the flag says, and ranks that share tokens have a page each."""
    v4: V4Form | None = None
    """DeepSeek-V4's pools; None for every other model."""

    @property
    def device_bytes(self) -> int:
        """All memory of one device."""
        return int(self.device.memory_bytes or 0)

    @property
    def num_ranks(self) -> int:
        """Processes that hold the model together."""
        return self.settings.tp_size * self.settings.pp_size


def sglang_choice(version: Version, model: Model, device: Device, settings: SglangSettings) -> Choice:
    """Every choice made. Raises UsageError for flags that can't go together, and where the context limit or the
    device's memory is not known."""
    _check(settings, device)
    check_context_parallel(version, model, settings)
    shape = model.shape
    context_len = settings.context_length or shape.max_context_len
    if not context_len:
        raise UsageError(f"the config of {shape.name} has no context limit", hint="give --context-length")
    drafter = _drafter(model, settings)
    chunk_len = settings.chunked_prefill_size or default_chunk(version, device)
    attention_tp = settings.tp_size // (settings.dp_size if settings.enable_dp_attention else 1)
    is_post_capture = version == "0.5.23" and chunk_len > 0 and _is_post_capture(model, settings)
    num_draft_tokens = _num_draft_tokens(drafter, settings)
    v4 = v4_form(version, model, settings, num_draft_tokens)
    max_running = settings.max_running_requests or (_SPECULATIVE_MAX_RUNNING if drafter else None)
    if v4 is not None:
        max_running = v4.num_requests
    graph_max_bs = settings.cuda_graph_max_bs or default_graph_max_bs(version, device, settings)
    if version == "0.5.23" and settings.cuda_graph_max_bs is None:
        # Only a cap that was given: those of speculation and DeepSeek-V4 are set after the fraction was chosen.
        graph_max_bs = min(graph_max_bs, settings.max_running_requests or graph_max_bs)
    return Choice(
        version=version,
        model=model,
        device=device,
        settings=settings,
        drafter=drafter,
        attention_tp=attention_tp,
        form=_form(model, settings),
        context_len=context_len,
        chunk_len=chunk_len if chunk_len > 0 else context_len,
        max_running=max_running,
        num_draft_tokens=num_draft_tokens,
        backend="dsv4" if v4 is not None else settings.attention_backend or _default_backend(model, device),
        graph_max_bs=0 if settings.disable_cuda_graph else min(graph_max_bs, max_running or graph_max_bs),
        swa_ratio=v4.window_ratio if v4 is not None else settings.swa_full_tokens_ratio or _DEFAULT_WINDOW_RATIO,
        mem_fraction=settings.mem_fraction_static
        or auto_fraction(
            version,
            shape,
            device,
            settings,
            chunk_len=chunk_len,
            graph_max_bs=graph_max_bs,
            is_post_capture=is_post_capture,
        ),
        is_post_capture=is_post_capture,
        page_size=settings.page_size * settings.dcp_size if v4 is None else PAGE_SIZE,
        v4=v4,
    )


def num_graphs(max_bs: int, *, is_speculative: bool) -> int:
    """Batch sizes that are captured up to `max_bs`: dense for small ones, then every so manyeth."""
    if not max_bs:
        return 0
    if is_speculative:
        sizes = {*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, max_bs + 1, 16)}
    else:
        sizes = {1, 2, 4, 8, 12, *range(16, 257, 8), *range(272, 512, 16), *range(512, max_bs + 1, 32)}
    return len({size for size in sizes if size <= max_bs} | {max_bs})


def _check(settings: SglangSettings, device: Device) -> None:
    if not device.memory_bytes:
        raise UsageError("the device's memory is not known", hint="--device bandwidth=1.8TB/s,memory=96GiB")
    for name in ("tp_size", "pp_size", "dp_size", "dcp_size", "page_size"):
        if getattr(settings, name) < 1:
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1: {getattr(settings, name)}")
    fraction = settings.mem_fraction_static
    if fraction is not None and not 0 < fraction < 1:
        raise UsageError(f"--mem-fraction-static must lie between 0 and 1: {fraction}")
    if settings.enable_dp_attention and settings.tp_size % settings.dp_size:
        raise UsageError(f"--dp-size {settings.dp_size} does not divide --tp-size {settings.tp_size}")


def _drafter(model: Model, settings: SglangSettings) -> Drafter | None:
    if settings.speculative_algorithm is None:
        return None
    if settings.speculative_algorithm.upper() == "NGRAM":
        return None
    if model.drafter is None:
        raise UsageError(
            f"--speculative-algorithm {settings.speculative_algorithm} needs the drafter",
            hint="give --drafter: a checkpoint, a config.json, or mtp for the model's own prediction layers",
        )
    return model.drafter


def _num_draft_tokens(drafter: Drafter | None, settings: SglangSettings) -> int:
    if settings.speculative_algorithm is None:
        return 1
    if settings.speculative_num_draft_tokens:
        return settings.speculative_num_draft_tokens
    if drafter is not None and drafter.kind == "dflash":
        return drafter.block_size or _DFLASH_DRAFT_TOKENS
    return _EAGLE_DRAFT_TOKENS


def _default_backend(model: Model, device: Device) -> str:
    """By the device's generation, as far as its name tells it."""
    if device.name in ("H100", "H200"):
        return "fa3"
    if device.name in ("B200", "GB200", "B300"):
        return "trtllm_mla" if model.shape.is_latent else "trtllm_mha"
    if device.name.startswith("MI"):
        return "aiter"
    return "triton" if model.shape.is_latent else "flashinfer"


def _form(model: Model, settings: SglangSettings) -> KvFormat:
    shape = model.shape
    name = settings.kv_cache_dtype
    dtype = kv_dtype((shape.kv_cache_dtype or shape.dtype) if name == "auto" else name)
    if any(isinstance(each, Compressed) for each in shape.families):
        dtype = FP8
    whole = KvFormat.of(dtype)
    return KvFormat(
        key=dtype,
        value=dtype,
        state=kv_dtype(shape.state_dtype),
        conv=kv_dtype(shape.dtype),
        has_sparse_fp8_rows=whole.has_sparse_fp8_rows and not (settings.attention_backend or "").startswith("trtllm"),
    )


def _is_post_capture(model: Model, settings: SglangSettings) -> bool:
    """Only where it is switched on, with graphs. Pools of latent, compressed and block-sparse rows and of packed
    types are sized before capture as ever."""
    if not settings.post_capture_kv_sizing or settings.disable_cuda_graph:
        return False
    families = model.shape.families
    is_packed = settings.kv_cache_dtype.startswith(("fp4", "mxfp"))
    has_plain_rows = any(isinstance(each, Grouped) for each in families)
    has_others = any(not isinstance(each, Grouped | Recurrent) for each in families)
    is_block_sparse = any(isinstance(each, Index) for each in families)
    return has_plain_rows and not has_others and not is_block_sparse and not is_packed
