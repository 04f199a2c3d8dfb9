"""For each rule a run made to have its fault: code -> the runs (the first is the one at fault) and facts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from diagnosis_runs import (
    DEVICE,
    LENS,
    clean,
    drafted,
    header,
    joined,
    kimi,
    linear,
    measured,
    quadratic,
    table,
)
from trace_builder import reading, request, steady, trial

from deepdraft.cost.expected import ExpectedTimes
from deepdraft.diagnosis.facts import Facts
from deepdraft.records import Acceptance, DraftDecisions, ReportedFigure, Run, ServerReading

KNOWN = Facts(model=kimi(), device=DEVICE, tp_size=8)
Faulty = Callable[[], tuple[tuple[Run, ...], Facts]]
LONG = (1_000, 8_000, 32_000, 64_000, 128_000)


def _alone(run: Run, facts: Facts | None = None) -> tuple[tuple[Run, ...], Facts]:
    return (run,), facts or Facts()


def prefill_below_floor():
    return _alone(measured(lambda _: 0.05, linear(0.02, 0.0), cached=0), KNOWN)


def negative_intercept():
    """A power law, so that a straight line through it starts below zero."""
    return _alone(measured(linear(0.02, 0.05), lambda length: 0.005 * (length / 1e3) ** 1.3, lens=LONG))


def prefill_attention_bound():
    return _alone(measured(quadratic(0.05, 0.05, 0.009), linear(0.02, 0.0), lens=LONG))


def decode_grows():
    return _alone(measured(linear(0.02, 0.05), linear(0.02, 0.004)))


def decode_far_above_floor():
    """5 ms per 1k tokens over 70 kB a token: 14 GB/s."""
    return _alone(measured(linear(0.5, 0.5), linear(0.02, 0.005)), KNOWN)


def prefill_far_below_peak():
    return _alone(measured(quadratic(0.05, 0.2, 0.009), linear(0.02, 0.0), lens=LONG), KNOWN)


def decode_knee():
    step = linear(0.02, 0.0005)
    lens = (1_000, 8_000, 16_000, 32_000, 64_000, 128_000)
    law = lambda length: step(length) if length <= 64_000 else step(64_000) + 0.002 * (length - 64_000) / 1e3  # noqa: E731
    return _alone(measured(linear(0.02, 0.05), law, lens=lens))


def practical_zone():
    return _alone(measured(linear(0.02, 0.5), linear(0.02, 0.0)))


def throughput_saturates():
    one = measured(linear(0.02, 0.05), lambda _: 0.02, lens=(4_000,))
    four = measured(linear(0.02, 0.05), lambda _: 0.1, lens=(4_000,), concurrency=4)
    return _alone(joined(one, four))


def not_as_expected():
    times = tuple(ExpectedTimes(context_len=length, ttft_s=0.05, tpot_s=0.002, source="a model") for length in LENS)
    return _alone(clean(), Facts(expected=times))


def acceptance_contradiction():
    commit = ReportedFigure(values=(1.0,), definition="avg_commit_len")
    depth = ReportedFigure(values=(3.0,), definition="avg_accepted_depth")
    return _alone(table({"context_len": 4_000, "acceptance_len": commit, "accepted_len": depth}, speculation="yes"))


def step_is_token():
    rows = [(1_000, 100.0, 0.010), (8_000, 50.0, 0.020), (32_000, 10.0, 0.100)]
    points = [{"context_len": length, "decode_tok_s": rate, "step_s": step} for length, rate, step in rows]
    return _alone(table(*points, speculation="yes"))


def step_sources_disagree():
    """Counts of one token a step beside bursts of two to four."""
    wrong = Acceptance(source="meta_info", num_steps=90, num_accepted_tokens=0)
    return _alone(drafted(acceptance=lambda _: wrong))


def implied_tokens_per_step():
    return _alone(
        table(
            {"context_len": 1_000, "decode_tok_s": 100.0},
            {"context_len": 5_000, "step_s": 0.1},
            {"context_len": 8_000, "decode_tok_s": 40.0},
            speculation="yes",
        )
    )


def faster_than_autoregressive():
    return _alone(measured(linear(2.0, 0.5), lambda _: 0.001), KNOWN)


def committed_tokens_mismatch():
    lifetime = Acceptance(source="/metrics", num_steps=4_000, num_accepted_tokens=8_000, num_draft_tokens=12_000)
    return _alone(drafted(acceptance=lambda _: lifetime))


def below_one_token():
    return _alone(table({"context_len": 4_000, "acceptance_len": 0.7}, speculation="yes"))


def acceptance_near_floor():
    return _alone(drafted(tokens_per_step=lambda _: (1, 1, 1, 1, 1, 1, 1, 2)))


def acceptance_falls():
    return _alone(drafted(tokens_per_step=lambda length: (4, 6, 5) if length < 10_000 else (2, 1, 2)))


def drafter_cost_grows():
    plain = measured(linear(0.02, 0.05), linear(0.02, 0.00004))
    slow = measured(linear(0.02, 0.05), linear(0.022, 0.001), tokens_per_step=lambda _: (2, 3, 4))
    return (slow, plain), Facts()


def below_break_even():
    plain = measured(linear(0.02, 0.05), linear(0.02, 0.00004))
    slow = measured(linear(0.02, 0.05), linear(0.03, 0.002), tokens_per_step=lambda _: (2, 3, 4))
    return (slow, plain), Facts()


def draft_too_long():
    seldom = Acceptance(
        source="meta_info",
        num_steps=96,
        num_draft_tokens=96 * 15,
        num_accepted_tokens=120,
        accepted_at_depth=(70, 40, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    )
    return _alone(drafted(acceptance=lambda _: seldom))


def repetitive_workload():
    return _alone(drafted(prompt={"is_repetitive": True, "text_kind": "repetitive"}))


def acceptance_lower_on_hits():
    points = [
        {"context_len": 8_000, "acceptance_len": 3.0, "is_cold": True},
        {"context_len": 8_000, "acceptance_len": 1.3, "is_cold": False},
    ]
    return _alone(table(*points, speculation="yes"))


def drafts_without_gain():
    tree = measured(linear(0.02, 0.05), lambda _: 0.06, tokens_per_step=lambda _: (2, 3, 4))
    return (tree, drafted()), Facts()


def drafts_switched_off():
    decisions = DraftDecisions(
        rounds_by_reason={"pays": 1, "probe": 1},
        plain_steps_by_reason={"below_break_even": 28, "learning": 2},
        break_even_len=5.1,
        expected_len=2.75,
    )
    return _alone(drafted(engine="deepdraft", acceptance=lambda counts: replace(counts, decisions=decisions)))


def prefix_hits():
    return _alone(clean(cached=900, lens=(1_000,)))


def length_label():
    return _alone(table({"asked_context_len": 128_000, "context_len": 82_845, "decode_tok_s": 56.7}))


def early_stops():
    short = [
        request(steady(8, prompt=1_000), f"len1000-c1-r{place}", max_tokens=64, started_at_s=10.0 * place)
        for place in range(3)
    ]
    trials = [trial(f"len1000-c1-r{place}", repeat_index=place, started_at_s=10.0 * place) for place in range(3)]
    return _alone(Run(header=header(), measurements=tuple(short), trials=tuple(trials)))


def client_lag():
    return _alone(clean(trial_fields={"loop_lag_max_s": 0.9}))


def other_load():
    looks = {"before": reading(0.0, running=3), "after": reading(9.0, running=3)}
    return _alone(clean(trial_fields=looks))


def gauge_read_too_seldom():
    gauge = ServerReading(at_s=9.0, source="/server_info", gauges={"spec_acceptance_len": 1.0})
    run = drafted(acceptance=lambda _: None, num_steps=5, trial_fields={"after": gauge})
    return _alone(run)


def rate_includes_prefill():
    """32 tokens after 2 s of prefill and 0.62 s of decode: 12.2 tok/s by wall-clock, 50 by the stream."""
    streams = [
        request(
            steady(32, ttft_s=2.0, gap_s=0.02, server_fields={"meta_info": {"decode_throughput": 32 / 2.62}}),
            f"len1000-c1-r{place}",
            max_tokens=32,
            started_at_s=10.0 * place,
        )
        for place in range(3)
    ]
    trials = [trial(f"len1000-c1-r{place}", repeat_index=place, started_at_s=10.0 * place) for place in range(3)]
    return _alone(Run(header=header(), measurements=tuple(streams), trials=tuple(trials)))


def mixed_workloads():
    points = [
        {"context_len": 1_000, "decode_tok_s": 50.0, "workload": "code"},
        {"context_len": 8_000, "decode_tok_s": 20.0, "workload": "a novel"},
    ]
    return _alone(table(*points, speculation="yes"))


def eager_mode():
    return _alone(drafted(engine="vllm", settings={"enforce_eager": True}))


def pool_below_context_limit():
    return _alone(clean(kv_pool_tokens=101_134, max_context_len=200_000))


def reserve_below_spike():
    """8,192 tokens x 8 experts x 7,168 x 2 bytes: 0.94 GB, and 1.5 GB are left."""
    run = clean(settings={"chunked_prefill_size": 8_192})
    return _alone(run, replace(KNOWN, reserve_bytes=1.5e9))


def pool_below_load():
    return _alone(clean(kv_pool_tokens=10_000, lens=(4_000,), concurrency=4))


FAULTY: dict[str, Faulty] = {
    "D101": prefill_below_floor,
    "D102": negative_intercept,
    "D103": prefill_attention_bound,
    "D104": decode_grows,
    "D105": decode_far_above_floor,
    "D106": prefill_far_below_peak,
    "D107": decode_knee,
    "D108": practical_zone,
    "D109": throughput_saturates,
    "D110": not_as_expected,
    "D201": acceptance_contradiction,
    "D202": step_is_token,
    "D203": step_sources_disagree,
    "D204": implied_tokens_per_step,
    "D205": faster_than_autoregressive,
    "D206": committed_tokens_mismatch,
    "D207": below_one_token,
    "D208": acceptance_near_floor,
    "D209": acceptance_falls,
    "D210": drafter_cost_grows,
    "D211": below_break_even,
    "D212": draft_too_long,
    "D213": repetitive_workload,
    "D214": acceptance_lower_on_hits,
    "D215": drafts_without_gain,
    "D216": drafts_switched_off,
    "D301": prefix_hits,
    "D302": length_label,
    "D303": early_stops,
    "D304": client_lag,
    "D305": other_load,
    "D306": gauge_read_too_seldom,
    "D307": rate_includes_prefill,
    "D308": mixed_workloads,
    "D309": eager_mode,
    "D401": pool_below_context_limit,
    "D402": reserve_below_spike,
    "D403": pool_below_load,
}
