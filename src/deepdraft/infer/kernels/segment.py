"""How a request's cached tokens are read: a long run of slots as a view, shorter ones gathered page by page.

Letters as in `plan`; n tokens of a segment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from deepdraft.infer.kernels.plan import AttentionPlan, SlotRun


@dataclass(frozen=True, slots=True, eq=False)
class PageList:
    """The first num_slots slots of these pages, to be gathered."""

    pages: Tensor
    """int64"""
    page_size: int
    num_slots: int


Segment = SlotRun | PageList


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """One request's cached tokens: those that every query sees, and those that a mask is needed for."""

    prefix: tuple[Segment, ...]
    tail: Segment | None
    """The queries' own tokens; None where one query sees all."""
    mask: Tensor | None
    """float32 [t, t] of the tail: 0 where seen, else -inf; None where the tail is causal."""


def reading(plan: AttentionPlan, request: int, *, block_len: int) -> Reading:
    """How to read the request's tokens when block_len of them are to be gathered at a time."""
    query_len, kv_len, page_size = plan.query_lens[request], plan.kv_lens[request], plan.page_size
    pages = plan.page_tensor(request)
    if query_len == 1:
        return Reading(segments(pages, kv_len, page_size=page_size, block_len=block_len), None, None)
    prefix = segments(pages, kv_len - query_len, page_size=page_size, block_len=block_len)
    seen = plan.tail_masks[request]
    mask = None
    if seen is not None:
        mask = torch.zeros(seen.shape, device=plan.device).masked_fill_(~seen.to(plan.device), float("-inf"))
    return Reading(prefix, token_range(pages, kv_len - query_len, kv_len, page_size=page_size), mask)


def segments(pages: Tensor, num_tokens: int, *, page_size: int, block_len: int) -> tuple[Segment, ...]:
    """The first num_tokens tokens of a request whose pages are listed in `pages`, in order.

    Pages that follow each other and hold at least block_len tokens are one run. What lies between such runs is
    gathered, at most block_len tokens at a time (one page where a page is longer). No step is taken per page: a long
    context has as many as 10^5.
    """
    num_pages = -(-num_tokens // page_size)
    pages = pages[:num_pages]
    ends = (pages.diff() != 1).nonzero().flatten() + 1
    bounds = torch.cat([ends.new_zeros(1), ends, ends.new_full((1,), num_pages)])
    long_runs = (bounds.diff() * page_size >= block_len).nonzero().flatten()
    found: list[Segment] = []
    done = 0
    for first, stop in zip(bounds[long_runs].tolist(), bounds[long_runs + 1].tolist(), strict=True):
        found += _page_lists(pages, done, first, page_size, block_len, num_tokens)
        num_slots = min(stop * page_size, num_tokens) - first * page_size
        found.append(SlotRun(int(pages[first]) * page_size, num_slots))
        done = stop
    return (*found, *_page_lists(pages, done, num_pages, page_size, block_len, num_tokens))


def token_range(pages: Tensor, start: int, stop: int, *, page_size: int) -> Segment:
    """Tokens start .. stop - 1 of a request, as one segment; at least one."""
    first_page = start // page_size
    listed = pages[first_page : -(-stop // page_size)]
    within = start - first_page * page_size
    if bool((listed.diff() == 1).all()):
        return SlotRun(int(listed[0]) * page_size + within, stop - start)
    slots = listed.unsqueeze(1) * page_size + torch.arange(page_size, device=pages.device)
    return PageList(slots.flatten()[within : within + stop - start], 1, stop - start)


def cut(found: Iterable[Segment], block_len: int) -> Iterator[Segment]:
    """The same tokens, runs cut so that none is longer than block_len: for a reader that copies what it reads."""
    for segment in found:
        if isinstance(segment, PageList):
            yield segment
            continue
        for done in range(0, segment.num_slots, block_len):
            yield SlotRun(segment.start + done, min(block_len, segment.num_slots - done))


def read(rows: Tensor, segment: Segment) -> Tensor:
    """The segment's rows [n, ...] of a cache [S, ...]: a view of a run, a copy of listed pages."""
    if isinstance(segment, SlotRun):
        return rows[segment.start : segment.start + segment.num_slots]
    pages = rows.view(-1, segment.page_size, *rows.shape[1:])
    return pages.index_select(0, segment.pages).flatten(0, 1)[: segment.num_slots]


def _page_lists(
    pages: Tensor, first: int, stop: int, page_size: int, block_len: int, num_tokens: int
) -> Iterator[PageList]:
    """The pages first .. stop - 1, of which num_tokens ends the last."""
    pages_per_block = max(1, block_len // page_size)
    for start in range(first, stop, pages_per_block):
        end = min(start + pages_per_block, stop)
        yield PageList(pages[start:end], page_size, min(end * page_size, num_tokens) - start * page_size)
