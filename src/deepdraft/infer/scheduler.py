"""What the next forward pass holds: admission, chunked prefill, decode, and who makes room for whom.

- First come, first served. A request is admitted when the pool has room for all it prefills (what is evictable
  counts as room) and for one more page of each running request.
- Prefill and decode are passes of their own and take turns: at most one chunk between two decode steps, so a long
  prompt never starves running requests. A prefill pass packs as many prompts as fit `chunk_len` rows.
- Decode takes a page when it needs one: a free one, else the radix cache's least recently used, else the request
  admitted last is preempted: what it computed in whole pages goes to the radix cache, it waits at the FRONT of the
  queue, and is prefilled again over prompt and output. Its output is not affected.

Arrival order therefore holds among the running and from them to the waiting. The oldest running request is never
preempted for another, and alone it has the whole pool: a request that fits the pool always completes.

Drafting comes between `schedule` and the run (`speculation`) and preempts nobody: to the scheduler a request with
drafts is one that decodes.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

from deepdraft.infer.errors import LawBroken
from deepdraft.infer.page_ledger import PageLedger
from deepdraft.infer.sequence import Part, Sequence
from deepdraft.infer.step_record import StepKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """One forward pass."""

    kind: StepKind
    parts: tuple[Part, ...]
    num_preemptions: int


class Scheduler:
    """The queue and the running requests, both in order of arrival."""

    def __init__(self, ledger: PageLedger, *, chunk_len: int, max_running_requests: int) -> None:
        self._ledger = ledger
        self._chunk_len = chunk_len
        self._max_running_requests = max_running_requests
        self._was_prefill = False
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []

    def add(self, sequence: Sequence) -> None:
        """Queue a new sequence."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Drop a sequence that ended, in whatever state it is. Its unpublished pages are free at once."""
        if sequence in self.waiting:
            self.waiting.remove(sequence)
            return
        self.running.remove(sequence)
        self._ledger.release(sequence)

    def schedule(self) -> Schedule | None:
        """The next pass; None when nothing runs or waits. Raises LawBroken where something waits that can't run."""
        can_decode = any(sequence.can_decode for sequence in self.running)
        if not (can_decode and self._was_prefill):
            parts = self._prefill_parts()
            if parts:
                self._was_prefill = True
                return Schedule(kind="prefill", parts=tuple(parts), num_preemptions=0)
        self._was_prefill = False
        if self.running:
            return self._decode()
        if self.waiting:
            raise LawBroken(f"request {self.waiting[0].request.request_id} can't run in an idle engine")
        return None

    def check(self) -> None:
        """Raises LawBroken where arrival order is lost, or a waiting sequence holds pages."""
        order = [sequence.arrival_index for sequence in (*self.running, *self.waiting)]
        if order != sorted(order):
            raise LawBroken(f"requests run and wait out of the order of arrival: {order}")
        if any(sequence.page_table.pages or sequence.node for sequence in self.waiting):
            raise LawBroken("a waiting request holds pages")

    def _prefill_parts(self) -> list[Part]:
        parts: list[Part] = []
        num_rows_left = self._chunk_len
        for sequence in self.running:
            if num_rows_left and not sequence.can_decode:
                parts.append(_chunk(sequence, num_rows_left))
                num_rows_left -= len(parts[-1].token_ids)
        while num_rows_left and self._admit_next():
            sequence = self.running[-1]
            if not sequence.can_decode:  # a preempted one may be back in full from the radix cache
                parts.append(_chunk(sequence, num_rows_left))
                num_rows_left -= len(parts[-1].token_ids)
        return parts

    def _admit_next(self) -> bool:
        if not self.waiting or len(self.running) >= self._max_running_requests:
            return False
        num_spare_pages = len(self.running) + 1 if self.running else 0
        if not self._ledger.admit(self.waiting[0], num_spare_pages=num_spare_pages):
            return False
        sequence = self.waiting.popleft()
        if sequence.queue_s is None:
            sequence.queue_s = time.monotonic() - sequence.submitted_s
        self.running.append(sequence)
        return True

    def _decode(self) -> Schedule:
        parts: list[Part] = []
        num_preemptions = 0
        for sequence in [sequence for sequence in self.running if sequence.can_decode]:
            if sequence not in self.running:
                break  # preempted, as are all that came after it
            while not self._ledger.grow(sequence, len(sequence.token_ids)):
                num_preemptions += 1
                if self._preempt_last() is sequence:
                    break
            else:
                parts.append(Part(sequence=sequence, token_ids=(sequence.token_ids[-1],), num_logit_rows=1))
        return Schedule(kind="decode", parts=tuple(parts), num_preemptions=num_preemptions)

    def _preempt_last(self) -> Sequence:
        sequence = self.running.pop()
        self._ledger.publish(sequence)
        self._ledger.release(sequence)
        self.waiting.appendleft(sequence)
        return sequence


def _chunk(sequence: Sequence, max_rows: int) -> Part:
    start = sequence.page_table.num_tokens
    stop = min(start + max_rows, sequence.prefill_len)
    has_logits = stop == sequence.prefill_len and not sequence.has_output
    return Part(sequence=sequence, token_ids=tuple(sequence.token_ids[start:stop]), num_logit_rows=int(has_logits))
