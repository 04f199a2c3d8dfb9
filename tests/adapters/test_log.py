"""Figures from log lines, on the lines as engines write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deepdraft.adapters.log import LogTally, log_acceptance, log_cached_tokens, log_size_bytes, log_text

SGLANG_DECODE = (
    "[2026-11-29 16:24:53 TP0] Decode batch, #running-req: 1, #token: 32768, token usage: 0.15, accept len: 2.50, "
    "accept rate: 0.50, cuda graph: True, gen throughput (token/s): 6.30, #queue-req: 0\n"
)
SGLANG_PREFILL = (
    "[2026-11-29 16:24:54] Prefill batch, #new-seq: 1, #new-token: 4096, #cached-token: 17, token usage: 0.02, "
    "#running-req: 0, #queue-req: 0, #pending-token: 0, cuda graph: False, input throughput (token/s): 1820.00\n"
)
VLLM = (
    "INFO 11-29 SpecDecoding metrics: Mean acceptance length: 2.50, Accepted throughput: 12.30 tokens/s, Drafted "
    "throughput: 24.60 tokens/s, Accepted: 45 tokens, Drafted: 90 tokens, Per-position acceptance rate: 0.800, "
    "0.500, 0.200, Avg Draft acceptance rate: 50.0%\n"
)
LMDEPLOY = (
    "SpecDecoding metrics: Draft acceptance rate: 50.00%, Mean acceptance length: 2.50, Accepted: 45 tokens, "
    "Drafted: 90 tokens, Per-position acceptance rate: 0.800, 0.500\n"
)


def test_sglang_decode_lines() -> None:
    found = log_acceptance("sglang", SGLANG_DECODE + SGLANG_PREFILL + SGLANG_DECODE.replace("2.50", "3.50"))
    assert found is not None
    assert found.stated_acceptance_len == 3.0
    assert "2 `accept len` lines" in found.source
    assert "earlier request" in (found.doubt or "")


def test_sglang_floor_is_one() -> None:
    line = (
        "Decode batch, #running-req: 1, #token: 32768, token usage: 0.15, accept len: 1.00, accept rate: 0.00, cuda"
    )
    found = log_acceptance("sglang", line)
    assert found is not None
    assert found.stated_acceptance_len == 1.0


def test_other_lengths_on_a_sglang_line_are_not_taken() -> None:
    line = (
        "Decode batch [12], #running-req: 2, #full token: 9, cap len: 7.00, block accept len: 6.00, accept len: 2.00"
    )
    found = log_acceptance("sglang", line)
    assert found is not None
    assert found.stated_acceptance_len == 2.0
    assert "up to 2 requests ran at once" in (found.doubt or "")
    assert log_acceptance("sglang", "Decode batch, #running-req: 1, block accept len: 6.00,") is None


def test_a_sglang_log_without_a_drafter_says_nothing(recorded: Any) -> None:
    assert log_acceptance("sglang", recorded.text("sglang-0.5.23/server_log_lines.txt")) is None


@pytest.mark.parametrize(("engine", "line"), [("vllm", VLLM), ("lmdeploy", LMDEPLOY)])
def test_one_prefix_two_orders(engine: str, line: str) -> None:
    found = log_acceptance(engine, line)
    assert found is not None
    assert found.stated_acceptance_len == 2.5
    # The counts are of an interval, not of the request: steps reckoned from them would be wrong.
    assert (found.num_steps, found.num_accepted_tokens, found.num_draft_tokens) == (None, None, None)


def test_intervals_are_weighted_by_what_they_drafted() -> None:
    second = VLLM.replace("2.50", "1.00").replace("Accepted: 45", "Accepted: 0").replace("Drafted: 90", "Drafted: 30")
    found = log_acceptance("vllm", VLLM + "noise\n" + second)
    assert found is not None
    assert found.stated_acceptance_len == pytest.approx((2.5 * 90 + 1.0 * 30) / 120)


def test_llamacpp_in_both_spellings() -> None:
    new = "draft acceptance = 0.57576 (  171 accepted /   297 generated), mean len =  2.71"
    old = "draft acceptance rate = 0.57576 (  171 accepted /   297 generated)"
    for line, mean in ((new, 2.71), (old, None)):
        found = log_acceptance("llamacpp", f"slot print_timing: id  0 | task 5 | {line}\n")
        assert found is not None
        assert (found.num_accepted_tokens, found.num_draft_tokens) == (171, 297)
        assert (found.stated_acceptance_len, found.doubt) == (mean, None)
    both = log_acceptance("llamacpp", f"{new}\n{old}\n")
    assert both is not None
    assert both.num_draft_tokens == 594
    assert "2 requests" in (both.doubt or "")


def test_an_engine_without_a_log_of_its_own_says_nothing() -> None:
    assert log_acceptance("openai", SGLANG_DECODE + VLLM) is None


def test_cached_tokens_of_a_recorded_log(recorded: Any) -> None:
    assert log_cached_tokens(recorded.text("sglang-0.5.23/server_log_lines.txt")) == (3 + 2 + 2048 + 1791, 2)
    assert log_cached_tokens(SGLANG_DECODE) is None


def test_what_was_written_between_two_looks(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    assert log_size_bytes(log) is None
    assert log_text(log, 0, 10) == ""
    log.write_text("früher\n")
    start = log_size_bytes(log)
    assert start == 8
    with log.open("a") as file:
        file.write("now\n")
    assert log_text(log, start, 12) == "now\n"
    log.write_text("x\n")  # rotated
    assert log_text(log, start, 12) == ""


def test_a_tally_counts_from_its_first_look_and_waits_for_whole_lines(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(SGLANG_PREFILL)
    tally = LogTally("sglang", log)
    tally.advance(len(SGLANG_PREFILL))
    assert (tally.prompt_tokens, tally.cached_tokens) == (0, 0)  # the log tells, and nothing was added yet
    log.write_text(SGLANG_PREFILL * 3)
    tally.advance(len(SGLANG_PREFILL) * 2 + 60)
    assert (tally.prompt_tokens, tally.cached_tokens) == (4113, 17)
    tally.advance(len(SGLANG_PREFILL) * 3)
    assert (tally.prompt_tokens, tally.cached_tokens) == (8226, 34)


def test_a_log_that_never_told_stays_unknown(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("nothing of the kind\n")
    tally = LogTally("sglang", log)
    tally.advance(10)
    tally.advance(20)
    assert tally.cached_tokens is None
    other = LogTally("vllm", log)
    other.advance(20)
    assert other.cached_tokens is None
