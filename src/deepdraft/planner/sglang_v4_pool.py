"""DeepSeek-V4 in SGLang 0.5.23: the pools that a budget makes, buffer by buffer.

Equal to the byte to what DSV4PoolConfigurator answers and DeepSeekV4TokenToKVPool allocates
(mem_cache/deepseek_v4_memory_pool.py of 0.5.23).
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.planner.ledger import LedgerEntry
from deepdraft.planner.sglang_v4 import NUM_DRAFT_LAYERS, PAGE_SIZE, V4Form

_ROWS_OF_4, _ROWS_OF_128 = PAGE_SIZE // 4, PAGE_SIZE // 128


@dataclass(frozen=True, slots=True, kw_only=True)
class V4Pool:
    """What is allocated on one rank. Tokens and rows, as the log's "DSV4 pool sizes" prints them."""

    form: V4Form
    num_tokens: int
    num_requests: int

    @property
    def window_tokens(self) -> int:
        """Of the windows' pool; without use where windows are rings."""
        return int(self.num_tokens * self.form.window_ratio) // PAGE_SIZE * PAGE_SIZE

    @property
    def holds_a_request(self) -> bool:
        """Whether the windows' pool admits any prefill; the engine refuses to start on one that does not."""
        return self.form.is_unified or self.window_tokens > self.form.layers.window + PAGE_SIZE

    @property
    def most_requests(self) -> int:
        """Requests that the windows' pool admits at once, a window and a page for each."""
        if self.form.is_unified:
            return self.num_requests
        return self.window_tokens // (self.form.layers.window + PAGE_SIZE)

    @property
    def state_rows(self) -> tuple[int, int]:
        """Of ratio 4 and of 128: c4_state and c128_state."""
        ring_4 = self.form.ring_len(4) if self.form.layers.num_4 else 0
        ring_128 = self.form.ring_len(128) if self.form.layers.num_128 else 0
        rows_4 = (self.num_requests + 1) if self.form.is_unified else self.window_tokens // PAGE_SIZE
        return rows_4 * ring_4, (self.num_requests + 1) * ring_128

    def entries(self) -> tuple[LedgerEntry, ...]:
        """Every buffer of target and drafter."""
        found = (
            self._window_entry("KV pool: windows", self.form.layers.num_layers),
            self._rows_entry(),
            self._index_entry(),
            self._states_entry(),
            self._window_entry("draft KV pool", NUM_DRAFT_LAYERS if self.form.num_draft_tokens else 0),
        )
        return tuple(entry for entry in found if entry.num_bytes)

    def _window_entry(self, name: str, num_layers: int) -> LedgerEntry:
        form = self.form
        if not form.is_unified:
            words = f"{self.window_tokens:,} tokens + 1 page in {num_layers} layers; {form.window_ratio:g} x the pool"
            return _entry(name, _paged_bytes(form, self.window_tokens, 1, num_layers), words)
        rows = (self.num_requests + 1) * form.window_ring_len
        words = f"{self.num_requests} + 1 requests x {form.window_ring_len} rows x {num_layers} layers"
        return _entry(name, round(rows * num_layers * form.row_bytes()), words)

    def _rows_entry(self) -> LedgerEntry:
        form, layers = self.form, self.form.layers
        if form.is_unified:
            blocks = self.num_tokens // 128
            rows = layers.num_4 * (32 * blocks + _ROWS_OF_4) + layers.num_128 * (blocks + _ROWS_OF_128)
            num_bytes = round(rows * form.row_bytes())
        else:
            num_bytes = _paged_bytes(form, self.num_tokens // 4, 4, layers.num_4)
            num_bytes += _paged_bytes(form, self.num_tokens // 128, 128, layers.num_128)
        words = f"a row for 4 tokens in {layers.num_4} layers, for 128 in {layers.num_128}"
        return _entry("KV pool: compressed rows", num_bytes, f"{words}; {form.row_bytes(4):g} bytes and padding")

    def _index_entry(self) -> LedgerEntry:
        form, layers = self.form, self.form.layers
        num_pages = -(-(self.num_tokens // 128 * 32 + PAGE_SIZE) // _ROWS_OF_4)
        num_bytes = num_pages * _ROWS_OF_4 * form.index_bytes * layers.num_4
        words = f"{form.index_bytes} bytes for 4 tokens in {layers.num_4} layers"
        return _entry("KV pool: index", num_bytes, words)

    def _states_entry(self) -> LedgerEntry:
        rows_4, rows_128 = self.state_rows
        num_bytes = self.form.state_rows_bytes(4, rows_4) + self.form.state_rows_bytes(128, rows_128)
        of_4 = "requests" if self.form.is_unified else "pages of windows"
        words = f"float32: a ring of {self.form.ring_len(4)} for {of_4}, of {self.form.ring_len(128)} for requests"
        return _entry("KV pool: compressor states", num_bytes, words)


def v4_pool(form: V4Form, budget_bytes: int, *, context_len: int, max_tokens: int | None = None) -> V4Pool:
    """The pool that a budget makes, at most `max_tokens`; none of it where a request's window does not fit.

    `form.num_requests` is what was asked for; half the pool's tokens is the limit in effect.
    """
    per_token = form.token_bytes * form.inflation
    available = max(budget_bytes - form.fixed_bytes(form.num_requests), 0)
    num_tokens = int(available / per_token) // PAGE_SIZE * PAGE_SIZE if per_token else context_len
    if max_tokens is not None:
        num_tokens = min(num_tokens, max_tokens) // PAGE_SIZE * PAGE_SIZE
    pool = V4Pool(form=form, num_tokens=num_tokens, num_requests=max(min(form.num_requests, num_tokens // 2), 0))
    return pool if pool.holds_a_request else V4Pool(form=form, num_tokens=0, num_requests=0)


def _paged_bytes(form: V4Form, num_rows: int, ratio: int, num_layers: int) -> int:
    """The allocator keeps a page of 256 rows to spare, whatever a row stands for."""
    rows_a_page = PAGE_SIZE // ratio
    num_pages = -(-(num_rows + PAGE_SIZE) // rows_a_page)
    return round(num_pages * rows_a_page * form.row_bytes(ratio)) * num_layers


def _entry(name: str, num_bytes: int, source: str) -> LedgerEntry:
    return LedgerEntry(name=name, num_bytes=num_bytes, place="pool", certainty="formula", source=source)
