"""The collected public reports of what misleads a measuring client, each as a test under its id (C01 ... C55).

End to end where the fault is: a sweep against a server of known truth that does what the report tells, then what
Deepdraft says of it in guards, object and table. The rooms concerned have closer tests of their own.
"""

from __future__ import annotations

import asyncio
import functools
import io
import json
import re
import statistics
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from replay import pieces, replayed, without
from trace_builder import header, repeats, request, steady, trial
from truth_run import (
    DRAFTED,
    NUM_TRIES,
    QUICK,
    Swept,
    hosted,
    quiet,
    server_spec,
    sweep,
    sweep_of,
    sweep_spec,
    untimed,
)

from deepdraft.adapters import acceptance
from deepdraft.bench.limits import first_token_limit_s
from deepdraft.bench.progress import Progress
from deepdraft.bench.sweep import sweep as run_sweep
from deepdraft.errors import UsageError
from deepdraft.metrics import (
    answer_ttft_s,
    cached_tokens,
    decode_tok_s,
    event_tokens,
    first_byte_s,
    first_event_s,
    itl_s,
    num_decode_tokens,
    output_tokens,
    peak_tok_s,
    prompt_tokens,
    steps_of,
    token_times_s,
    tpot_s,
    ttft_s,
)
from deepdraft.records import Limits, Run, SweepSpec
from deepdraft.report import results_object, results_table
from deepdraft.simulate.process import running
from deepdraft.simulate.spec import Fault, Physics, SimulateSpec, Surface
from deepdraft.simulate.truth import tpot_s as true_tpot_s
from deepdraft.simulate.truth import ttft_s as true_ttft_s
from deepdraft.transport.tls import TlsOptions

CACHED = replace(QUICK, prefill_b_s=2e-4)
"""100 ms to the first token of 400 tokens, unless a cache skips them."""
AT_ONCE = Physics(prefill_a_s=0.002, step_d_s=0.001)
"""For tests that look at no times."""
MEASURED = 300
"""Faults look at prompts of at least so many tokens: at measured requests, and at no probe."""
NO_PATIENCE = Limits(first_token_s=0.5, stall_s=0.4, num_retries=0, server_wait_s=2.0)


def timed(simulated: SimulateSpec, spec: SweepSpec) -> Swept:
    """A sweep whose times are looked at; again when the machine's hiccups show in them."""
    return quiet(
        lambda: sweep(simulated, spec),
        lambda made: worst_ttft_error_s(made) < 0.003 and worst_tpot_error(made) < 0.01,
    )


def worst_ttft_error_s(made: Swept) -> float:
    """The largest difference of a TTFT of ours to what the server did."""
    return max(abs(_known(ttft_s(one.measured.trace)) - _known(true_ttft_s(one.truth))) for one in made.besides)


def worst_tpot_error(made: Swept) -> float:
    """The largest error of a time a token of ours, as a fraction of what the server did."""
    return max(abs(_known(tpot_s(one.measured.trace)) / _known(true_tpot_s(one.truth)) - 1) for one in made.besides)


def _known(value: float | None) -> float:
    assert value is not None
    return value


def assert_ttft(made: Swept) -> None:
    """Within 3 ms, what the client claims for one stream; on a busy machine as far as that was late itself."""
    late_s = max(beside.late_s for beside in made.besides) if made.is_busy else 0.0
    assert worst_ttft_error_s(made) <= 0.003 + late_s


def assert_tpot(made: Swept) -> None:
    """Within 1 %; on a busy machine as far as that was late itself."""
    late = max(one.span_late_s / (one.truth.writes[-1].time_s - one.truth.writes[0].time_s) for one in made.besides)
    assert worst_tpot_error(made) <= 0.01 + (late if made.is_busy else 0.0)


# --- prefix cache


def test_c01_the_same_command_twice_is_cold_twice():
    """C01 (vllm #52884, #54227): with the prefix cache on, a second run must not be served by the first one."""
    spec = sweep_spec(400, num_repeats=2)
    with running(server_spec("vllm", CACHED, prefix_cache=True, cached_tokens_report="counters")) as server:
        first, second = sweep_of(server, spec), sweep_of(server, spec)
    for made in (first, second):
        assert made.guards()["cold_prefix"].state == "verified"
        for beside in made.besides:
            assert beside.truth.cached_len == 0
    slack_s = 0.003 + max(beside.first_late_s for made in (first, second) for beside in made.besides)
    assert abs(first.median("ttft_s") - second.median("ttft_s")) <= 0.05 * first.median("ttft_s") + slack_s


def test_c01_a_prompt_served_from_the_cache_marks_the_point():
    """C01 (vllm #52884, #54227): whatever was served from the cache is marked, with the evidence."""
    simulated = server_spec("sglang", CACHED, prefix_cache=True, cached_tokens_report="usage")
    made = sweep(simulated, sweep_spec(400, num_repeats=2, keep_cache=True))
    assert made.guards()["cold_prefix"].evidence == (
        "1 of 2 requests were served from a cache: up to 399 of 400 prompt tokens (100 %)"
    )
    assert made.marks("ttft_s")["violated"] == ["cold_prefix"]
    assert "! cold_prefix: 1 of 2 requests were served from a cache" in made.table


@pytest.mark.parametrize(
    ("dialect", "report", "state", "evidence"),
    [
        ("openai", "usage", "violated", "up to 399 of 400 prompt tokens"),
        ("vllm", "counters", "violated", "counter of cached tokens rose by 399 over 2 requests"),
        ("transformers", "nothing", "not_verifiable", "the server tells no cached tokens"),
    ],
)
def test_c02_hits_come_from_whatever_source_exists(dialect, report, state, evidence):
    """C02 (vllm PR #53920, sglang #39651): usage, or only counters, or nothing; untold is never 0."""
    simulated = server_spec(dialect, CACHED, prefix_cache=True, cached_tokens_report=report)
    made = untimed(simulated, sweep_spec(400, num_repeats=2, keep_cache=True))
    assert made.besides[-1].truth.cached_len == 399
    guard = made.guards()["cold_prefix"]
    assert (guard.state, evidence in guard.evidence) == (state, True), guard.evidence
    told = [cached_tokens(beside.measured.trace) for beside in made.besides]
    assert told == ([0, 399] if report == "usage" else [None, None])


def test_c03_a_warm_up_shares_no_prefix_with_a_measured_prompt():
    """C03 (sglang PR #13934): the first measured request is cold although warm-ups filled the cache."""
    simulated = server_spec("sglang", CACHED, prefix_cache=True, cached_tokens_report="usage", template_len=12)
    made = untimed(simulated, sweep_spec(400, num_warmups=2))
    (beside,) = made.besides
    assert beside.truth.cached_len is not None and beside.truth.cached_len <= 12
    assert made.guards()["cold_prefix"].state == "verified"
    assert made.object["points"][0]["num_warmups"] == 2


def test_c04_a_refused_flush_is_retried_recorded_and_proves_nothing(monkeypatch):
    """C04 (sglang PR #33663): /flush_cache answers 400 while requests run: not done, and nothing rests on it."""
    monkeypatch.setattr("deepdraft.adapters.flush.FLUSH_LIMIT_S", 0.3)
    simulated = server_spec(
        "sglang", prefix_cache=True, flush="refused", cached_tokens_report="nothing", unknown_fields="400"
    )
    made = untimed(simulated, sweep_spec(400))
    (flush,) = [step for step in made.run.trials[-1].cold_steps if step.means == "flush"]
    assert not flush.is_done
    assert "HTTP 400, Flush cache failed." in flush.evidence and "(try " in flush.evidence
    guard = made.guards()["cold_prefix"]
    assert guard.state == "not_verifiable"
    assert "not done: flush (POST /flush_cache: HTTP 400" in guard.evidence


@pytest.mark.parametrize(("dialect", "state"), [("openai", "verified"), ("transformers", "not_verifiable")])
def test_c05_a_slow_first_request_is_not_called_a_hit(dialect, state):
    """C05 (omlx #1803): no cache at all, but the first request is slow: a warm-up effect, no hit."""
    simulated = server_spec(dialect, faults=[Fault(kind="late", at=(1,), delay_s=0.2, min_prompt_len=MEASURED)])
    made = sweep(simulated, sweep_spec(400, num_repeats=3))
    ttfts = [ttft_s(beside.measured.trace) for beside in made.besides]
    assert ttfts[0] > 0.2 > ttfts[1]
    guard = made.guards()["cold_prefix"]
    assert guard.state == state
    assert "served from a cache" not in guard.evidence
    if state == "not_verifiable":
        assert "a warm-up effect, or hits after it" in guard.evidence


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_c06_prompts_differ_from_the_first_token_on(route):
    """C06 (one peer puts its anti-cache text at the end of the prompt): not one leading token is shared."""
    made = untimed(
        server_spec("openai", AT_ONCE, prefix_cache=True),
        sweep_spec(400, 600, num_repeats=2, num_warmups=1, endpoint=route, decode_len=8),
    )
    heads = [one.prompt.head for one in made.run.measurements]
    assert len({head.split()[0] for head in heads if head}) == len(heads) == 5
    # Probes draw their words from elsewhere: by chance one may begin with the same word, never with the same two.
    assert all(beside.truth.cached_len <= 1 for beside in made.besides)


# --- first token


def test_c10_a_role_chunk_is_no_token():
    """C10 (vllm #3759): a role-only chunk comes at once, long before the first token."""
    simulated = server_spec("vllm", replace(QUICK, prefill_a_s=0.25), role_chunk="early", role_delay_s=0.005)
    made = timed(simulated, sweep_spec(400))
    (beside,) = made.besides
    assert_ttft(made)
    first_s = first_event_s(beside.measured.trace)
    assert first_s is not None and first_s < 0.2 < made.median("ttft_s")


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning"])
def test_c11_reasoning_is_the_first_token_under_either_key(key):
    """C11 (guidellm #737, inference-perf #559, evalscope PR #1700): 48 tokens of reasoning, the answer much later."""
    physics = Physics(prefill_a_s=0.05, step_d_s=0.12, committed_len_pattern=(4,))
    simulated = server_spec("vllm", physics, reasoning_len=48, reasoning_key=key, first_event_len=48)
    made = timed(simulated, sweep_spec(400, decode_len=56))
    (beside,) = made.besides
    assert_ttft(made)
    answer_at_s = next(write.time_s for write in beside.truth.writes if "content" in write.kinds)
    answer_s = answer_ttft_s(beside.measured.trace)
    assert answer_s == pytest.approx(answer_at_s - beside.truth.received_s, abs=0.003 + beside.late_s)
    assert answer_s > made.median("ttft_s") + 0.1
    assert output_tokens(beside.measured.trace) == 56 == beside.truth.output_len


def test_c12_an_answer_that_is_only_reasoning_has_figures():
    """C12 (sglang #23949): never any content; figures all the same, no zeros and no NaN."""
    made = timed(server_spec("sglang", only_reasoning=True), sweep_spec(400))
    assert_ttft(made)
    assert_tpot(made)
    (point,) = made.object["points"]
    assert point["answer_ttft_s"] is None  # no answer came: unknown, not 0
    for name in ("ttft_s", "tpot_s", "decode_tok_s", "prefill_tok_s", "e2el_s"):
        assert point[name]["median"] > 0
    json.dumps(made.object, allow_nan=False)


def test_c13_four_stamps_before_the_answer():
    """C13 (aisix PR #869, #929): content null, then "", then text: first byte, event, text and answer text differ."""
    simulated = server_spec(
        "vllm",
        replace(QUICK, prefill_a_s=0.06),
        role_chunk="early",
        null_events=1,
        empty_events=1,
        reasoning_len=8,
    )
    made = timed(simulated, sweep_spec(400))
    (beside,) = made.besides
    trace = beside.measured.trace
    first_s, answer_s = first_event_s(trace), answer_ttft_s(trace)
    assert trace.events.kinds.startswith("ooor")
    assert_ttft(made)
    assert 0 < first_byte_s(trace) <= first_s < ttft_s(trace) - 0.03 < ttft_s(trace) < answer_s


def test_c14_what_follows_the_last_token_is_no_decoding():
    """C14 (vllm PR #55508): usage and [DONE] long after the last token (peers read 8.17 ms for 5.0)."""
    made = timed(server_spec("vllm", trailing_pause_s=0.15), sweep_spec(400))
    (beside,) = made.besides
    assert_tpot(made)
    assert made.median("tpot_s") < 0.004 + beside.span_late_s / 31
    assert made.median("e2el_s") > made.median("ttft_s") + 0.15 + 31 * 0.003 - 0.01


def test_c15_reasoning_and_answer_add_up_to_usage():
    """C15 (tokenomics PR #16): usage counts reasoning and answer; their sum is what was generated."""
    made = untimed(server_spec("openai", DRAFTED, reasoning_len=12, continuous_usage="yes"), sweep_spec(400))
    trace = made.besides[0].measured.trace
    token_kinds = [kind for kind in trace.events.kinds if kind in "rt"]
    num_by_kind = {"r": 0, "t": 0}
    for kind, num_tokens in zip(token_kinds, event_tokens(trace).counts, strict=True):
        num_by_kind[kind] += num_tokens
    assert num_by_kind == {"r": 12, "t": 20}
    assert trace.usage.completion_tokens == 32 and trace.usage.reasoning_tokens == 12


# --- events are not tokens


def test_c20_four_tokens_an_event():
    """C20 (vllm #37666, sglang PR #33193): 4 tokens every 20 ms are 5 ms a token; the peak is not below the mean."""
    physics = replace(QUICK, step_d_s=0.02, committed_len_pattern=(4,))
    made = timed(server_spec("vllm", physics), sweep_spec(400, decode_len=33))
    (beside,) = made.besides
    assert_tpot(made)
    assert made.median("tpot_s") == pytest.approx(0.005, abs=0.0001 + beside.span_late_s / 32)
    assert peak_tok_s(beside.measured.trace) >= decode_tok_s(beside.measured.trace)
    assert made.guards()["bundled_tokens"].state == "verified"


@pytest.mark.parametrize("stated", ["yes", "no"])
def test_c21_sixteen_tokens_in_the_first_event(stated):
    """C21 (aiperf PR #1279, evalscope #721): 16 tokens come first, then 4 every 20 ms (peers are 13-16 % off)."""
    physics = replace(QUICK, step_d_s=0.02, committed_len_pattern=(4,))
    simulated = server_spec("vllm", physics, first_event_len=16, continuous_usage=stated, token_ids="no")
    made = timed(simulated, sweep_spec(400, decode_len=48))
    (beside,) = made.besides
    assert_tpot(made)
    assert num_decode_tokens(beside.measured.trace) == 32
    assert made.median("tpot_s") == pytest.approx(0.005, abs=0.0001 + beside.span_late_s / 32)


def test_c22_a_step_is_not_a_token():
    """C22 (sglang PR #12064): 1, 4, 2, 5 tokens an event: the time of a step is told from the time of a token."""
    made = sweep(server_spec("sglang", DRAFTED), sweep_spec(400, decode_len=37))
    (beside,) = made.besides
    steps = beside.truth.steps
    true_step_s = (beside.truth.writes[-1].time_s - beside.truth.writes[0].time_s) / len(steps)
    assert made.median("step_s") == pytest.approx(true_step_s, rel=0.01, abs=beside.span_late_s / len(steps))
    assert made.median("tokens_per_step") == pytest.approx(3.0)
    assert made.median("step_s") == pytest.approx(3 * made.median("tpot_s"))
    assert "ms/step: one decode or verify step, which is not ms/token" in made.table.replace("\n", " ")


def test_c23_usage_wins_over_a_tokenizer_and_the_mismatch_is_said():
    """C23 (inference-perf #580): text that a tokenizer splits three times finer than the server's usage counts."""
    simulated = server_spec("vllm", DRAFTED, retokenise=True, continuous_usage="no", token_ids="no")
    made = sweep(simulated, sweep_spec(400))
    (beside,) = made.besides
    assert output_tokens(beside.measured.trace) == 32 == beside.truth.output_len
    assert (
        "usage says 32 tokens, server tokenize endpoint counts 96; usage is used"
        in made.guards()["bundled_tokens"].evidence
    )


def test_c24_definitions_are_printed_and_tpot_leaves_prefill_out():
    """C24 (guidellm #1144): a reader sees how each figure is defined; prefill takes no part in TPOT."""
    slow, fast = (
        timed(server_spec("vllm", replace(QUICK, prefill_a_s=prefill_s)), sweep_spec(400))
        for prefill_s in (0.2, 0.02)
    )
    for made in (slow, fast):
        assert_tpot(made)
    assert slow.median("ttft_s") > 0.2 > 2 * fast.median("ttft_s")
    assert "(last - first token arrival) / tokens after the first arrival" in slow.table.replace("\n", " ")
    definition = slow.object["definitions"]["tpot_s"]
    assert definition["unit"] == "s/token" and "first token arrival" in definition["definition"]


@functools.cache
def recorded_bursts() -> Run:
    """llama.cpp-2026-10/spec_selfdraft.sse at eight times its pace, as one measured request, bursts untold."""
    for _ in range(NUM_TRIES):
        trace, failure = replayed(
            "llama.cpp-2026-10/chat_stream.headers", pieces("llama.cpp-2026-10/spec_selfdraft.sse", faster=8)
        )
        assert failure is None
        steps = steps_of(trace)
        if steps is not None and steps.num_steps == 11:  # else the machine made one burst of two, or two of one
            break
    return repeats(trace, context_len=982, speculation="yes")


def test_c25_bursts_of_arrivals_are_steps():
    """C25 (llama.cpp as recorded): an event a token, those of one verify step within a millisecond."""
    (measured,) = recorded_bursts().measurements
    timings = measured.trace.server_fields["timings"]
    steps = steps_of(measured.trace)
    assert steps is not None
    assert steps.num_steps == 63 - timings["draft_n_accepted"] == 11
    assert steps.tokens_per_step == pytest.approx(63 / 11)
    assert steps.step_s == pytest.approx(tpot_s(measured.trace) * 63 / 11)
    told = acceptance.of_llamacpp_timings(timings)
    assert told is not None and told.num_steps == steps.num_steps
    (point,) = results_object(replace(recorded_bursts(), measurements=(replace(measured, acceptance=told),)))[
        "points"
    ]
    assert point["tokens_per_step"]["median"] == pytest.approx(63 / 11)
    assert point["acceptance_len"]["median"] == pytest.approx(1 + 52 / 11)
    assert point["step_s"]["median"] == pytest.approx(steps.step_s, rel=0.01)


def test_c25_a_median_gap_near_zero_is_not_called_itl():
    """C25 (llama.cpp as recorded): half of all gaps are between events of one burst."""
    (measured,) = recorded_bursts().measurements
    trace = measured.trace
    gaps_s = [later - earlier for earlier, later in pairwise(token_times_s(trace))]
    assert statistics.median(gaps_s) < 0.1 * tpot_s(trace)
    assert 0.5 * tpot_s(trace) < itl_s(trace) < 2 * tpot_s(trace)


# --- prompts


@pytest.mark.parametrize("template_len", [7, 211])
@pytest.mark.parametrize("dialect", ["openai", "sglang", "vllm", "llamacpp", "transformers"])
def test_c30_the_template_is_part_of_the_length(dialect, template_len):
    """C30 (vllm #25544, perf_analyzer #175): the server's count, chat template included, is what was asked."""
    made = untimed(server_spec(dialect, AT_ONCE, template_len=template_len), sweep_spec(600, decode_len=4))
    (beside,) = made.besides
    assert abs(beside.truth.prompt_len - 600) <= 2
    assert prompt_tokens(beside.measured.trace) == beside.truth.prompt_len == made.point.context_len
    assert made.guards()["prompt_len"].state == "verified"


def test_c31_just_under_a_bucket():
    """C31 (tt-inference-server #4179): a prompt of 1,023 tokens must not become one of 1,030."""
    made = untimed(server_spec("sglang", AT_ONCE, template_len=7), sweep_spec(1023, 2047, decode_len=4))
    assert [beside.truth.prompt_len for beside in made.besides] == [1023, 2047]


@pytest.mark.parametrize(
    ("dialect", "source"), [("openai", "usage probes"), ("llamacpp", "server tokenize endpoint")]
)
def test_c32_an_unknown_tokenizer_is_no_obstacle(dialect, source):
    """C32 (genai-bench #81, llmperf #81): the server itself counts, by its tokenize endpoint or by usage."""
    made = untimed(server_spec(dialect, AT_ONCE, template_len=7), sweep_spec(400, decode_len=4))
    (beside,) = made.besides
    assert beside.measured.prompt.count_source == source
    assert beside.truth.prompt_len == 400


def test_c32_no_tokenizer_takes_the_place_of_the_server_s():
    """C32 (genai-bench #81, llmperf #81): where nothing counts, nothing is guessed: the sweep is refused."""
    with hosted(server_spec("openai", AT_ONCE, usage_placement="absent")) as server:
        with pytest.raises(UsageError, match="nothing counts tokens") as caught:
            sweep_of(server, sweep_spec(400))
        assert all(truth.max_tokens != 32 for truth in server.truths())  # no measured request was sent
    assert "--tokenizer" in (caught.value.hint or "")


def test_c33_a_short_answer_is_named():
    """C33 (vllm #13333, #18687): 20 tokens although 128 were asked: said, with what the decode figures rest on."""
    made = untimed(server_spec("vllm", eos_at=20, eos_beats_ignore_eos=True), sweep_spec(400, decode_len=128))
    guard = made.guards()["early_stop"]
    assert guard.state == "violated"
    words = r"ended early, the shortest at 20 of 128 \(finish: stop\); decode figures rest on 1\d tokens"
    assert re.search(words, guard.evidence)
    assert made.marks("decode_tok_s")["violated"] == ["early_stop"]
    assert "! early_stop" in made.table


@pytest.mark.parametrize("dialect", ["openai", "sglang"])
def test_c34_a_truncated_prompt_is_no_point_at_its_asked_length(dialect):
    """C34 (ollama, SGLang --allow-auto-truncate): usage says 4096 for 8192."""
    made = untimed(server_spec(dialect, AT_ONCE, truncate_prompt_to=4096), sweep_spec(8192, decode_len=4))
    guards = made.guards()
    assert guards["truncation"].state == guards["prompt_len"].state == "violated"
    assert "the server cut the prompt: 4,096 of 8,192 tokens" in guards["truncation"].evidence
    (point,) = made.object["points"]
    assert point["context_len"] == 4096 and point["asked_context_len"] == 8192
    assert made.marks("context_len")["violated"] == ["prompt_len", "truncation"]


# --- errors and streams


def failing(fault: Fault, dialect: str = "vllm", num_repeats: int = 2, **fields) -> Swept:
    """A sweep in which the first measured request is struck."""
    struck = replace(fault, at=(1,), min_prompt_len=MEASURED)
    spec = sweep_spec(400, num_repeats=num_repeats, limits=NO_PATIENCE, **fields)
    made = untimed(server_spec(dialect, faults=[struck]), spec)
    assert made.problem is None
    assert [truth.fault for truth in made.truths if truth.fault] == [fault.kind]
    assert made.point.num_failed == 1 and made.point.num_ok == num_repeats - 1
    assert made.object["points"][0]["ttft_s"]["num_samples"] == num_repeats - 1
    return made


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
def test_c40_an_error_in_the_stream_is_a_failure(dialect):
    """C40 (vllm PR #57519, sglang PR #38868, guidellm #743): HTTP 200, then an error object."""
    made = failing(Fault(kind="error_in_stream", after_tokens=8, message="The engine has died of thirst."), dialect)
    (failure,) = made.object["failures"]
    assert failure["name"] == "ErrorInStream"
    assert failure["http_status"] == 200
    assert "The engine has died of thirst." in failure["message"]
    assert "The engine has died of thirst." in made.table.replace("\n  ", " ")


def test_c41_a_stream_without_an_end_ended_early():
    """C41 (vllm PR #54628): the connection closes without [DONE] or finish_reason."""
    made = failing(Fault(kind="cut", after_tokens=8))
    (failure,) = made.object["failures"]
    assert failure["name"] == "StreamEndedEarly"
    assert "the stream ended early" in failure["message"] and "after 8 tokens" in failure["message"]
    assert failure["output_tokens"] == 8


@pytest.mark.parametrize("line_end", ["lf", "crlf", "cr"])
@pytest.mark.parametrize("gathered", [{"split_writes": True}, {"coalesce_events": 3}], ids=["split", "gathered"])
def test_c42_bytes_may_be_cut_anywhere(line_end, gathered):
    """C42 (evalscope #1638): events cut inside characters, several in one read, no space, CRLF, pings."""
    confounds = {"non_ascii": True, "no_data_space": True, "line_end": line_end, "ping_interval_s": 0.004}
    made = timed(server_spec("sglang", **confounds, **gathered), sweep_spec(400, decode_len=48))
    (beside,) = made.besides
    trace = beside.measured.trace
    assert output_tokens(trace) == 48 == beside.truth.output_len
    assert sum(event_tokens(trace).counts) == 48
    assert "k" in trace.events.kinds and "x" not in trace.events.kinds and "e" not in trace.events.kinds
    assert len(trace.output_text) == sum(trace.events.num_chars)
    assert "\ufffd" not in trace.output_text and not trace.output_text.isascii()
    assert_ttft(made)


class Terminal(io.StringIO):
    """Where progress is drawn."""

    def isatty(self) -> bool:
        return True


def test_c43_a_late_first_token_is_waited_for(tmp_path):
    """C43 (vllm-omni #5548, llm-d-benchmark PR #1787): no total limit by default; progress shows that it waits."""
    assert Limits().request_s is None
    assert first_token_limit_s(Limits(), 128_000, 0) > 400
    terminal = Terminal()
    late = Fault(kind="late", delay_s=0.8, min_prompt_len=MEASURED)
    with hosted(server_spec("vllm", faults=[late])) as server:
        outcome = asyncio.run(shown(server.url, tmp_path / "late.jsonl", Progress(num_trials=0, stream=terminal)))
    assert outcome.problem is None
    (measured,) = outcome.run.measurements
    assert measured.failure is None and ttft_s(measured.trace) > 0.8
    assert "waiting for the first token" in terminal.getvalue()


async def shown(url: str, path: Path, progress: Progress, **fields):
    """A sweep with its progress, in this loop."""
    return await run_sweep(
        sweep_spec(400, decode_len=8, **fields),
        url=url,
        path=path,
        is_resumed=False,
        headers={},
        admin_headers={},
        tls=TlsOptions(),
        progress=progress,
        command_line=("deepdraft", "sweep"),
    )


def test_c43_a_stalled_stream_has_a_limit():
    """C43 (vllm-omni #5548): tokens that stop coming are given up after the stall limit."""
    made = failing(Fault(kind="stall_stream", after_tokens=8))
    (failure,) = made.object["failures"]
    assert failure["name"] == "Stalled" and "after 8 tokens" in failure["message"]


def test_c44_no_answer_at_all_is_one_failed_request():
    """C44 (any server): one request is never answered: it fails, the run does not hang."""
    began = time.monotonic()
    made = failing(Fault(kind="stall"), num_repeats=3)
    assert time.monotonic() - began < 15
    (failure,) = made.object["failures"]
    assert failure["name"] == "Stalled"
    assert made.run.is_complete


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (413, "html", "an HTML page titled '413'"),
        (413, "string", "Payload Too Large"),
        (431, "flat", "Request Header Fields Too Large"),
        (422, "detail", "Unexpected fields in the request."),
        (429, "nested", "Too many requests."),
        (401, "bare_string", "Unauthorized by the gate"),
        (400, "nested", "Bad nested request."),
        (400, "flat", "Bad flat request."),
        (500, "string", "It broke."),
    ],
)
def test_c45_the_server_s_own_words_are_in_the_message(status, body, words):
    """C45 (rtx6kpro): every shape of error body, and Retry-After."""
    fault = Fault(kind="status", status=status, body=body, message=words, retry_after_s=7 if status == 429 else None)
    (failure,) = failing(fault).object["failures"]
    assert failure["name"] == "HttpStatus" and failure["http_status"] == status
    assert words in failure["message"] and str(status) in failure["message"]
    assert ("retry after 7 s" in failure["message"]) == (status == 429)


def test_c46_a_finish_reason_ends_a_stream_as_well_as_done():
    """C46 (transformers serve 5.24.0 as recorded): usage rides in the finish chunk, [DONE] never comes."""
    recorded = pieces("transformers-5.24.0/chat_stream.sse")
    assert not any(b"[DONE]" in piece.content for piece in recorded)
    trace, failure = replayed("transformers-5.24.0/chat_stream.headers", recorded)
    assert failure is None
    assert (trace.finish_reason, trace.saw_done) == ("length", False)
    assert trace.usage.completion_tokens == 8 and trace.usage.prompt_tokens == 36
    neither = list(without(recorded, b"finish_reason"))
    trace, failure = replayed("transformers-5.24.0/chat_stream.headers", neither)
    assert failure is not None and failure.name == "StreamEndedEarly"


def test_c46_an_end_token_without_text_is_no_answer():
    """C46 (transformers serve 5.24.0 as recorded): a role chunk at once, then only an end: no token to time."""
    recorded = pieces("transformers-5.24.0/chat_stream_timed.sse", faster=50)
    trace, failure = replayed("transformers-5.24.0/chat_stream.headers", recorded)
    assert failure is not None and failure.name == "EmptyStream"
    assert ttft_s(trace) is None


def test_c46_a_sweep_of_transformers_serve_completes():
    """C46: the same shape of stream, end to end."""
    made = untimed(server_spec("transformers", AT_ONCE), sweep_spec(400, num_repeats=2))
    assert made.problem is None and made.point.num_ok == 2
    assert all(not beside.measured.trace.saw_done for beside in made.besides)


# --- load, repeats, speculation


def test_c50_no_percentile_from_twelve_samples():
    """C50 (guidellm #243): 12 samples carry no p99: a bound is said instead."""
    made = untimed(server_spec("vllm"), sweep_spec(300, concurrencies=(4,), num_requests=12, decode_len=8))
    (point,) = made.object["points"]
    assert point["ttft_s"]["num_samples"] == 12
    assert point["percentiles"]["ttft_s"]["p99"] == {"value": None, "bound": "≥ max of 12"}
    assert point["percentiles"]["ttft_s"]["p50"]["value"] is not None
    assert "p99" not in made.table


async def keep_busy(block_s: float, pause_s: float) -> None:
    while True:
        await asyncio.sleep(pause_s)
        time.sleep(block_s)


def test_c51_a_busy_client_is_said(tmp_path):
    """C51 (tt-inference-server #259): the client's own loop is kept busy: the point is marked client-bound."""

    async def busy(url: str):
        blocker = asyncio.create_task(keep_busy(0.04, 0.01))
        try:
            return await shown(url, tmp_path / "busy.jsonl", Progress(num_trials=0, stream=None), num_repeats=2)
        finally:
            blocker.cancel()

    with running(server_spec("vllm")) as server:
        outcome = asyncio.run(busy(server.url))
    assert outcome.problem is None
    (point,) = results_object(outcome.run)["points"]
    (guard,) = [guard for guard in point["guards"] if guard["name"] == "client_lag"]
    assert guard["state"] == "violated"
    assert guard["evidence"].startswith("client-bound: the client's event loop was late by")
    assert {"ttft_s", "tpot_s"} <= set(guard["doubts"])
    assert "! client_lag: client-bound" in results_table(outcome.run)


def test_c52_acceptance_is_the_run_s_own_not_the_server_s_life():
    """C52 (sglang PR #34743): deltas over the run where counters or answers tell them."""
    physics = replace(QUICK, step_d_s=0.006, committed_len_probs=(0.5, 0.2, 0.3))
    for simulated in (
        server_spec("sglang", physics),
        server_spec("sglang", physics, unknown_fields="400"),  # older: no figures in the answers, counters only
        server_spec("vllm", physics),
    ):
        with hosted(simulated) as server:
            sweep_of(server, sweep_spec(300, decode_len=64))
            made = sweep_of(server, sweep_spec(400, decode_len=48))
        (beside,) = made.besides
        steps = beside.truth.steps
        assert made.median("acceptance_len") == pytest.approx(sum(s.committed_len for s in steps) / len(steps))


def test_c52_a_lifetime_average_is_called_one():
    """C52 (sglang PR #34743): where the gauge is all there is, it is said what it covers."""
    physics = replace(QUICK, step_d_s=0.006, committed_len_probs=(0.5, 0.2, 0.3))
    surface = Surface(metrics=False, decode_log_interval=4)
    simulated = server_spec("sglang", physics, surface=surface, unknown_fields="400")
    made = untimed(simulated, sweep_spec(400, decode_len=64))
    (source,) = made.object["points"][0]["sources"]["acceptance_len"]
    assert "an average over the server's life, not of this request" in source
    assert "an average over the server's life" in made.table.replace("\n  ", " ")
    assert "avg_spec_accept_length" not in str(made.object["points"][0]["sources"]["tokens_per_step"])


def test_c53_more_tokens_a_step_may_be_fewer_a_second():
    """C53 (Spec-Bench #29): tokens a step, time of a step and tokens a second stand side by side."""
    few, many = (
        sweep(server_spec("vllm", replace(QUICK, step_d_s=step_s, committed_len_pattern=(each,))), sweep_spec(400))
        for each, step_s in ((2, 0.006), (4, 0.03))
    )
    for name in ("tokens_per_step", "acceptance_len", "step_s"):
        assert many.median(name) > few.median(name)
    assert many.median("decode_tok_s") < few.median("decode_tok_s")
    above, below = many.table.splitlines()[3:5]
    assert above.split() == ["prefill", "decode", "ms/", "tok/", "ms/"]
    assert below.split() == ["ctx", "TTFT", "tok/s", "tok/s", "token", "step", "step", "accept", "spread", "n"]


def test_c54_per_request_means_and_token_weighted_means_are_two_figures():
    """C54 (vllm #42508): each has its name and its formula, and they are never mixed."""
    short, long = steady(11, gap_s=0.05, prompt=1000), steady(1001, gap_s=0.005, prompt=1000)
    run = Run(
        header=header(),
        measurements=tuple(
            request(one, request_index=place, max_tokens=9999) for place, one in enumerate((short, long))
        ),
        trials=(trial(concurrency=2),),
    )
    (point,) = results_object(run)["points"]
    assert point["tpot_s"]["median"] == pytest.approx(0.0275)  # one vote a request
    assert point["pooled_tpot_s"] == pytest.approx((10 * 0.05 + 1000 * 0.005) / 1010)  # one vote a token
    assert "Each figure: median of n requests, one vote each" in results_table(run).replace("\n", " ")


@pytest.mark.parametrize(("text", "nature"), [("prose", None), ("random", "random"), ("repeat", "repetitive")])
def test_c55_text_that_is_not_natural_is_labelled(text, nature):
    """C55 (vllm #52536, #33497; SPEED-Bench): natural text by default; other text is labelled, and flagged with a
    drafter."""
    assert SweepSpec(url="").text == "prose"
    made = untimed(server_spec("vllm", DRAFTED), sweep_spec(400, text=text))
    (point,) = made.object["points"]
    assert point["text"]["kinds"] == [text] and point["text"]["nature"] == nature
    assert ("text_label" in made.marks("tpot_s")["violated"]) == (nature is not None)
    assert (f"({nature})" in made.table.replace("\n", " ")) == (nature is not None)
    if nature is not None:
        assert "one is active" in point["text"]["warning"]
        plain = untimed(server_spec("vllm"), sweep_spec(400, text=text))
        assert plain.object["points"][0]["text"]["nature"] == nature
        assert "text_label" not in plain.marks("tpot_s")["violated"]
