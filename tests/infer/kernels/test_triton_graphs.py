"""Graphs of passes over the Triton kernels: replayed, they are what the torch back end computes of each pass.

Under the interpreter and with a stand-in for CUDA's capture: see `test_pass_graphs`."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attention_case import random_tree, tree_mask
from interpreted import WHY_SKIPPED, Interpreter, interpreter
from torch import Tensor

from deepdraft.infer.batch import Batch
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kernels.triton.lists import DeviceLists, Maxima
from deepdraft.infer.kernels.triton.tile import Splitting
from deepdraft.infer.kv.layout import kv_layout
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.models.load import load_model
from deepdraft.infer.models.model import Forwarded
from deepdraft.infer.pass_graphs import PassGraphs

if WHY_SKIPPED:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)

PAGE = 4
NUM_PAGES = 60


@pytest.fixture(scope="module")
def triton():
    with interpreter() as running:
        yield running


def test_replayed_passes_are_those_of_the_torch_back_end(triton: Interpreter, tiny_llama: Any) -> None:
    """Prompts first, then decode rows, chains and trees of two requests."""
    batches = _batches()
    found, num_graphs = triton._run(_graphed, tiny_llama.folder, batches)
    assert num_graphs == 2 and len(batches) == 2 + 4
    model = load_model(open_checkpoint(tiny_llama.folder))
    pool = PagePool(kv_layout(model.config, page_size=PAGE, dtype=torch.float32), NUM_PAGES)
    backend = attention_backend("torch", torch.device("cpu"))
    for batch, logits in zip(batches, found, strict=True):
        torch.testing.assert_close(logits, model.forward(batch, pool, backend).logits, atol=2e-4, rtol=1e-4)


def test_attention_that_would_not_read_lent_lists_is_refused(triton: Interpreter) -> None:
    for what in ("expanded", "float64", "many queries"):
        with pytest.raises(ValueError, match="whose lists were lent"):
            triton._run(_misused, what)


def _batches() -> list[Batch]:
    rng, deal = random.Random(3), list(range(NUM_PAGES))
    rng.shuffle(deal)
    tables = [PageTable(PAGE, [deal.pop() for _ in range(25)]) for _ in range(2)]
    batches = [
        _batch(rng, [(table, num_rows, None)], num_logits=1) for table, num_rows in zip(tables, (9, 6), strict=True)
    ]
    for num_rows in ((1, 1), (5, 1), (1, 1), (1, 5)):
        masks = [tree_mask(random_tree(rows, rng.random())) if rows > 3 else None for rows in num_rows]
        batches.append(_batch(rng, list(zip(tables, num_rows, masks, strict=True))))
    return batches


def _batch(
    rng: random.Random, requests: list[tuple[PageTable, int, Tensor | None]], *, num_logits: int | None = None
) -> Batch:
    """Rows of these requests; afterwards their first row, or a prompt's all, counts as run."""
    lens = [num_rows for _, num_rows, _ in requests]
    starts = [table.num_tokens for table, _, _ in requests]
    num_rows = sum(lens)
    depths = [torch.arange(rows) if mask is None else mask.sum(1) - 1 for _, rows, mask in requests]
    batch = Batch(
        token_ids=torch.tensor([rng.randrange(256) for _ in range(num_rows)]),
        positions=torch.cat([start + depth for start, depth in zip(starts, depths, strict=True)]),
        slots=torch.cat([table.slots(at, at + rows) for (table, rows, _), at in zip(requests, starts, strict=True)]),
        plan=AttentionPlan.of(
            page_size=PAGE,
            query_lens=lens,
            kv_lens=[start + rows for start, rows in zip(starts, lens, strict=True)],
            pages=[table.pages for table, _, _ in requests],
            tail_masks=[mask for _, _, mask in requests],
        ),
        logit_rows=torch.arange(num_rows)[num_rows - (num_logits or num_rows) :],
    )
    for table, rows, _ in requests:
        table.num_tokens += rows if num_logits else 1
    return batch


def _graphed(folder: Path, batches: list[Batch]) -> tuple[list[Tensor], int]:
    """Each pass's logits, and how many graphs there are."""
    from deepdraft.infer.kernels.triton_backend import TritonAttention

    model = load_model(open_checkpoint(folder))
    layout = kv_layout(model.config, page_size=PAGE, dtype=torch.float32)
    pool, backend = (
        PagePool(layout, NUM_PAGES, has_scratch_page=True),
        TritonAttention("cpu", splitting=Splitting(max_splits=2)),
    )
    graphs = PassGraphs(model, pool, backend, _recorded)
    passes = [graphs.forward(batch) or model.forward(batch, pool, backend) for batch in batches]
    return [of.logits.clone() for of in passes], graphs.num_graphs


def _recorded(function: Callable[[], Forwarded]) -> tuple[Forwarded, Callable[[], None]]:
    forwarded = function()

    def replay() -> None:
        forwarded.logits.copy_(function().logits)

    return forwarded, replay


def _misused(what: str) -> None:
    from attention_case import EMBEDDED, case, expansion

    from deepdraft.infer.kernels.triton_backend import TritonAttention

    backend = TritonAttention("cpu")
    of = case([300 if what == "many queries" else 2], [300], dims=EMBEDDED)
    backend.lend(of.plan, DeviceLists.empty(Maxima.of(of.plan), page_size=16, device=torch.device("cpu")))
    if what == "expanded":
        expansion(of).attend(backend, of)
        return
    queries = of.queries.double() if what == "float64" else of.queries
    backend.attend(queries, of.layer, of.plan, scale=of.scale)
