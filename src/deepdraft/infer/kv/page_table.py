"""Where one request's tokens are in the pool: its pages in the order of its tokens.

Position p is in slot pages[p // page_size] * page_size + p % page_size. Who owns a page (the request, or the radix
cache that it shares it with) is not told here.

The pages are an array of int32, as attention reads them: a long context has as many as 10^5, and a plan's copy of
them costs no step of Python for each.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from deepdraft.cost.kv import num_pages


class PageTable:
    """One request's pages, and how many tokens of it the pool holds."""

    __slots__ = ("__weakref__", "num_tokens", "page_size", "pages")

    def __init__(self, page_size: int, pages: Iterable[int] = (), num_tokens: int = 0) -> None:
        self.page_size = page_size
        self.pages = array("i", pages)
        """int32; whoever changes it keeps it an array"""
        self.num_tokens = num_tokens
        """Tokens whose KV rows are written; the pages may have room for more."""

    @property
    def capacity(self) -> int:
        """Tokens that fit the pages."""
        return len(self.pages) * self.page_size

    def num_pages_to_reach(self, num_tokens: int) -> int:
        """Pages still to be allocated before the table holds `num_tokens` in all."""
        return max(0, num_pages(num_tokens, self.page_size) - len(self.pages))

    def slot(self, position: int) -> int:
        """The slot of one position. Raises ValueError where no page is there for it."""
        self._check(position, position + 1)
        return self.pages[position // self.page_size] * self.page_size + position % self.page_size

    def slot_numbers(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        """The slots of positions start, start + 1, ... stop - 1: int64 [stop - start]. Raises ValueError where no
        page is there for one of them."""
        self._check(start, stop)
        first = start // self.page_size
        pages = np.array(self.pages[first : num_pages(stop, self.page_size)], dtype=np.int64)
        slots = (pages[:, None] * self.page_size + np.arange(self.page_size)).reshape(-1)
        skipped = start - first * self.page_size
        return slots[skipped : skipped + stop - start]

    def slots(self, start: int, stop: int, *, device: torch.device | None = None) -> Tensor:
        """`slot_numbers` as a tensor, on the CPU where no device is named."""
        return torch.from_numpy(self.slot_numbers(start, stop)).to(device=device)

    def _check(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.capacity:
            raise ValueError(f"positions {start}:{stop} of a page table with room for {self.capacity}")
