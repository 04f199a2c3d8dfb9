"""With each confound switched on the right guard speaks; with it off none does.

TABLE says for every ready spec of the server of known truth what must be said, and SERVED_FROM_CACHE and MORE what
must be said of confounds that need more than the spec. A guard that is not named there must not be "violated". Guards
that judge the machine as well (client_lag, drift, event_clock) may be, where the truth log shows that the machine was
late; everywhere else that would be crying wolf.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from lawful import METHODS, NOISES, lawful
from truth_run import (
    DRAFTED,
    MACHINE_GUARDS,
    QUICK,
    SLIPPED_S,
    Swept,
    quiet,
    server_spec,
    sweep,
    sweep_spec,
    untimed,
)

from deepdraft.metrics import ttft_s
from deepdraft.simulate.patterns import PATTERNS
from deepdraft.simulate.spec import DIALECTS, DialectName, Physics, SimulateSpec

FOUR = replace(QUICK, step_d_s=0.012, committed_len_pattern=(4,))
"""4 tokens a step of 12 ms."""
SLOWER = replace(QUICK, prefill_a_s=0.05)
THREE_POINTS = {"context_lens": (300, 600, 900), "num_repeats": 3}


@dataclass(frozen=True, kw_only=True)
class Says:
    """What must be said of a server."""

    guards: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Guard -> state, and a pattern that its evidence matches."""
    doubted: tuple[str, ...] = ()
    """Figures that must carry a mark."""
    clear: tuple[str, ...] = ("ttft_s",)
    """Figures that no guard but those of the machine may mark."""
    dialect: DialectName = "vllm"
    physics: Physics | None = None
    """Instead of the spec's own, to be quicker."""
    confounds: Mapping[str, Any] = field(default_factory=dict)
    """On top of the spec's own."""
    sweep: Mapping[str, Any] = field(default_factory=dict)


VIOLATED, UNTOLD = "violated", "not_verifiable"
NOTHING = Says(clear=("ttft_s", "tpot_s"))
SPLIT = (VIOLATED, r"tokens in \d+ events, split by characters.*time a token lies between")
EQUAL = (UNTOLD, "every burst holds exactly 4 tokens.*something that gathers tokens on the way")
GATHERED = (VIOLATED, "arrivals bring .* tokens, the engine commits 1.0 a step")
UNTOLD_HITS = (UNTOLD, "the server tells no cached tokens; done against hits: unique_head")

TABLE: Mapping[str, Says] = {
    # several tokens an event: a server that does not say how many leaves the time of a token in doubt
    "plain": NOTHING,
    "four_tokens_an_event": Says(
        dialect="openai",
        physics=FOUR,
        guards={"bundled_tokens": SPLIT, "event_clock": EQUAL},
        doubted=("tpot_s", "decode_tok_s", "step_s"),
    ),
    "large_first_event": Says(
        dialect="openai", physics=FOUR, guards={"bundled_tokens": SPLIT}, doubted=("tpot_s", "decode_tok_s", "step_s")
    ),
    "mixed_events": Says(
        dialect="openai", physics=DRAFTED, guards={"bundled_tokens": SPLIT}, doubted=("tpot_s", "decode_tok_s")
    ),
    "token_bursts": Says(
        dialect="openai", physics=FOUR, guards={"event_clock": EQUAL}, doubted=("step_s", "tokens_per_step")
    ),
    "held_back_tokens": Says(guards={"event_clock": GATHERED}, doubted=("ttft_s", "itl_s"), clear=("tpot_s",)),
    "continuous_usage": Says(
        dialect="openai", physics=FOUR, guards={"event_clock": EQUAL}, doubted=("step_s",), clear=("tpot_s",)
    ),
    # before the first token: none of it is a token, so nothing is wrong
    "early_role_chunk": NOTHING,
    "no_role_chunk": NOTHING,
    "null_and_empty_events": NOTHING,
    "progress_events": NOTHING,
    "pings": replace(NOTHING, confounds={"ping_interval_s": 0.005}),
    "late_first_token": replace(NOTHING, confounds={"first_token_delay_s": 0.1}),  # from outside that is prefill
    # kinds of tokens
    "reasoning_then_answer": replace(NOTHING, confounds={"reasoning_len": 16}),
    "reasoning_other_key": replace(NOTHING, confounds={"reasoning_len": 16}),
    "only_reasoning": NOTHING,
    "tool_calls": NOTHING,
    "words_that_retokenise": NOTHING,
    "non_ascii": NOTHING,
    # after the last token
    "late_usage": replace(NOTHING, confounds={"trailing_pause_s": 0.1}),
    "usage_in_finish_chunk": NOTHING,
    "no_usage": Says(
        confounds={"continuous_usage": "no", "token_ids": "no"},
        guards={
            "bundled_tokens": (UNTOLD, "the server counts no output tokens; counted with tokenizer"),
            "prompt_len": (UNTOLD, "counts no prompt tokens"),
            "truncation": (UNTOLD, "counts no prompt tokens"),
        },
        doubted=("tpot_s", "context_len", "prefill_tok_s"),
    ),
    "no_done": NOTHING,
    # bytes
    "no_space_after_data": NOTHING,
    "crlf_line_ends": NOTHING,
    "cr_line_ends": NOTHING,
    "split_writes": NOTHING,
    "coalesced_events": Says(guards={"event_clock": GATHERED}, doubted=("ttft_s", "itl_s"), clear=("tpot_s",)),
    # lengths
    "early_eos": Says(
        guards={
            "early_stop": (VIOLATED, r"ended early, the shortest at 20 of 32 \(finish: stop\).* rest on 1\d tokens")
        },
        doubted=("tpot_s", "decode_tok_s", "e2el_s"),
    ),
    "short_output": Says(
        guards={"early_stop": (VIOLATED, r"the shortest at 20 of 32 \(finish: length\).* rest on 1\d tokens")},
        doubted=("tpot_s", "decode_tok_s", "e2el_s"),
    ),
    "truncated_prompt": Says(
        confounds={"truncate_prompt_to": 600},
        sweep={"context_lens": (1200,)},
        guards={
            "truncation": (VIOLATED, "the server cut the prompt: 600 of 1,200 tokens"),
            "prompt_len": (VIOLATED, "counts 600 prompt tokens, asked 1,200"),
        },
        doubted=("context_len",),
    ),
    "short_template": NOTHING,
    "long_template": NOTHING,
    # speed
    "slow_first_request": replace(NOTHING, confounds={"slow_first_requests": 100, "slow_first_s": 0.02}),
    "drift": Says(
        physics=SLOWER,
        sweep=THREE_POINTS,
        guards={"drift": (VIOLATED, "TTFT rose by .* from the first repeat to the last of 3")},
        doubted=("ttft_s", "prefill_tok_s", "tpot_s"),
        clear=(),
    ),
    "background_load": Says(
        guards={"background_load": (VIOLATED, "requests of others ran|the server counted .* of which at most")},
        doubted=("ttft_s", "tpot_s", "decode_tok_s"),
        clear=(),
    ),
    # prefix cache: unique heads keep every prompt cold, whatever the server says of it (see SERVED_FROM_CACHE)
    "prefix_cache": Says(dialect="openai"),
    "silent_prefix_cache": Says(
        dialect="openai", guards={"cold_prefix": UNTOLD_HITS}, doubted=("ttft_s", "prefill_tok_s"), clear=("tpot_s",)
    ),
    "lying_prefix_cache": Says(dialect="openai"),
}

CACHED = replace(QUICK, prefill_a_s=0.005, prefill_b_s=1e-4)
KEPT = {"num_repeats": 3, "keep_cache": True}
HIT = r"2 of 3 requests were served from a cache: up to \d+ of 400 prompt tokens"
SERVED_FROM_CACHE: Mapping[str, Says] = {
    "told in usage, sglang": Says(
        dialect="sglang",
        physics=CACHED,
        confounds={"prefix_cache": True, "cached_tokens_report": "usage"},
        sweep=KEPT,
        guards={"cold_prefix": (VIOLATED, HIT)},
        doubted=("ttft_s", "prefill_tok_s"),
        clear=("tpot_s",),
    ),
    "told in timings, llamacpp": Says(
        dialect="llamacpp",
        physics=CACHED,
        confounds={"prefix_cache": True},
        sweep=KEPT,
        guards={"cold_prefix": (VIOLATED, HIT)},
        doubted=("ttft_s", "prefill_tok_s"),
        clear=("tpot_s",),
    ),
    "told in usage, openai": Says(
        dialect="openai",
        physics=CACHED,
        confounds={"prefix_cache": True},
        sweep=KEPT,
        guards={"cold_prefix": (VIOLATED, HIT)},
        doubted=("ttft_s", "prefill_tok_s"),
        clear=("tpot_s",),
    ),
    "counted in metrics only, vllm": Says(
        dialect="vllm",
        physics=CACHED,
        confounds={"prefix_cache": True, "cached_tokens_report": "counters"},
        sweep=KEPT,
        guards={"cold_prefix": (VIOLATED, "the server's counter of cached tokens rose by 798 over 3 requests")},
        doubted=("ttft_s", "prefill_tok_s"),
        clear=("tpot_s",),
    ),
    "told nowhere, transformers": Says(
        dialect="transformers",
        physics=CACHED,
        confounds={"prefix_cache": True},
        sweep=KEPT,
        guards={
            "cold_prefix": (UNTOLD, "the first TTFT is .* times the later ones: a warm-up effect, or hits after it")
        },
        doubted=("ttft_s", "prefill_tok_s"),
        clear=("tpot_s",),
    ),
    "denied, openai": Says(
        dialect="openai",
        physics=CACHED,
        confounds={"prefix_cache": True, "cached_tokens_report": "zero"},
        sweep=KEPT,
        guards={"cold_prefix": (UNTOLD, "says 0 cached tokens.* the first TTFT is .* times the later ones")},
        doubted=("ttft_s", "prefill_tok_s"),
        clear=("tpot_s",),
    ),
}


MORE: Mapping[str, Says] = {
    "drift, faster and faster": Says(
        physics=SLOWER,
        confounds={"drift_frac": -0.04},
        sweep=THREE_POINTS,
        guards={"drift": (VIOLATED, "TTFT fell by .* from the first repeat to the last of 3")},
        doubted=("ttft_s", "tpot_s"),
        clear=(),
    ),
    "background load, sglang": Says(
        dialect="sglang",
        confounds={"background_requests": 2, "background_slowdown": 1.5, "background_tok_s": 300.0},
        guards={"background_load": (VIOLATED, "requests of others ran|the server counted .* of which at most")},
        doubted=("ttft_s", "tpot_s"),
        clear=(),
    ),
    "background load, llamacpp": Says(
        dialect="llamacpp",
        confounds={"background_requests": 2, "background_slowdown": 1.5, "background_tok_s": 300.0},
        guards={"background_load": (VIOLATED, "requests of others ran|the server counted .* of which at most")},
        doubted=("ttft_s", "tpot_s"),
        clear=(),
    ),
    "tokens held back, untold": Says(
        dialect="openai",
        physics=QUICK,
        confounds={"stream_interval": 4},
        sweep={"decode_len": 48},
        guards={"event_clock": EQUAL, "bundled_tokens": SPLIT},
        doubted=("ttft_s", "step_s", "tpot_s"),
        clear=(),
    ),
    "a prompt cut below what every probe needs": Says(
        dialect="openai",
        physics=QUICK,
        confounds={"truncate_prompt_to": 64},
        guards={
            "truncation": (UNTOLD, "never counted more than 64 tokens when a prompt of 400 was made"),
            "prompt_len": (VIOLATED, "counts 64 prompt tokens, asked 400"),
        },
        doubted=("context_len",),
    ),
}


def simulated(says: Says, spec: SimulateSpec) -> SimulateSpec:
    """The ready spec, quicker, with the changes of the table."""
    physics = says.physics or replace(
        spec.physics, prefill_a_s=0.005, step_d_s=QUICK.step_d_s * spec.physics.max_committed_len
    )
    return replace(spec, dialect=says.dialect, physics=physics, confounds=replace(spec.confounds, **says.confounds))


def swept_as(says: Says, spec: SimulateSpec) -> Swept:
    """One sweep; again when it is the machine's guards that must speak and the machine itself was late."""
    fields = {"decode_len": 32, **says.sweep}
    asked = sweep_spec(*fields.pop("context_lens", (400,)), **fields)
    if not MACHINE_GUARDS & set(says.guards):
        return untimed(simulated(says, spec), asked)
    return quiet(lambda: sweep(simulated(says, spec), asked), lambda made: _are_said(says, made))


def _are_said(says: Says, made: Swept) -> bool:
    reports = made.guards(made.points[-1])
    is_on_time = all(made.slip_s(point) < SLIPPED_S for point in made.points)
    return is_on_time or all(reports[name].state == state for name, (state, _) in says.guards.items())


def hold(says: Says, made: Swept) -> None:
    """What must be said is said, in the guards, the object and the table, and nothing else is."""
    assert made.problem is None
    point = made.points[-1]
    reports = made.guards(point)
    for name, (state, words) in says.guards.items():
        assert reports[name].state == state, reports[name].evidence
        assert re.search(words, reports[name].evidence), reports[name].evidence
    others = [
        f"{report.name}: {report.evidence}"
        for report in reports.values()
        if report.state == VIOLATED and report.name not in says.guards and report.name not in MACHINE_GUARDS
    ]
    assert not others
    in_doubt = made.object["points"][-1]["in_doubt"]
    for figure in says.doubted:
        assert figure in in_doubt
        marked_by = {*in_doubt[figure]["violated"], *in_doubt[figure]["not_verifiable"]}
        assert marked_by & set(says.guards)
    for figure in says.clear:
        marks = in_doubt.get(figure, {"violated": [], "not_verifiable": []})
        assert not {*marks["violated"], *marks["not_verifiable"]} - MACHINE_GUARDS
    for name, (state, _) in says.guards.items():
        if reports[name].doubts:
            assert re.search(rf"^{'!' if state == VIOLATED else '[?]'} {name}", made.table, re.MULTILINE)


def test_the_table_knows_every_pattern():
    assert set(TABLE) == set(PATTERNS)


@pytest.mark.parametrize("name", PATTERNS)
def test_with_the_confound_on_the_right_guard_speaks(name):
    says = TABLE[name]
    made = swept_as(says, PATTERNS[name])
    hold(says, made)
    for beside in made.besides:  # whatever else it does, no text is stamped before it was sent
        ours = ttft_s(beside.measured.trace)
        assert ours is not None
        assert ours >= beside.truth.writes[0].time_s - beside.truth.received_s
        assert beside.measured.trace.usage is None or (
            beside.measured.trace.usage.completion_tokens == beside.truth.output_len
        )


@pytest.mark.parametrize("name", SERVED_FROM_CACHE)
def test_a_prompt_that_is_sent_again_is_found_out(name):
    hold(SERVED_FROM_CACHE[name], swept_as(SERVED_FROM_CACHE[name], PATTERNS["plain"]))


@pytest.mark.parametrize("name", MORE)
def test_what_needs_more_than_a_ready_spec_is_said_too(name, monkeypatch):
    monkeypatch.setattr("deepdraft.adapters.flush.FLUSH_LIMIT_S", 0.1)  # a server at work refuses to flush
    hold(MORE[name], swept_as(MORE[name], PATTERNS["plain"]))


UNTOLD_BY: Mapping[str, frozenset[str]] = {
    "openai": frozenset({"background_load", "simulated_acceptance"}),
    "transformers": frozenset({"background_load", "cold_prefix", "simulated_acceptance"}),
}


@functools.cache
def clean(dialect: DialectName) -> Swept:
    """A server that does nothing wrong, without a drafter."""
    spec = sweep_spec(300, 600, num_repeats=3, num_warmups=1)
    return quiet(
        lambda: sweep(server_spec(dialect, replace(QUICK, prefill_a_s=0.03), template_len=7), spec),
        lambda made: not made.unexcused(),
    )


@pytest.mark.parametrize("dialect", DIALECTS)
def test_with_every_confound_off_no_guard_cries_wolf(dialect):
    made = clean(dialect)
    assert made.problem is None
    assert made.unexcused() == []
    for point in made.points:
        reports = made.guards(point)
        # What the server tells is believed; what it does not tell is not taken for well.
        untold = UNTOLD_BY.get(dialect, frozenset())
        states = {name: report.state for name, report in reports.items() if name not in MACHINE_GUARDS}
        assert states == {name: "not_verifiable" if name in untold else "verified" for name in states}


@pytest.mark.parametrize("noise_frac", NOISES)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dialect", ["sglang", "vllm", "llamacpp"])
def test_with_a_drafter_and_noise_no_guard_cries_wolf(dialect, method, noise_frac):
    assert told_of_server(lawful(dialect, method, noise_frac)) == []


@pytest.mark.parametrize("noise_frac", NOISES)
def test_a_drafter_that_nobody_tells_of_leaves_the_split_in_doubt_and_nothing_else(noise_frac):
    said = told_of_server(lawful("openai", "streaming", noise_frac))
    assert {words.split(": ")[1] for words in said} == {"bundled_tokens"}
    assert told_of_server(lawful("openai", "two-point", noise_frac)) == []  # totals are enough there


def told_of_server(made: Swept) -> list[str]:
    """What is violated and neither the machine's doing nor about the client (two repeats show a single hiccup)."""
    return [words for words in made.unexcused() if "client_lag" not in words]
