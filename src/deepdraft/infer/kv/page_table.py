"""Where one request's tokens are in the pool: its pages in the order of its tokens.

Position p is in slot pages[p // page_size] * page_size + p % page_size. Who owns a page (the request, or the radix
cache that it shares it with) is not told here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from deepdraft.cost.kv import num_pages


@dataclass(slots=True, eq=False)
class PageTable:
    """One request's pages, and how many tokens of it the pool holds."""

    page_size: int
    pages: list[int] = field(default_factory=list)
    num_tokens: int = 0
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

    def slots(self, start: int, stop: int, *, device: torch.device | None = None) -> Tensor:
        """The slots of positions start, start + 1, ... stop - 1: int64 [stop - start], on the CPU where no device is
        named. Raises ValueError where no page is there for one of them."""
        self._check(start, stop)
        first = start // self.page_size
        pages = torch.tensor(self.pages[first : num_pages(stop, self.page_size)], dtype=torch.int64)
        slots = (pages[:, None] * self.page_size + torch.arange(self.page_size)).reshape(-1)
        skipped = start - first * self.page_size
        return slots[skipped : skipped + stop - start].to(device=device)

    def _check(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= self.capacity:
            raise ValueError(f"positions {start}:{stop} of a page table with room for {self.capacity}")
