"""A captured pass, replayed, is the pass that was asked for: all that differs goes through the buffers.

`Recorded` stands in for CUDA's capture: it keeps the call and runs it again for each replay, into the tensors that
the first call gave, after the plan of the captured pass was emptied of all that a GPU would not read again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv
from deepdraft.infer.kernels.reference import ReferenceAttention
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kernels.triton.lists import DeviceLists, Maxima
from deepdraft.infer.kv.layout import kv_layout
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.model import Forwarded, Model
from deepdraft.infer.pass_graphs import MAX_GRAPHS, MAX_ROWS, PassGraphs, cuda_graphs, rounded_up
from deepdraft.infer.runner import Runner, build_batch
from deepdraft.infer.sequence import Part, Sequence
from deepdraft.infer.tokenizer.detokenizer import Detokenizer

CPU = torch.device("cpu")
PAGE = 4
NUM_PAGES = 200


class ListsAttention(ReferenceAttention):
    """Attention that reads a lent plan from its lists alone."""

    def __init__(self) -> None:
        self._lists: WeakKeyDictionary[AttentionPlan, DeviceLists] = WeakKeyDictionary()

    def lend(self, plan: AttentionPlan, lists: DeviceLists) -> None:
        lists.load(plan)
        self._lists[plan] = lists

    def attend(self, queries: Tensor, layer: LayerKv, plan: AttentionPlan, *, scale: float) -> Attended:
        lists = self._lists.get(plan)
        if lists is None:
            return super().attend(queries, layer, plan, scale=scale)
        out = queries.new_zeros(*queries.shape[:2], layer.values.shape[-1])
        lse = queries.new_full(queries.shape[:2], float("-inf"))
        queried, listed = lists.qo_indptr.tolist(), lists.kv_indptr.tolist()
        for request, kv_len in enumerate(lists.kv_lens.tolist()):
            first, stop = queried[request : request + 2]
            if first == stop:
                continue
            bits = lists.tail_bits[first:stop, :, None] >> torch.arange(64) & 1
            own = AttentionPlan.of(
                page_size=lists.page_size,
                query_lens=[stop - first],
                kv_lens=[kv_len],
                pages=[lists.kv_indices[listed[request] : listed[request + 1]].tolist()],
                tail_masks=[bits.flatten(1)[:, : stop - first].bool()],
            )
            out[first:stop], lse[first:stop] = super().attend(queries[first:stop], layer, own, scale=scale)
        return Attended(out, lse)


@dataclass
class Recorded:
    """A `Capture`."""

    num_captured: int = 0
    num_replayed: int = 0

    def __call__(self, function: Callable[[], Forwarded]) -> tuple[Forwarded, Callable[[], None]]:
        self.num_captured += 1
        forwarded = function()

        def replay() -> None:
            self.num_replayed += 1
            again = function()
            forwarded.logits.copy_(again.logits)
            if forwarded.taps is not None and again.taps is not None:
                forwarded.taps.copy_(again.taps)

        forwarded.logits.fill_(torch.nan)  # there after the first replay, not before
        return forwarded, replay


@dataclass
class Company:
    """Requests that run in two pools with the same pages: eagerly in one, from graphs in the other."""

    tiny: Any
    make_request: Any
    tapped_layers: tuple[int, ...] = ()
    rng: random.Random = field(default_factory=lambda: random.Random(5))

    def __post_init__(self) -> None:
        layout = kv_layout(self.tiny.model.config, page_size=PAGE, dtype=torch.float32)
        self.pools = [PagePool(layout, NUM_PAGES, has_scratch_page=True) for _ in range(2)]
        self.capture = Recorded()
        self.attention = ListsAttention()
        self.graphs = PassGraphs(
            self.tiny.model, self.pools[1], self.attention, self.capture, tapped_layers=self.tapped_layers
        )
        self.eager = Runner(self.tiny.model, self.pools[0], attention_backend("torch", CPU))
        self.graphed = Runner(self.tiny.model, self.pools[1], self.attention, graphs=self.graphs)
        pages = list(range(NUM_PAGES))
        self.rng.shuffle(pages)
        self._dealt = iter(pages)

    def sequence(self, context_len: int, room: int = 40) -> Sequence:
        """Its context run in both pools."""
        token_ids = [self.rng.randrange(256) for _ in range(context_len + 1)]
        table = PageTable(PAGE, [next(self._dealt) for _ in range((context_len + room) // PAGE + 1)])
        sequence = Sequence(
            request=self.make_request("a", token_ids),
            arrival_index=0,
            seed=0,
            end_token_ids=frozenset(),
            token_ids=token_ids,
            page_table=table,
            detokenizer=Detokenizer(self.tiny.tokenizer),
        )
        prompt = Part(sequence=sequence, token_ids=tuple(token_ids[:-1]), num_logit_rows=1)
        self.agree([prompt])
        table.num_tokens = context_len
        return sequence

    def agree(self, parts: list[Part]) -> None:
        """The pass in both ways: the same logits, and the same rows in every slot of the pool that was ever given."""
        expected, found = self.eager.run(parts).logits, self.graphed.run(parts).logits
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        slots = torch.cat([part.sequence.page_table.slots(0, part.stop) for part in parts])
        for index in range(len(self.pools[0].layout.layers)):
            eager, graphed = (pool.layer(index) for pool in self.pools)
            torch.testing.assert_close(graphed.keys[slots], eager.keys[slots], atol=1e-4, rtol=1e-4)
            torch.testing.assert_close(graphed.values[slots], eager.values[slots], atol=1e-4, rtol=1e-4)

    def empty_captured_plans(self) -> None:
        """What the host knew of the captured pass is gone; a replay that read it would fail or differ."""
        for graph in self.graphs._graphs.values():
            for name in ("pages", "kv_lens", "tail_masks"):
                object.__setattr__(graph.plan, name, None)
            for name in ("qo_indptr", "kv_indptr", "kv_indices", "slots"):
                graph.plan.__dict__.pop(name, None)

    def part(self, sequence: Sequence, num_rows: int) -> Part:
        """A decode row, a chain, or a tree in which some node has two children."""
        tokens = tuple(self.rng.randrange(256) for _ in range(num_rows))
        if num_rows < 3 or self.rng.random() < 0.3:
            return Part(sequence=sequence, token_ids=tokens, num_logit_rows=num_rows)
        mask, depths = torch.eye(num_rows, dtype=torch.bool), [0]
        for node in range(1, num_rows):
            parent = self.rng.randrange(max(0, node - 3), node)
            mask[node] |= mask[parent]
            depths.append(depths[parent] + 1)
        return Part(
            sequence=sequence, token_ids=tokens, num_logit_rows=num_rows, tail_mask=mask, depths=tuple(depths)
        )


@pytest.fixture
def company(tiny: Any, make_request: Any) -> Company:
    return Company(tiny, make_request)


def test_replayed_passes_are_those_that_were_asked_for(company: Company) -> None:
    """Decode, chains and trees of changing requests over growing contexts; graphs made for one serve the others."""
    sequences = [company.sequence(context_len) for context_len in (3, 17, 40, 9)]
    rng = company.rng
    for _ in range(24):
        chosen = rng.sample(sequences, rng.randrange(1, 5))
        parts = [company.part(sequence, rng.choice((1, 1, 3, 5, 9))) for sequence in chosen]
        company.agree(parts)
        company.empty_captured_plans()
        for part in parts:
            table = part.sequence.page_table
            table.num_tokens = min(part.start + 1, table.capacity - 12)
    assert company.capture.num_replayed == 24
    assert 2 < company.capture.num_captured == company.graphs.num_graphs < 18


def test_a_large_pass_leaves_nothing_in_a_smaller_one_of_the_same_size(company: Company) -> None:
    """Three requests of 5 and 4 rows in a graph for 4 requests, then three of fewer rows."""
    sequences = [company.sequence(context_len) for context_len in (30, 12, 5)]
    company.agree([company.part(sequence, num_rows) for sequence, num_rows in zip(sequences, (6, 5, 5), strict=True)])
    company.empty_captured_plans()
    company.agree([company.part(sequence, num_rows) for sequence, num_rows in zip(sequences, (5, 4, 4), strict=True)])
    assert company.graphs.num_graphs == 1


def test_what_a_pass_gave_outlives_the_next_replay(company: Company) -> None:
    sequence = company.sequence(8)
    parts = [company.part(sequence, 1) for _ in range(2)]
    first = company.graphed.run(parts[:1]).logits
    kept = first.clone()
    second = company.graphed.run(parts[1:]).logits
    assert company.graphs.num_graphs == 1 and torch.equal(first, kept) and not torch.equal(first, second)


def test_taps_are_those_of_the_batch_s_rows(tiny: Any, make_request: Any) -> None:
    company = Company(tiny, make_request, tapped_layers=(1, 0))
    sequence = company.sequence(20)
    for num_rows in (5, 6):
        part = company.part(sequence, num_rows)
        batch = build_batch([part], page_size=PAGE, device=CPU)
        with torch.inference_mode():
            found = company.graphs.forward(batch)
            expected = tiny.model.forward(batch, company.pools[0], ReferenceAttention(), tapped_layers=(1, 0))
        assert found is not None and found.taps is not None
        torch.testing.assert_close(found.taps, expected.taps, atol=1e-4, rtol=1e-4)
        company.empty_captured_plans()
    assert company.capture.num_captured == 1


def test_prompts_and_what_is_too_large_run_without_a_graph(company: Company) -> None:
    sequence = company.sequence(70, room=MAX_ROWS + 100)
    assert company.graphs.num_graphs == 0, "a prompt wants one row's logits"
    company.agree([company.part(sequence, 65)])
    assert company.graphs.num_graphs == 0
    company.agree([company.part(sequence, 13)])
    assert company.graphs.num_graphs == 1


def test_no_more_graphs_than_there_may_be(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepdraft.infer.pass_graphs.MAX_GRAPHS", 1)
    assert MAX_GRAPHS > 1
    sequence = company.sequence(20)
    for num_rows in (1, 5, 1, 6):
        company.agree([company.part(sequence, num_rows)])
    assert (company.graphs.num_graphs, company.capture.num_replayed) == (1, 2)


@pytest.mark.parametrize(
    ("number", "size"), [(1, 1), (2, 2), (3, 3), (4, 4), (5, 6), (7, 8), (9, 12), (13, 16), (17, 24), (500, 512)]
)
def test_sizes(number: int, size: int) -> None:
    assert rounded_up(number) == size
    assert 3 * (size - number) <= size


def test_longer_contexts_have_sizes_of_their_own(company: Company) -> None:
    def size(*kv_lens: int) -> Maxima:
        pages = [range(-(-kv_len // PAGE)) for kv_len in kv_lens]
        plan = AttentionPlan.of(page_size=PAGE, query_lens=[1] * len(kv_lens), kv_lens=kv_lens, pages=pages)
        found = company.graphs._size(plan)
        assert found.has_room_for(Maxima.of(plan))
        return found

    assert size(1) == size(4096) != size(4097)
    assert size(4097) == size(16_384) and size(16_385).kv_len == 65_536
    assert size(4096, 1) == size(3, 4096) != size(4096)
    assert size(50, 60, 70, 80, 90).num_requests == 6


class Unasked(TorchFunctionMode):
    """Refuses what would have the host wait for the device, which can't be captured."""

    HOST = ("tolist", "item", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in self.HOST:
            raise AssertionError(f"{name} in a captured pass")
        return func(*args, **(kwargs or {}))


class Blind(ListsAttention):
    """Reads nothing: what attention does on a GPU is its kernels' matter."""

    def attend(self, queries: Tensor, layer: LayerKv, plan: AttentionPlan, *, scale: float) -> Attended:
        return Attended(queries.new_zeros(*queries.shape[:2], layer.values.shape[-1]), queries.new_zeros(1))


def test_a_captured_pass_asks_the_device_nothing(tiny_llama: Any, make_request: Any) -> None:
    model: Model = tiny_llama.model
    company = Company(tiny_llama, make_request)

    def capture(function: Callable[[], Forwarded]) -> tuple[Forwarded, Callable[[], None]]:
        with Unasked():
            return function(), lambda: None

    graphs = PassGraphs(model, company.pools[1], Blind(), capture, tapped_layers=(1,))
    batch = build_batch([company.part(company.sequence(10), 5)], page_size=PAGE, device=CPU)
    with torch.inference_mode():
        assert graphs.forward(batch) is not None
    with pytest.raises(AssertionError, match="tolist in a captured pass"), Unasked():
        torch.ones(2).tolist()


def test_a_pool_without_a_scratch_slot_is_refused(tiny_llama: Any) -> None:
    pool = PagePool(kv_layout(tiny_llama.model.config, page_size=PAGE, dtype=torch.float32), 8)
    with pytest.raises(ValueError, match="no place for padded rows"):
        PassGraphs(tiny_llama.model, pool, ListsAttention(), Recorded())


def test_there_are_none_on_a_cpu(tiny_llama: Any) -> None:
    pool = PagePool(kv_layout(tiny_llama.model.config, page_size=PAGE, dtype=torch.float32), 8)
    assert cuda_graphs(tiny_llama.model, pool, attention_backend("torch", CPU)) is None
