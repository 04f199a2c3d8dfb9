"""llama.cpp's caches: cells, layers and bytes, as its log prints them.

Source: llama.cpp of October 2026, src/llama-context.cpp (padding of the context), llama-model.cpp (create_memory: the
cache of each architecture), llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-kv-cache-dsa.cpp,
llama-memory-recurrent.cpp; tools/server/server.cpp (slots of its own choice). A stream is a slot's own part of a
cache; unified, all slots share one. DeepSeek-V4's caches are in `llamacpp_v4`. Left out: MiniMax-M3's, and that of a
drafter.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from deepdraft.cost.kv_dtype import FLOAT32, KvDtype, kv_dtype
from deepdraft.cost.kv_family import Family, Grouped, Index, KvFormat, Latent, Recurrent
from deepdraft.errors import UsageError
from deepdraft.planner.llamacpp_line import CacheKind, LlamacppCache, padded
from deepdraft.planner.llamacpp_v4 import v4_caches
from deepdraft.planner.settings import LlamacppSettings
from deepdraft.planner.shape import Shape
from deepdraft.planner.v4_layers import v4_layers

_AUTO_SLOTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamacppKv:
    """All caches of a context, and the sizes it works with."""

    n_ctx: int
    """Padded; the whole pool."""
    n_ctx_seq: int
    """What one slot may use: all of the pool where it is unified."""
    num_slots: int
    is_unified: bool
    caches: tuple[LlamacppCache, ...]
    is_shared: bool
    """Whether all slots use the same cells: unified, and not DeepSeek-V4."""

    @property
    def num_tokens(self) -> int:
        """Tokens that all slots may hold together."""
        return self.n_ctx if self.is_shared else self.n_ctx_seq * self.num_slots

    @property
    def num_bytes(self) -> int:
        """Of all caches."""
        return sum(cache.num_bytes for cache in self.caches)


def llamacpp_kv(shape: Shape, settings: LlamacppSettings) -> LlamacppKv:
    """The caches that these flags make for a model of that shape.

    Raises UsageError for a model without a context limit where none is asked for, for caches not known here, and for
    a quantised value cache without flash attention, as the engine does.
    """
    asked_len = settings.ctx_size or shape.max_context_len
    if not asked_len:
        raise UsageError(f"the context limit of {shape.name} is not known", hint="give --ctx-size")
    num_slots = settings.parallel or _AUTO_SLOTS
    is_unified = settings.parallel is None if settings.kv_unified is None else settings.kv_unified
    n_ctx = padded(asked_len)
    n_ctx_seq = n_ctx
    if not is_unified:
        n_ctx_seq = padded(n_ctx // num_slots)
        n_ctx = n_ctx_seq * num_slots
    form = KvFormat(key=kv_dtype(settings.cache_type_k), value=kv_dtype(settings.cache_type_v), conv=FLOAT32)
    if settings.flash_attn is False and form.value.block_len > 1:
        raise UsageError(
            f"a value cache in {settings.cache_type_v} needs flash attention", hint="leave --flash-attn on"
        )
    ubatch_len = min(settings.ubatch_size, settings.batch_size, n_ctx)
    layers = v4_layers(shape.families)
    if layers is not None:
        caches = v4_caches(
            layers,
            form,
            num_cells=n_ctx_seq,
            num_slots=num_slots,
            ubatch_len=ubatch_len,
            swa_full=settings.swa_full,
        )
    else:
        caches = _caches(
            shape.families,
            form,
            num_cells=n_ctx_seq,
            num_slots=num_slots,
            is_unified=is_unified,
            ubatch_len=ubatch_len,
            swa_full=settings.swa_full,
            flash_attn=settings.flash_attn is not False,
        )
    return LlamacppKv(
        n_ctx=n_ctx,
        n_ctx_seq=n_ctx_seq,
        num_slots=num_slots,
        is_unified=is_unified,
        caches=caches,
        is_shared=is_unified and layers is None,
    )


def _caches(
    families: Sequence[Family],
    form: KvFormat,
    *,
    num_cells: int,
    num_slots: int,
    is_unified: bool,
    ubatch_len: int,
    swa_full: bool,
    flash_attn: bool,
) -> tuple[LlamacppCache, ...]:
    """One for each kind of layer that the model has. Families of one kind share a cache."""
    num_streams = 1 if is_unified else num_slots
    # Without flash attention values lie transposed, in rows as wide as the widest layer's.
    widest = 0 if flash_attn else max((_value_width(each) for each in families), default=0)
    of_kind: dict[CacheKind, list[Family]] = {}
    for each in families:
        of_kind.setdefault(_kind(each), []).append(each)
    caches = []
    for kind, members in of_kind.items():
        if kind == "state":
            caches.append(_states(members, form, num_slots))
            continue
        cells = num_cells
        if kind == "window" and not swa_full:
            window = max(each.window or 0 for each in members)
            cells = padded(min(num_cells, window * (num_slots if is_unified else 1) + ubatch_len))
        rows = cells * num_streams
        caches.append(
            LlamacppCache(
                kind=kind,
                num_cells=cells,
                num_streams=num_streams,
                num_layers=sum(each.num_layers for each in members),
                key_bytes=rows * sum(each.num_layers * form.key.row_bytes(_key_width(each)) for each in members),
                value_bytes=rows * sum(each.num_layers * _value_bytes(each, form.value, widest) for each in members),
            )
        )
    return tuple(caches)


def _kind(family: Family) -> CacheKind:
    if isinstance(family, Recurrent):
        return "state"
    if family.stride != 1 or not isinstance(family, Grouped | Latent | Index):
        raise UsageError("the cache's rows stand for several tokens, in a layout that is not known here")
    if isinstance(family, Index):
        if not family.has_scales:
            raise UsageError(
                "the model keeps an index beside its keys (MiniMax-M3): llama.cpp's layout is not known here"
            )
        return "index"
    return "full" if family.window is None else "window"


def _key_width(family: Family) -> int:
    match family:
        case Grouped():
            return family.num_kv_heads * family.key_dim
        case Latent():
            return family.kv_lora_rank + family.qk_rope_head_dim
        case Index():
            return family.dim
        case _:
            return 0


def _value_width(family: Family) -> int:
    return family.num_kv_heads * family.value_dim if isinstance(family, Grouped) else 0


def _value_bytes(family: Family, dtype: KvDtype, widest: int) -> int:
    """Of one layer's row; latent rows hold their values, and an index has none."""
    width = _value_width(family)
    return dtype.row_bytes(max(width, widest)) if width else 0


def _states(members: Iterable[Family], form: KvFormat, num_slots: int) -> LlamacppCache:
    """float32, a row a slot."""
    recurrent = [each for each in members if isinstance(each, Recurrent)]
    conv = sum(each.num_layers * FLOAT32.row_bytes(each.conv_elements) for each in recurrent)
    state = sum(each.num_layers * FLOAT32.row_bytes(each.state_elements) for each in recurrent)
    return LlamacppCache(
        kind="state",
        num_cells=num_slots,
        num_streams=1,
        num_layers=sum(each.num_layers for each in recurrent),
        key_bytes=num_slots * conv,
        value_bytes=num_slots * state,
    )
