"""Points beyond what the server can hold are refused before they are sent, with the reason."""

from __future__ import annotations

import pytest

from deepdraft.simulate.spec import Confounds

LONG = 700


def longest_sent(server) -> int:
    return max(truth.prompt_len or 0 for truth in server.truths())


@pytest.mark.parametrize(
    ("limits", "flags", "reason"),
    [
        (
            {"max_context_len": 1_004},
            ("--context-len", "300,1k"),
            "1,000 prompt + 8 output tokens exceed the server's context limit of 1,004",
        ),
        (
            {"kv_pool_tokens": 1_000},
            ("--context-len", "300,1k"),
            "1,000 prompt + 8 output tokens exceed the KV pool of 1,000 tokens",
        ),
        (
            {"max_context_len": 1_016},
            ("--context-len", "300,1k", "--method", "two-point", "--decode-len", "16"),
            "1,000 prompt + 17 output tokens exceed the server's context limit of 1,016",
        ),
    ],
)
def test_beyond_a_limit(called, simulated, physics, brief, recorded, tmp_path, limits, flags, reason) -> None:
    server = simulated(physics=physics(**limits))
    ran = called("sweep", server.url, *brief, *flags, "--out", "out.jsonl")
    assert ran.code == 1
    assert f"not sent: 1,000 tokens x 1: {reason}" in ran.err
    assert f"Not sent (1.0k): {reason}" in " ".join(ran.out.split())
    run = recorded(tmp_path / "out.jsonl")
    assert [(refusal.context_len, refusal.reason) for refusal in run.refusals] == [(1000, reason)]
    assert {result.prompt.asked_len for result in run.measurements} == {300}
    assert run.is_complete
    assert longest_sent(server) < LONG


def test_a_point_that_just_fits_is_sent(called, simulated, physics, brief) -> None:
    server = simulated(physics=physics(max_context_len=1_008))
    ran = called("sweep", server.url, *brief, "--context-len", "1k", "--out", "out.jsonl")
    assert ran.code == 0, ran.err
    assert longest_sent(server) == 1000


def test_too_many_at_once_for_the_pool(called, simulated, physics, brief, measured, recorded, tmp_path) -> None:
    server = simulated(physics=physics(kv_pool_tokens=3_000))
    ran = called("sweep", server.url, *brief, "--context-len", "1k", "--concurrency", "1,2,4", "--out", "out.jsonl")
    assert ran.code == 1
    reason = "4 requests of 1,008 tokens exceed the KV pool of 3,000"
    assert f"Not sent (1.0k x 4): {reason}" in " ".join(ran.out.split())
    assert set(measured(tmp_path / "out.jsonl")) == {(1000, 1), (1000, 2)}
    assert sum(1 for truth in server.truths() if (truth.prompt_len or 0) >= LONG) == 3
    assert [(one.context_len, one.concurrency) for one in recorded(tmp_path / "out.jsonl").refusals] == [(1000, 4)]


def test_nothing_fits(called, simulated, physics, brief, recorded, tmp_path) -> None:
    server = simulated(physics=physics(max_context_len=900))
    ran = called("sweep", server.url, *brief, "--context-len", "1k,2k", "--warmups", "1", "--out", "out.jsonl")
    assert ran.code == 1
    assert "No point gave figures." in ran.out
    assert len(recorded(tmp_path / "out.jsonl").refusals) == 2
    assert longest_sent(server) < LONG


def test_too_short_for_any_prompt(called, simulated, recorded, tmp_path) -> None:
    server = simulated(confounds=Confounds(template_len=20))
    ran = called(
        "sweep", server.url, "--context-len", "8,300", "--decode-len", "8", "--repeats", "2", "--out", "out.jsonl"
    )
    assert ran.code == 1
    assert "Not sent (8): a prompt of 8 tokens is too short" in " ".join(ran.out.split())
    run = recorded(tmp_path / "out.jsonl")
    assert [refusal.context_len for refusal in run.refusals] == [8]  # said once, not once a repeat
    # The warm-up moved to the smallest point that can be sent.
    assert [(trial.context_len, trial.is_warmup) for trial in run.trials] == [(300, True), (300, False), (300, False)]
