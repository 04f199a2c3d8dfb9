"""Passes as they are scheduled, with a stand-in for the model: rows are marked as run, and tokens are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.kv.layout import KvLayout, LayerShape
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.page_ledger import PageLedger
from deepdraft.infer.scheduler import Schedule, Scheduler
from deepdraft.infer.sequence import Sequence
from deepdraft.infer.tokenizer.detokenizer import Detokenizer

PAGE = 4
LAYOUT = KvLayout((LayerShape(1, 2, 2, is_latent=False),), PAGE, torch.float32)


@dataclass
class Workload:
    """A scheduler, its ledger, and what was scheduled."""

    make: Callable[[int, list[int], int], Sequence]
    ledger: PageLedger
    scheduler: Scheduler
    passes: list[Schedule] = field(default_factory=list)
    numbers: Any = field(default_factory=count)
    finished: list[int] = field(default_factory=list)

    def add(self, prompt: list[int], max_tokens: int) -> Sequence:
        sequence = self.make(next(self.numbers), prompt, max_tokens)
        self.scheduler.add(sequence)
        return sequence

    def step(self) -> Schedule | None:
        """Schedule a pass and do as the engine does after it."""
        could_decode = {sequence for sequence in self.scheduler.running if sequence.can_decode}
        schedule = self.scheduler.schedule()
        if schedule is None:
            return None
        if schedule.kind == "prefill":
            assert not (could_decode and self.passes[-1].kind == "prefill"), "at most one chunk between decodes"
        else:
            decoding = {part.sequence for part in schedule.parts}
            assert decoding >= could_decode & set(self.scheduler.running), "all that can, but the preempted"
        self.passes.append(schedule)
        for part in schedule.parts:
            sequence = part.sequence
            sequence.page_table.num_tokens = part.stop
            if schedule.kind == "prefill" and part.stop == sequence.prefill_len:
                self.ledger.publish(sequence)
            if part.num_logit_rows:
                sequence.token_ids.append(200 + sequence.num_output_tokens % 7)
                if sequence.num_output_tokens == sequence.request.sampling.max_tokens:
                    self.ledger.publish(sequence)
                    self.scheduler.remove(sequence)
                    self.finished.append(sequence.arrival_index)
        self.scheduler.check()
        self.ledger.check(self.scheduler.running)
        return schedule

    def steps(self, number: int) -> list[str]:
        return [schedule.kind if (schedule := self.step()) else "none" for _ in range(number)]


MakeWorkload = Callable[..., Workload]


@pytest.fixture(scope="module")
def workload(tiny_llama: Any, make_request: Any) -> MakeWorkload:
    def make_sequence(arrival_index: int, prompt: list[int], max_tokens: int) -> Sequence:
        return Sequence(
            request=make_request(str(arrival_index), prompt, max_tokens=max_tokens),
            arrival_index=arrival_index,
            seed=0,
            end_token_ids=frozenset(),
            token_ids=list(prompt),
            page_table=PageTable(PAGE),
            detokenizer=Detokenizer(tiny_llama.tokenizer),
        )

    def make(
        num_pages: int, *, chunk_len: int = 8, max_running_requests: int = 8, has_radix_cache: bool = True
    ) -> Workload:
        ledger = PageLedger(PagePool(LAYOUT, num_pages), has_radix_cache=has_radix_cache)
        scheduler = Scheduler(ledger, chunk_len=chunk_len, max_running_requests=max_running_requests)
        return Workload(make_sequence, ledger, scheduler)

    return make


def shape(schedule: Schedule | None) -> list[tuple[int, int, int]]:
    """Per part: whose, how many rows, how many logits."""
    assert schedule is not None
    return [(part.sequence.arrival_index, len(part.token_ids), part.num_logit_rows) for part in schedule.parts]


def test_nothing_to_do(workload: MakeWorkload) -> None:
    assert workload(4).step() is None


def test_a_long_prompt_comes_in_chunks(workload: MakeWorkload) -> None:
    work = workload(10, chunk_len=8)
    work.add(list(range(20)), 2)
    assert [shape(work.step()) for _ in range(4)] == [[(0, 8, 0)], [(0, 8, 0)], [(0, 4, 1)], [(0, 1, 1)]]
    assert work.step() is None


def test_short_prompts_share_a_pass(workload: MakeWorkload) -> None:
    work = workload(20, chunk_len=8)
    for start in (0, 50, 100):
        work.add(list(range(start, start + 3)), 2)
    assert shape(work.step()) == [(0, 3, 1), (1, 3, 1), (2, 2, 0)]
    assert work.step().kind == "decode"  # type: ignore[union-attr]
    assert shape(work.step()) == [(2, 1, 1)]


def test_prefill_and_decode_take_turns(workload: MakeWorkload) -> None:
    work = workload(40, chunk_len=8)
    work.add([1, 2, 3], 20)
    work.step()
    work.add(list(range(50, 90)), 3)
    assert work.steps(10) == ["decode", "prefill"] * 5
    assert all(len(schedule.parts) == 1 for schedule in work.passes[1:])
    assert shape(work.step()) == [(0, 1, 1), (1, 1, 1)]


def test_no_more_run_than_allowed(workload: MakeWorkload) -> None:
    work = workload(40, chunk_len=64, max_running_requests=2)
    for start in (0, 50, 100):
        work.add(list(range(start, start + 3)), 3)
    assert shape(work.step()) == [(0, 3, 1), (1, 3, 1)]
    assert work.steps(2) == ["decode", "decode"]
    assert work.finished == [0, 1]
    assert shape(work.step()) == [(2, 3, 1)]


def test_the_queue_waits_for_its_head(workload: MakeWorkload) -> None:
    """First come, first served: a small request doesn't overtake a large one that must wait for room."""
    work = workload(6, chunk_len=64)
    work.add(list(range(12)), 4)
    work.add(list(range(50, 62)), 4)
    work.add([101, 102], 4)
    assert shape(work.step()) == [(0, 12, 1)]
    assert work.steps(3) == ["decode"] * 3
    assert work.finished == [0]
    assert shape(work.step()) == [(1, 12, 1), (2, 2, 1)]


def test_the_last_admitted_makes_room(workload: MakeWorkload) -> None:
    work = workload(6, chunk_len=64, has_radix_cache=False)
    work.add([1, 2, 3, 4], 12)
    work.add([11, 12, 13, 14], 12)
    while not (work.passes and work.passes[-1].num_preemptions):
        assert work.step()
    preempted = work.scheduler.waiting[0]
    assert preempted.arrival_index == 1 and preempted.has_output
    assert [sequence.arrival_index for sequence in work.scheduler.running] == [0]
    work.add([21, 22], 2)
    assert [sequence.arrival_index for sequence in work.scheduler.waiting] == [1, 2], "back to the front"
    while work.step():
        pass
    prefills = [shape(schedule) for schedule in work.passes if schedule.kind == "prefill"]
    assert [index for parts in prefills for index, _, _ in parts] == [0, 1, 1, 2]
    assert sorted(work.finished) == [0, 1, 2]


def test_prefill_after_preemption_samples_nothing(workload: MakeWorkload) -> None:
    work = workload(6, chunk_len=64, has_radix_cache=False)
    work.add([1, 2, 3, 4], 12)
    work.add([11, 12, 13, 14], 12)
    while not work.passes or not work.passes[-1].num_preemptions:
        work.step()
    num_output = work.scheduler.waiting[0].num_output_tokens
    while (schedule := work.step()) and schedule.kind != "prefill":
        pass
    assert shape(schedule) == [(1, 4 + num_output - 1, 0)]


def test_a_preempted_request_finds_its_pages_again(workload: MakeWorkload) -> None:
    work = workload(9, chunk_len=64)
    work.add([1, 2, 3, 4], 18)
    work.add([11, 12, 13, 14], 18)
    while not (work.passes and work.passes[-1].num_preemptions):
        work.step()
    num_computed = 4 + work.scheduler.waiting[0].num_output_tokens - 1
    assert work.ledger.num_evictable_pages >= num_computed // PAGE - 1


def test_removal_in_every_state(workload: MakeWorkload) -> None:
    work = workload(12, chunk_len=8)
    decoding, prefilling, waiting = (work.add(list(range(start, start + 12)), 4) for start in (0, 50, 100))
    work.steps(3)
    assert decoding.can_decode and 0 < prefilling.page_table.num_tokens < 12 and not waiting.page_table.pages
    for sequence in (prefilling, waiting, decoding):
        work.scheduler.remove(sequence)
        work.scheduler.check()
        work.ledger.check(work.scheduler.running)
    assert work.ledger.num_free_pages + work.ledger.num_evictable_pages == 12
    assert work.step() is None


@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_workload_comes_to_its_end(workload: MakeWorkload, data: st.DataObject) -> None:
    """Whatever arrives when: nobody starves, chunks and batches keep to their limits, requests run in order."""
    num_pages, chunk_len = data.draw(st.integers(4, 12)), data.draw(st.integers(1, 20))
    max_running_requests = data.draw(st.integers(1, 4))
    work = workload(
        num_pages,
        chunk_len=chunk_len,
        max_running_requests=max_running_requests,
        has_radix_cache=data.draw(st.booleans()),
    )
    lens = st.tuples(st.integers(1, num_pages * PAGE - 1), st.integers(1, 8), st.integers(0, 1))
    arrivals = data.draw(st.lists(st.tuples(lens, st.integers(0, 6)), min_size=1, max_size=8))
    num_output = 0
    for (prompt_len, max_tokens, start), num_steps in arrivals:
        output_len = min(max_tokens, num_pages * PAGE - prompt_len)
        work.add(list(range(start, start + prompt_len)), output_len)
        num_output += output_len
        for _ in range(num_steps):
            work.step()
    while work.step():
        assert len(work.passes) < 2000
    assert sorted(work.finished) == list(range(len(arrivals)))
    assert sum(part.num_logit_rows for schedule in work.passes for part in schedule.parts) == num_output
    check_passes(work.passes, chunk_len, max_running_requests)


def check_passes(passes: list[Schedule], chunk_len: int, max_running_requests: int) -> None:
    for schedule in passes:
        assert 1 <= len(schedule.parts) <= max_running_requests
        rows = [len(part.token_ids) for part in schedule.parts]
        assert sum(rows) <= chunk_len if schedule.kind == "prefill" else set(rows) == {1}
    order = [[part.sequence.arrival_index for part in schedule.parts] for schedule in passes]
    assert all(indices == sorted(indices) for indices in order)
