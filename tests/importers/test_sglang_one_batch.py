"""bench_one_batch_server: what a case carries, and what of it is left out."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deepdraft.records import Run

FILE = "sglang-0.5.23/bench_one_batch_server.jsonl"


def test_a_single_request(imported: Callable[[str], Run]) -> None:
    single = imported(FILE).reported[0]
    assert (single.context_len, single.concurrency, single.decode_len) == (16_384, 1, 64)
    assert single.figures["ttft_s"].values == (1.75,)
    # output_throughput (36.33 = 64 / window) counts the first token too: 63 tokens came in that time
    assert single.figures["tpot_s"].values == (pytest.approx((3.5122 - 1.75) / 63),)
    assert single.figures["output_tok_s"].values == (pytest.approx(64 / 3.5122),)
    assert single.figures["acceptance_len"].values == (2.41,)
    assert single.is_cold is True


def test_a_batch_says_what_its_times_are_and_that_it_hit_the_cache(imported: Callable[[str], Run]) -> None:
    batch = imported(FILE).reported[1]
    assert batch.concurrency == 4
    assert "last request" in (batch.figures["ttft_s"].definition or "")
    assert batch.figures["tpot_s"].doubt
    assert batch.is_cold is False


def test_minus_one_is_unknown(from_text: Callable[[str], Run]) -> None:
    run = from_text(
        '{"run_name": "default", "batch_size": 1, "input_len": 1024, "output_len": 1, "latency": 0.5,'
        ' "last_ttft": 0.5, "overall_throughput": 2050.0, "acc_length": -1, "last_gen_throughput": -1,'
        ' "cache_hit_rate": null}'
    )
    (line,) = run.reported
    assert "acceptance_len" not in line.figures
    assert "tpot_s" not in line.figures  # one token has none
    assert line.is_cold is None
    assert run.header.capabilities.speculation == "unknown"
