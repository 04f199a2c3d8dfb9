"""The Triton kernels under Triton's interpreter, in a process of their own: the interpreter must be chosen before
triton is imported, and everything else in a test run wants neither.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import torch
from attention_case import Case
from torch import Tensor

from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.triton.lists import DeviceLists, Maxima
from deepdraft.infer.kernels.triton.tile import Splitting

WHY_SKIPPED = None if find_spec("triton") else "triton is not installed"
FINE = Splitting(programs_per_sm=8, min_split_len=1)
"""Short contexts in many splits"""
DEFAULT = Splitting()


@dataclass(frozen=True)
class Interpreter:
    pool: ProcessPoolExecutor

    def attend(self, of: Case, splitting: Splitting = FINE) -> Attended:
        return self._run(_attend, of, splitting)

    def attend_far(self, of: Case, num_slots_before: int) -> Attended:
        """With all the case's rows behind so many others that were never touched."""
        return self._run(_attend_far, of, num_slots_before)

    def attend_loaded(self, of: Case, maxima: Maxima, plans: Sequence[AttentionPlan]) -> list[Attended]:
        """The case's layer with one set of lists that is loaded with each plan in turn; queries for the maxima."""
        return self._run(_attend_loaded, of, maxima, plans)

    def move(
        self, tensors: Sequence[Tensor], sources: Tensor, targets: Tensor, num_moves: int | None
    ) -> list[Tensor]:
        """The tensors afterwards."""
        return self._run(_move, tensors, sources, targets, num_moves)

    def _run(self, job: Callable[..., object], *args: object) -> Any:
        """Pickled here, so that no memory is shared."""
        return pickle.loads(self.pool.submit(_unpickled, job, pickle.dumps(args)).result())


@contextmanager
def interpreter() -> Iterator[Interpreter]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        with patch.dict(os.environ, TRITON_INTERPRET="1"):
            pool.submit(_one_thread).result()
        yield Interpreter(pool)


def _one_thread() -> None:
    torch.set_num_threads(1)


def _unpickled(job: Callable[..., object], args: bytes) -> bytes:
    return pickle.dumps(job(*pickle.loads(args)))


def _attend(of: Case, splitting: Splitting) -> Attended:
    from deepdraft.infer.kernels.triton_backend import TritonAttention

    return of.attend(TritonAttention("cpu", splitting=splitting))


def _attend_far(of: Case, num_slots_before: int) -> Attended:
    keys = of.layer.keys
    far = torch.empty(num_slots_before + len(keys), *keys.shape[1:], dtype=keys.dtype)
    far[num_slots_before:] = keys
    layer = replace(of.layer, keys=far, values=far[..., : of.layer.values.shape[-1]])
    num_pages_before = num_slots_before // of.plan.page_size
    pages = tuple(array("i", [page + num_pages_before for page in listed]) for listed in of.plan.pages)
    return _attend(replace(of, layer=layer, plan=replace(of.plan, pages=pages)), FINE)


def _attend_loaded(of: Case, maxima: Maxima, plans: Sequence[AttentionPlan]) -> list[Attended]:
    from deepdraft.infer.kernels.triton_backend import TritonAttention

    backend = TritonAttention("cpu", splitting=FINE)
    lists = DeviceLists.empty(maxima, page_size=of.plan.page_size, device=torch.device("cpu"))
    results = []
    for plan in plans:
        lists.load(plan)
        results.append(backend.attend_lists(of.queries, of.layer, lists, scale=of.scale))
    return results


def _move(tensors: Sequence[Tensor], sources: Tensor, targets: Tensor, num_moves: int | None) -> Sequence[Tensor]:
    from deepdraft.infer.kernels.triton.move import RowMover

    count = None if num_moves is None else torch.tensor([num_moves], dtype=torch.int32)
    RowMover(tensors).move(sources, targets, count)
    return tensors
