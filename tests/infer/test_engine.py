"""One engine, few requests: what each of them gets, and what it leaves behind."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
import torch

from deepdraft.errors import UsageError
from deepdraft.infer.errors import ContextTooLong, InvalidRequest, PoolTooSmall

EOS = 256
PROMPT = list(range(40, 71))


def test_a_request_ends_after_max_tokens(tiny: Any, collect: Any, make_request: Any) -> None:
    answer = collect(tiny.engine(), [make_request("a", PROMPT, max_tokens=9)])["a"]
    assert len(answer.token_ids) == 9
    assert answer.last.finish_reason == "length"
    assert [output.num_output_tokens for output in answer.outputs] == list(range(1, 10))
    assert {output.num_prompt_tokens for output in answer.outputs} == {len(PROMPT)}
    assert answer.text == tiny.tokenizer.decode(answer.token_ids, skip_special=True)


def test_stop_token_ids_and_eos(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    free = collect(tiny_llama.engine(), [make_request("a", PROMPT, max_tokens=20)])["a"].token_ids
    stop = next(token_id for place, token_id in enumerate(free) if place >= 4 and token_id not in free[:place])
    answer = collect(tiny_llama.engine(), [make_request("a", PROMPT, max_tokens=20, stop_token_ids=(stop,))])["a"]
    assert answer.token_ids == free[: free.index(stop) + 1]
    assert answer.last.finish_reason == "stop"


def test_eos_ends_unless_ignored(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    """Drawn from a nearly flat distribution, EOS comes by itself: one seed is looked for that brings it early."""
    requests = [make_request(str(seed), PROMPT, max_tokens=20, temperature=50.0, seed=seed) for seed in range(60)]
    free = {name: answer.token_ids for name, answer in collect(tiny_llama.engine(), requests).items()}
    name, tokens = next((name, tokens) for name, tokens in free.items() if EOS in tokens[1:-1])
    params = {"max_tokens": 20, "temperature": 50.0, "seed": int(name)}
    ended = collect(tiny_llama.engine(), [make_request("a", PROMPT, ignore_eos=False, **params)])["a"]
    assert ended.token_ids == tokens[: tokens.index(EOS) + 1]
    assert ended.last.finish_reason == "stop"
    assert len(free[name]) == 20


def test_min_tokens_keep_the_ends_away(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    free = collect(tiny_llama.engine(), [make_request("a", PROMPT, max_tokens=20)])["a"].token_ids
    params = {"max_tokens": 20, "stop_token_ids": (free[0], free[1]), "min_tokens": 6}
    answer = collect(tiny_llama.engine(), [make_request("a", PROMPT, **params)])["a"]
    assert not {free[0], free[1]} & set(answer.token_ids[:6])
    assert len(answer.token_ids) >= 7 or answer.last.finish_reason == "length"


def test_a_stop_string(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    params = {"max_tokens": 40, "temperature": 3.0, "seed": 5}
    free = collect(tiny_llama.engine(), [make_request("a", PROMPT, **params)])["a"]
    stop = free.text[9:12]
    answer = collect(tiny_llama.engine(), [make_request("a", PROMPT, stop=(stop, "no such text"), **params)])["a"]
    assert answer.text == free.text[: free.text.index(stop)]
    assert answer.last.finish_reason == "stop"
    assert answer.token_ids == free.token_ids[: len(answer.token_ids)]


def test_logprobs_of_chosen_and_likeliest(tiny: Any, collect: Any, make_request: Any) -> None:
    greedy = collect(tiny.engine(), [make_request("a", PROMPT, max_tokens=6, num_logprobs=3)])["a"]
    assert [logprob.token_id for logprob in greedy.logprobs] == greedy.token_ids
    for logprob in greedy.logprobs:
        assert logprob.alternatives[0] == (logprob.token_id, pytest.approx(logprob.logprob))
        assert len(logprob.alternatives) == 3
    # The same text again as a prompt: the prefill's logits give the same log-probability as decode did.
    again = make_request("b", [*PROMPT, *greedy.token_ids[:-1]], max_tokens=1, num_logprobs=0)
    last = collect(tiny.engine(), [again])["b"].logprobs[0]
    assert last.logprob == pytest.approx(greedy.logprobs[-1].logprob, abs=1e-4)
    assert not collect(tiny.engine(), [make_request("a", PROMPT)])["a"].logprobs


def test_cached_tokens_are_counted_in_whole_pages(tiny: Any, collect: Any, make_request: Any) -> None:
    engine = tiny.engine(page_size=4)
    first = collect(engine, [make_request("a", PROMPT, max_tokens=6)])["a"]
    assert {output.num_cached_tokens for output in first.outputs} == {0}
    same = collect(engine, [make_request("b", PROMPT, max_tokens=6)])["b"]
    assert {output.num_cached_tokens for output in same.outputs} == {28}  # of 31; the last is always computed
    assert same.token_ids == first.token_ids
    # The answer is cached as well, but for its last token, which was never run.
    longer = [*PROMPT, *first.token_ids, 1, 2]
    assert collect(engine, [make_request("c", longer)])["c"].last.num_cached_tokens == 36
    stats = engine.stats()
    assert (stats.num_prompt_tokens_total, stats.num_cached_tokens_total) == (31 + 31 + 39, 28 + 36)


def test_a_hit_gives_what_a_cold_start_gives(tiny: Any, collect: Any, make_request: Any) -> None:
    warm, rng = tiny.engine(kv_pool_tokens=1024), random.Random(1)
    trunk = [rng.randrange(256) for _ in range(60)]
    for number in range(12):
        prompt = [*trunk[: rng.randrange(60)], *(rng.randrange(256) for _ in range(rng.randrange(1, 9)))]
        request = make_request(str(number), prompt, max_tokens=8)
        hit = collect(warm, [request])[str(number)]
        assert hit.token_ids == collect(tiny.engine(), [request])[str(number)].token_ids
    assert warm.stats().num_cached_tokens_total > 60


def test_without_a_radix_cache(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    engine = tiny_llama.engine(has_radix_cache=False)
    answers = [collect(engine, [make_request("a", PROMPT)])["a"] for _ in range(2)]
    assert answers[0].token_ids == answers[1].token_ids
    assert answers[1].last.num_cached_tokens == 0
    assert engine.stats().num_free_pages == engine.stats().num_pool_pages
    assert engine.flush_cache()


def test_preemption_changes_nothing(tiny: Any, collect: Any, make_request: Any) -> None:
    requests = [make_request(str(n), range(n, n + 20), max_tokens=30, num_logprobs=0) for n in range(3)]
    alone = {request.request_id: collect(tiny.engine(), [request])[request.request_id] for request in requests}
    for has_radix_cache in (True, False):
        engine = tiny.engine(kv_pool_tokens=96, has_radix_cache=has_radix_cache)
        answers = collect(engine, requests)
        assert engine.stats().num_preemptions_total > 0
        assert sum(record.num_preemptions for record in engine.steps) == engine.stats().num_preemptions_total
        for name, answer in answers.items():
            assert answer.token_ids == alone[name].token_ids
            assert [logprob.logprob for logprob in answer.logprobs] == pytest.approx(
                [logprob.logprob for logprob in alone[name].logprobs], abs=1e-4
            )


def test_a_request_as_large_as_the_pool(tiny: Any, collect: Any, make_request: Any) -> None:
    engine = tiny.engine(kv_pool_tokens=40)
    requests = [make_request(str(n), range(n, n + 31), max_tokens=9) for n in range(3)]
    answers = collect(engine, requests)
    assert [len(answer.token_ids) for answer in answers.values()] == [9, 9, 9]


def test_refusals_leave_the_engine_as_it_was(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    engine = tiny_llama.engine(max_context_len=100, kv_pool_tokens=64)
    engine.submit(make_request("a", PROMPT))
    for request, refusal in (
        (make_request("b", PROMPT, max_tokens=70), ContextTooLong),
        (make_request("b", PROMPT, max_tokens=34), PoolTooSmall),
        (make_request("b", [], max_tokens=3), InvalidRequest),
        (make_request("a", PROMPT), InvalidRequest),
    ):
        with pytest.raises(refusal):
            engine.submit(request)
    assert (engine.stats().num_waiting, engine.stats().num_submitted_total) == (1, 1)
    assert len(collect(engine)["a"].token_ids) == 8


def test_a_name_may_be_used_again_after_its_request_ended(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    engine = tiny_llama.engine()
    assert collect(engine, [make_request("a", PROMPT)])["a"].token_ids
    assert collect(engine, [make_request("a", PROMPT)])["a"].token_ids


def test_abort_frees_at_once_in_every_state(tiny: Any, make_request: Any, collect: Any) -> None:
    engine = tiny.engine(chunk_len=16, has_radix_cache=False)
    for name in ("decodes", "prefills", "waits"):
        engine.submit(make_request(name, PROMPT, max_tokens=20))
    for _ in range(3):
        engine.step()
    assert engine.stats().num_running == 2 and engine.stats().num_waiting == 1
    held = engine.stats().num_held_pages
    for name, num_freed in (("prefills", True), ("waits", False), ("decodes", True)):
        assert engine.abort(name)
        assert (engine.stats().num_held_pages < held) == num_freed
        held = engine.stats().num_held_pages
        engine.check()
    assert engine.stats().num_free_pages == engine.stats().num_pool_pages
    assert engine.has_work
    outputs = {output.request_id: output for output in engine.step()}
    assert {name: output.finish_reason for name, output in outputs.items()} == dict.fromkeys(outputs, "abort")
    assert set(outputs) == {"decodes", "prefills", "waits"}
    assert outputs["decodes"].token_ids == () and outputs["decodes"].num_output_tokens > 0
    assert not engine.has_work
    assert engine.stats().num_aborted_total == 3


def test_abort_of_what_is_not_here(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    engine = tiny_llama.engine()
    assert not engine.abort("a")
    collect(engine, [make_request("a", PROMPT)])
    assert not engine.abort("a")
    assert not engine.has_work


def test_flush_only_when_idle(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    engine = tiny_llama.engine()
    engine.submit(make_request("a", PROMPT))
    assert not engine.flush_cache()
    engine.step()
    assert not engine.flush_cache()
    collect(engine)
    assert engine.stats().num_cached_pages > 0
    assert engine.flush_cache()
    assert engine.stats().num_free_pages == engine.stats().num_pool_pages
    assert collect(engine, [make_request("b", PROMPT)])["b"].last.num_cached_tokens == 0


def test_a_step_without_work(tiny_llama: Any) -> None:
    engine = tiny_llama.engine()
    assert not engine.has_work
    assert engine.step() == ()
    assert engine.steps.num_steps == 0


def test_decode_is_not_starved_by_a_long_prompt(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    engine = tiny_llama.engine(chunk_len=8)
    engine.submit(make_request("runs", PROMPT[:5], max_tokens=40))
    engine.step()
    engine.submit(make_request("long", [token_id % 256 for token_id in range(150)], max_tokens=2))
    collect(engine)
    kinds = [record.kind for record in engine.steps]
    num_prefills = kinds.count("prefill")
    assert num_prefills == 1 + -(-150 // 8)
    assert kinds[1 : 2 * num_prefills - 1] == ["decode", "prefill"] * (num_prefills - 1)


def test_every_step_is_recorded(tiny: Any, collect: Any, make_request: Any) -> None:
    engine = tiny.engine(chunk_len=16, page_size=4)
    answers = collect(engine, [make_request("a", PROMPT, max_tokens=4), make_request("b", PROMPT[:3], max_tokens=3)])
    records = list(engine.steps)
    assert [(record.kind, record.context_lens, record.num_tokens) for record in records[:4]] == [
        ("prefill", (0,), 16),
        ("prefill", (16, 0), 16),
        ("decode", (31,), 1),
        ("prefill", (1,), 2),
    ]
    assert [record.num_first_tokens for record in records[:4]] == [0, 1, 0, 1]
    num_completion_tokens = sum(len(answer.token_ids) for answer in answers.values())
    assert sum(record.num_committed_tokens + record.num_first_tokens for record in records) == num_completion_tokens
    assert sum(record.num_first_tokens for record in records) == 2
    for earlier, later in pairwise(records):
        assert earlier.started_s <= later.started_s
    for record in records:
        parts = record.schedule_s + record.forward_s + record.sample_s + record.commit_s
        assert 0 < parts <= record.seconds * 1.001
        assert record.forward_s > 0


def test_seeds(tiny_llama: Any, collect: Any, make_request: Any) -> None:
    def outputs(seed: int | None) -> tuple[int, ...]:
        request = make_request("a", PROMPT, max_tokens=12, temperature=4.0, seed=seed)
        return tuple(collect(tiny_llama.engine(), [request])["a"].token_ids)

    assert outputs(1) == outputs(1)
    assert len({outputs(seed) for seed in range(5)}) == 5
    assert outputs(None) != outputs(None), "a seed is drawn for a request that names none"


def test_a_sampled_request_without_heat_is_greedy(tiny: Any, collect: Any, make_request: Any) -> None:
    greedy = collect(tiny.engine(), [make_request("a", PROMPT, max_tokens=12)])["a"]
    cold = collect(tiny.engine(), [make_request("a", PROMPT, max_tokens=12, temperature=1e-9, seed=3)])["a"]
    assert cold.token_ids == greedy.token_ids


def test_settings_that_name_nothing(tiny_llama: Any) -> None:
    with pytest.raises(UsageError):
        tiny_llama.engine(attention_backend="no such")
    with pytest.raises(UsageError):
        tiny_llama.engine(kv_dtype="int8")


def test_a_pool_in_half_precision_is_close(tiny: Any, collect: Any, make_request: Any) -> None:
    """Rows rounded to 8 bits of mantissa move log-probabilities, but not far."""
    request = make_request("a", PROMPT, max_tokens=1, num_logprobs=0)
    exact = collect(tiny.engine(), [request])["a"].logprobs[0]
    engine = tiny.engine(kv_dtype="bfloat16")
    assert engine.pool.layer(0).keys.dtype is torch.bfloat16
    alternatives = collect(engine, [make_request("a", PROMPT, max_tokens=1, num_logprobs=264)])["a"].logprobs[0]
    assert dict(alternatives.alternatives)[exact.token_id] == pytest.approx(exact.logprob, abs=0.5)
