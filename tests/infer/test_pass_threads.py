"""One thread where a layer has little to do, all that are allowed where it has much, and afterwards as before."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost.floor import attention_params
from deepdraft.cost.model_json import model_shape
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.kernels.native_backend import missing
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kv.layout import kv_layout
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.pass_threads import MIN_SHARED_WORK, LayerSize, threads_for
from deepdraft.infer.runner import Runner
from deepdraft.infer.sequence import Part, Sequence
from deepdraft.infer.tokenizer.detokenizer import Detokenizer

EMBEDDED = LayerSize.of(open_checkpoint(embedded_model_path()).config)
requests = st.lists(st.tuples(st.integers(1, 300), st.integers(0, 100_000)), min_size=1, max_size=4)
requests = requests.map(lambda drawn: [(query_len, query_len + prefix_len) for query_len, prefix_len in drawn])


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("spec", ["embedded", "llama", "deepseek"])
def test_weights_are_those_of_the_cost_formula(spec: str, request: pytest.FixtureRequest) -> None:
    folder = embedded_model_path() if spec == "embedded" else request.getfixturevalue(f"tiny_{spec}").folder
    config, shape = open_checkpoint(folder).config, model_shape(folder / "config.json")
    size = LayerSize.of(config)
    width = config.intermediate_size
    if config.moe is not None:
        width = config.moe.num_shared_experts * config.moe.moe_intermediate_size
        assert size.expert_weights == 3 * config.hidden_size * config.moe.moe_intermediate_size
    assert size.common_weights == attention_params(shape) + 3 * config.hidden_size * width
    layer = kv_layout(config, page_size=1, dtype=torch.float32).layers[0]
    assert size.kv_row_dim * 4 == layer.bytes_per_token(4)


def test_the_work_of_a_layer_by_hand() -> None:
    size = LayerSize(
        common_weights=100, expert_weights=10, num_experts=3, num_experts_per_tok=2, kv_row_dim=5, group_size=4
    )
    assert size.work([(1, 50)]) == 100 * 9 + 10 * (2 + 8 * 2) + 5 * 50 * 12
    assert size.work([(1, 50), (7, 20)]) == 100 * 16 + 10 * (16 + 8 * 3) + 5 * (50 * 12 + 20 * 36)


@given(requests, st.data())
def test_more_rows_more_context_and_more_requests_are_more_work(of: list[tuple[int, int]], data: Any) -> None:
    place = data.draw(st.integers(0, len(of) - 1))
    query_len, kv_len = of[place]
    for more in ((query_len, kv_len + 1), (query_len + 1, kv_len + 1)):
        assert EMBEDDED.work([*of[:place], more, *of[place + 1 :]]) > EMBEDDED.work(of)
    assert EMBEDDED.work([*of, (1, 1)]) > EMBEDDED.work(of)


def test_a_plain_step_of_the_embedded_model_takes_one_thread_and_a_prompt_chunk_all() -> None:
    assert EMBEDDED.work([(1, 1000)]) < MIN_SHARED_WORK < EMBEDDED.work([(512, 512)])
    assert EMBEDDED.work([(17, 128_000)]) > MIN_SHARED_WORK


@pytest.mark.parametrize(("work", "within"), [(0, 1), (MIN_SHARED_WORK - 1, 1), (MIN_SHARED_WORK, 2)])
def test_threads_within_and_afterwards(work: int, within: int) -> None:
    with threads_for(work):
        assert torch.get_num_threads() == within
    assert torch.get_num_threads() == 2


def test_what_was_set_is_set_back_after_an_error_too() -> None:
    with pytest.raises(ZeroDivisionError), threads_for(0):
        _ = 1 // 0
    assert torch.get_num_threads() == 2


def test_one_thread_stays_one_and_nothing_is_set() -> None:
    torch.set_num_threads(1)
    with threads_for(0):
        torch.set_num_threads(2)  # by whoever computes within: not ours to undo
    assert torch.get_num_threads() == 2


def test_the_number_that_was_configured_holds_in_the_thread_that_runs_passes() -> None:
    seen: list[int] = []

    def run() -> None:
        for work in (MIN_SHARED_WORK, 0, MIN_SHARED_WORK):
            with threads_for(work):
                seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())

    engine_thread = Thread(target=run)
    engine_thread.start()
    engine_thread.join()
    assert seen == [2, 1, 2, 2]
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("backend", ["torch", *(["native"] if missing() is None else [])])
def test_a_runner_s_short_pass_computes_with_one_thread(backend: str, tiny: Any, make_request: Any) -> None:
    seen: list[int] = []

    class Watched:
        config = tiny.model.config
        embedding, output = tiny.model.embedding, tiny.model.output

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(torch.get_num_threads())
            return tiny.model.forward(*args, **kwargs)

    pool = PagePool(kv_layout(tiny.model.config, page_size=4, dtype=torch.float32), 64)
    runner = Runner(Watched(), pool, attention_backend(backend, torch.device("cpu")))
    sequence = Sequence(
        request=make_request("a", [1, 2]),
        arrival_index=0,
        seed=0,
        end_token_ids=frozenset(),
        token_ids=[1, 2],
        page_table=PageTable(4, pool.allocate(8)),
        detokenizer=Detokenizer(tiny.tokenizer),
    )
    runner.run([Part(sequence=sequence, token_ids=(1, 2), num_logit_rows=1)])
    assert seen == [1] and torch.get_num_threads() == 2
