"""The page pool: one tensor per layer over all pages, and which pages are free.

Memory is not touched before it is written: on a CPU a page costs nothing until its first token, so the rows of pages
never written hold anything, NaN too, and nobody may read beyond a request's tokens.

Free pages are a map of one byte per page, searched by `bytearray.find`: a search over 200,000 pages takes at most a
few tenths of a millisecond however fragmented the pool is, nothing has to be merged when pages come back, and a page
freed twice is seen at once.

Shape letters: S slots (pages x page size), T tokens, Hk key/value heads, Dk and Dv widths of a key and a value.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deepdraft.infer.errors import LawBroken, PoolExhausted
from deepdraft.infer.kernels.plan import LayerKv
from deepdraft.infer.kv.layout import KvLayout, LayerShape

_FREE = b"\x01"
_HELD = b"\x00"


class PagePool:
    """All the KV memory there is. Raises ValueError for fewer than one page."""

    def __init__(
        self,
        layout: KvLayout,
        num_pages: int,
        device: torch.device | None = None,
        *,
        has_scratch_page: bool | None = None,
    ) -> None:
        """has_scratch_page: one page more, which is never given away and never counted, for rows that nobody reads
        (`pass_graphs`); None: on a CUDA device."""
        if num_pages < 1:
            raise ValueError(f"a pool of {num_pages} pages")
        self.layout = layout
        self.device = device or torch.device("cpu")
        self._num_pages = num_pages
        has_scratch_page = self.device.type == "cuda" if has_scratch_page is None else has_scratch_page
        self.scratch_slot = num_pages * layout.page_size if has_scratch_page else None
        """May be written by anybody at any time; None: there is none."""
        num_slots = (num_pages + has_scratch_page) * layout.page_size
        self._layers = tuple(_empty_layer(shape, num_slots, layout.dtype, self.device) for shape in layout.layers)
        self._free = bytearray(_FREE * num_pages)
        self._num_free_pages = num_pages

    @property
    def page_size(self) -> int:
        """Tokens in a page."""
        return self.layout.page_size

    @property
    def num_pages(self) -> int:
        """Free or not."""
        return self._num_pages

    @property
    def num_free_pages(self) -> int:
        """Pages that `allocate` can still give."""
        return self._num_free_pages

    @property
    def num_tokens(self) -> int:
        """Tokens that all pages together hold."""
        return self._num_pages * self.layout.page_size

    @property
    def num_bytes(self) -> int:
        """Of all pages; equal to num_pages x layout.bytes_per_page."""
        scratch_bytes = 0 if self.scratch_slot is None else self.layout.bytes_per_page
        return sum(tensor.nbytes for layer in self._layers for tensor in _stored(layer)) - scratch_bytes

    def layer(self, layer_index: int) -> LayerKv:
        """One layer's rows: views, not copies."""
        return self._layers[layer_index]

    def allocate(self, num_pages: int, *, after: int | None = None) -> list[int]:
        """Take pages, in ascending order, as few runs as are cheap to find: the lowest run that is long enough, else
        half as long a run, and so on. With `after`, pages that follow that one directly are taken first, so that a
        request that grows goes on where it stopped.

        Raises PoolExhausted, and takes none, when there are not as many.
        """
        if num_pages < 0:
            raise ValueError(f"{num_pages} pages wanted")
        if num_pages > self._num_free_pages:
            raise PoolExhausted(
                num_pages=num_pages, num_free_pages=self._num_free_pages, num_pool_pages=self._num_pages
            )
        pages = self._take_following(after, num_pages) if after is not None else []
        return pages + self._take_runs(num_pages - len(pages))

    def allocate_run(self, num_pages: int) -> list[int] | None:
        """Take pages that follow each other: the lowest run with room for as many again behind them, so that who
        grows goes on in place, else the lowest that is long enough. None, and none is taken, where there is none."""
        start = self._free.find(_FREE * (2 * num_pages))
        if start < 0:
            start = self._free.find(_FREE * num_pages)
        return None if start < 0 else list(self._take(start, num_pages))

    def free(self, pages: Sequence[int]) -> None:
        """Give pages back. Raises LawBroken, and frees none, when one is not of this pool, is free already, or is
        named twice."""
        free = self._free
        for count, page in enumerate(pages):
            if not 0 <= page < self._num_pages or free[page]:
                for freed in pages[:count]:
                    free[freed] = 0
                fault = (
                    "is free already" if 0 <= page < self._num_pages else f"is not of this pool ({self._num_pages})"
                )
                raise LawBroken(f"page {page} can't be freed: it {fault}")
            free[page] = 1
        self._num_free_pages += len(pages)

    def is_free(self, page: int) -> bool:
        """Whether a page is free. Raises IndexError for a page that is not of this pool."""
        if not 0 <= page < self._num_pages:
            raise IndexError(f"page {page} of {self._num_pages}")
        return bool(self._free[page])

    def write(self, layer_index: int, slots: Tensor, keys: Tensor, values: Tensor | None) -> None:
        """Store rows of one layer: slots int64 [T], all different; keys [T, Hk, Dk]; values [T, Hk, Dv], or None
        where the layer is latent and `keys` are its rows. Rows are converted to the pool's dtype.

        Raises ValueError where values are missing, or given to a latent layer.
        """
        layer = self._layers[layer_index]
        if (values is None) != layer.is_latent:
            raise ValueError("a latent layer stores keys alone, any other keys and values")
        layer.keys.index_copy_(0, slots, keys.to(layer.keys.dtype))
        if values is not None:
            layer.values.index_copy_(0, slots, values.to(layer.values.dtype))

    def move(self, source_slots: Tensor, target_slots: Tensor) -> None:
        """Copy the rows of `source_slots` to `target_slots`, both int64 [T], targets all different, in every layer.
        All rows are read before one is written, so the two may overlap. Which pages are free does not change."""
        for layer in self._layers:
            for tensor in _stored(layer):
                tensor.index_copy_(0, target_slots, tensor.index_select(0, source_slots))

    def move_pages(self, source: Sequence[int], target: Sequence[int]) -> None:
        """Copy whole pages, as `move` does rows."""
        within = torch.arange(self.page_size, device=self.device)
        slots = (
            torch.tensor(pages, device=self.device)[:, None] * self.page_size + within for pages in (source, target)
        )
        self.move(*(by_page.reshape(-1) for by_page in slots))

    def check(self) -> None:
        """Raises LawBroken where the count of free pages or the tensors' size is not what it should be."""
        if self._free.count(_FREE) != self._num_free_pages:
            raise LawBroken(f"{self._free.count(_FREE)} pages are free, {self._num_free_pages} are counted")
        if len(self._free) != self._num_pages:
            raise LawBroken(f"the map has {len(self._free)} pages, the pool {self._num_pages}")
        if self.num_bytes != self._num_pages * self.layout.bytes_per_page:
            raise LawBroken(
                f"the pool has {self.num_bytes} bytes, its layout says {self.layout.bytes_per_page} a page"
            )

    def _take_following(self, page: int, num_pages: int) -> list[int]:
        start = page + 1
        held_at = self._free.find(_HELD, start, start + num_pages)
        stop = min(start + num_pages, self._num_pages) if held_at < 0 else held_at
        return list(self._take(start, max(0, stop - start)))

    def _take_runs(self, num_pages: int) -> list[int]:
        pages: list[int] = []
        run_len, searched = num_pages, 0
        while missing := num_pages - len(pages):
            run_len = min(run_len, missing)
            start = self._free.find(_FREE * run_len, searched)
            if start < 0:
                run_len, searched = (run_len + 1) // 2, 0
            else:
                pages.extend(self._take(start, run_len))
                searched = start + run_len
        pages.sort()
        return pages

    def _take(self, start: int, num_pages: int) -> range:
        self._free[start : start + num_pages] = _HELD * num_pages
        self._num_free_pages -= num_pages
        return range(start, start + num_pages)


def _empty_layer(shape: LayerShape, num_slots: int, dtype: torch.dtype, device: torch.device) -> LayerKv:
    keys = torch.empty(num_slots, shape.num_kv_heads, shape.key_dim, dtype=dtype, device=device)
    if shape.is_latent:
        return LayerKv(keys, keys[..., : shape.value_dim], is_latent=True)
    values = torch.empty(num_slots, shape.num_kv_heads, shape.value_dim, dtype=dtype, device=device)
    return LayerKv(keys, values, is_latent=False)


def _stored(layer: LayerKv) -> tuple[Tensor, ...]:
    """The tensors that hold memory of their own."""
    return (layer.keys,) if layer.is_latent else (layer.keys, layer.values)
