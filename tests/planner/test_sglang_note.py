import pytest
from tests.planner.reference import plan_at, started_at

from deepdraft.cost.device import device
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings


def noted(plan, words):
    return any(words in note for note in plan.notes)


def test_a_limit_above_the_pool():
    plan = plan_at(0.85, started_at(0.85))
    assert noted(plan, "The context limit is 200,000 and the pool holds 101,134 tokens")
    assert not noted(plan_at(0.94, started_at(0.94)), "The context limit is")


def test_memory_kept_for_nothing():
    """3,840 bytes a token more than the drafter takes: 0.78 GiB at 218k tokens."""
    assert noted(plan_at(0.94, started_at(0.94)), "77,184 bytes a token where 73,344 are used, 0.78 GiB")
    assert not noted(plan_at(0.94, version="0.5.23"), "kept free for nothing")


@pytest.mark.parametrize(("chunk_len", "words"), [(8192, "896 MiB at 8,192 tokens, 448 MiB at 4,096"),
                                                  (4096, "448 MiB at 4,096 tokens, 224 MiB at 2,048")])  # fmt: skip
def test_half_the_chunk_is_half_the_buffer(chunk_len, words):
    assert noted(plan_at(0.93, chunked_prefill_size=chunk_len), words)


def test_what_moves_the_pool_and_what_does_not():
    assert noted(plan_at(0.93), "--context-length and --max-running-requests don't move the pool")
    grouped = plan_for("sglang", None, open_model("qwen3-8b"), device("H100"), SglangSettings())
    assert not noted(grouped, "don't move the pool") and not noted(grouped, "holds all of them")


def test_a_pool_for_windows():
    plan = plan_for("sglang", None, open_model("gemma-3-27b"), device("H200"), SglangSettings())
    assert noted(plan, "0.8 x as many tokens")
