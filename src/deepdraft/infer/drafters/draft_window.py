"""Which of the context a draft pass sees: the first tokens (the sink) and the last ones (the window).

A drafter learned on short contexts drafts worse the farther back it looks (DFlash, arXiv 2602.06036, table 4), and
reading all of a long context each round costs more than the draft saves. Nothing is copied and no position changes:
the pass is given a shorter list of pages, so both lengths are rounded up to whole pages.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass

from deepdraft.cost.kv import num_pages
from deepdraft.errors import UsageError
from deepdraft.infer.kv.page_table import PageTable


@dataclass(frozen=True, slots=True)
class DraftWindow:
    """Raises UsageError for lengths without sense."""

    window_len: int | None = None
    """Tokens before the bonus token; the first of them brings its whole page. None: all."""
    sink_len: int = 0
    """Tokens from the start; the last of them brings its whole page."""

    def __post_init__(self) -> None:
        if self.window_len is not None and self.window_len < 1:
            raise UsageError(f"a draft window of {self.window_len} tokens", hint="--draft-window is 1 or more")
        if self.sink_len < 0:
            raise UsageError(f"a draft sink of {self.sink_len} tokens", hint="--draft-sink is 0 or more")
        if self.sink_len and self.window_len is None:
            raise UsageError("a draft sink without a draft window", hint="add --draft-window, or leave the sink out")

    def seen(self, table: PageTable, scratch_len: int) -> tuple[array[int], int]:
        """The pages a draft pass lists for a request, and the tokens in them: of its context what is seen, and the
        `scratch_len` rows behind it."""
        num_tokens = table.num_tokens + scratch_len
        first = 0 if self.window_len is None else max(0, table.num_tokens - self.window_len) // table.page_size
        num_sink_pages = num_pages(self.sink_len, table.page_size)
        last = num_pages(num_tokens, table.page_size)
        if first <= num_sink_pages:
            return table.pages[:last], num_tokens
        num_skipped = (first - num_sink_pages) * table.page_size
        return table.pages[:num_sink_pages] + table.pages[first:last], num_tokens - num_skipped
