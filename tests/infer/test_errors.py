import pytest

from deepdraft.errors import DeepdraftError, UsageError
from deepdraft.infer.errors import (
    ContextTooLong,
    InvalidRequest,
    LawBroken,
    PoolExhausted,
    PoolTooSmall,
    QueueFull,
    RequestRefused,
    ShuttingDown,
    UnsupportedModel,
)

TOO_LONG = ContextTooLong(num_prompt_tokens=1000, max_tokens=200, max_context_len=1024)
TOO_SMALL = PoolTooSmall(num_tokens=1200, kv_pool_tokens=1100, max_context_len=2048)
QUEUE_FULL = QueueFull(num_waiting=64, max_waiting_requests=64, retry_after_s=1.5)
EXHAUSTED = PoolExhausted(num_pages=5, num_free_pages=3, num_pool_pages=64)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (TOO_LONG, ["1000 prompt tokens", "200 to generate", "1200", "context limit of 1024"]),
        (TOO_SMALL, ["needs 1200 tokens", "pool holds 1100", "context limit of 2048 would allow it"]),
        (QUEUE_FULL, ["64 requests are waiting", "limit is 64"]),
        (EXHAUSTED, ["5 KV pages wanted", "3 of 64 are free"]),
        (
            UnsupportedModel("rope_scaling.type", "longrope", reason="no such rotation"),
            ["rope_scaling.type is 'longrope'"],
        ),
        (
            UnsupportedModel("kv_lora_rank", reason="deepseek_v3 needs it"),
            ["kv_lora_rank is missing: deepseek_v3 needs"],
        ),
    ],
)
def test_each_says_its_numbers_and_what_to_do(error, words):
    for word in words:
        assert word in str(error)
    assert error.hint
    assert "\n" not in str(error)


def test_the_context_limit_and_the_pool_limit_are_told_apart():
    assert "--max-context-len" in TOO_LONG.hint
    assert "--kv-pool-tokens" in TOO_SMALL.hint
    assert (TOO_LONG.max_context_len, TOO_SMALL.kv_pool_tokens) == (1024, 1100)


def test_when_to_come_back():
    assert QUEUE_FULL.retry_after_s == 1.5
    assert "1.5 s" in QUEUE_FULL.hint


def test_what_refuses_one_request_is_told_from_what_ends_the_engine():
    refusals = [TOO_LONG, TOO_SMALL, QUEUE_FULL, ShuttingDown(), InvalidRequest("prompt", "the prompt is empty")]
    assert all(isinstance(error, RequestRefused) for error in refusals)
    assert not isinstance(LawBroken("lost a page"), RequestRefused)
    assert not isinstance(EXHAUSTED, RequestRefused)
    assert all(isinstance(error, DeepdraftError) for error in [*refusals, EXHAUSTED, LawBroken("lost a page")])


def test_a_model_that_can_not_run_is_a_mistake_of_use():
    error = UnsupportedModel("model_type", "mamba", reason="not one of the forms")
    assert isinstance(error, UsageError)
    assert error.exit_code == 2
    assert (error.field, error.value) == ("model_type", "mamba")
