"""An SGLang log: memory of its start, and the requests that ran alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from deepdraft.records import Run

SPEC, START = "sglang-0.5.23/server_log_spec.txt", "sglang-0.5.23/server_start_log.txt"
SAMPLES = Path(__file__).parents[1] / "samples"
GIB = 2**30


def test_memory_and_settings_of_the_start(imported: Callable[[str], Run]) -> None:
    run = imported(SPEC)
    server = run.header.capabilities
    assert (server.kv_pool_tokens, server.max_context_len, server.num_slots, server.page_size) == (
        205_445,
        200_000,
        8,
        1,
    )
    assert (server.speculation, server.speculation_method, server.model) == ("yes", "DFLASH", "kimi")
    assert server.settings["mem_fraction_static"] == 0.93
    assert server.settings["disable_radix_cache"] is False
    assert "quantization" not in server.settings  # None is not said
    memory = server.settings["memory"]
    assert memory["weight_bytes"] == pytest.approx(72.40 * GIB)
    assert memory["kv_cache_bytes"] == pytest.approx(13.45 * GIB)
    assert memory["graph_bytes"] == pytest.approx(1.40 * GIB)
    assert memory["reserve_bytes"] == pytest.approx(5.20 * GIB)
    notes = [note.message for note in run.notes if note.topic == "memory"]
    assert any("KV pool 205,445 tokens" in note for note in notes)
    assert any("full 1 time and" in note for note in notes)


def test_requests_that_ran_alone_are_points(imported: Callable[[str], Run]) -> None:
    cold, hit = imported(SPEC).reported
    assert (cold.context_len, cold.is_cold) == (4096 + 4096 + 2808, True)
    assert cold.figures["decode_tok_s"].values == (20.8, 19.4)  # the first line holds the prefill's time
    assert cold.figures["acceptance_len"].values == (3.0, 2.8)
    assert (hit.context_len, hit.is_cold) == (11_000, False)
    assert hit.figures["decode_tok_s"].values == (12.1,)


def test_a_real_start_on_a_cpu(imported: Callable[[str], Run]) -> None:
    run = imported(START)
    server = run.header.capabilities
    assert (server.kv_pool_tokens, server.max_context_len, server.speculation) == (60_000, 32_768, "no")
    assert server.settings["memory"]["kv_cache_bytes"] == pytest.approx(0.22 * GIB)  # K and V are told apart
    assert run.reported == ()  # every answer was too short for a second decode line


def test_the_last_start_in_the_log_counts(from_text: Callable[[str], Run]) -> None:
    line = "max_total_num_tokens={}, chunked_prefill_size=4096, max_running_requests=8, context_len=200000, "
    run = from_text((line + "available_gpu_mem=4.20 GB\n").format(101_134) + line.format(218_484))
    assert run.header.capabilities.kv_pool_tokens == 218_484


def test_torn_lines_are_passed_over(from_text: Callable[[str], Run]) -> None:
    torn = "[2026] Decode batch, #running-req: 1, #tok\n[2026] Prefill batch, #new-seq: 1\nmax_total_num_tokens=9"
    run = from_text(torn + "\nKV Cache is allocated. dtype: torch.bfloat16, #tokens: 900, KV size: 1.00 GB\n")
    assert run.reported == ()
    assert run.header.capabilities.kv_pool_tokens == 900


def test_ranks_are_not_added_up(imported: Callable[[str], Run], from_text: Callable[[str], Run]) -> None:
    lines = [line for line in (SAMPLES / SPEC).read_text().splitlines() if "batch" not in line]
    others = [line.replace(" TP0]", " TP1]").replace("gpu_mem=5.20", "gpu_mem=5.05") for line in lines[1:]]
    run = from_text("\n".join([lines[0], *(one for pair in zip(lines[1:], others, strict=True) for one in pair)]))
    memory = run.header.capabilities.settings["memory"]
    alone = imported(SPEC).header.capabilities.settings["memory"]
    assert memory == alone | {"reserve_bytes": round(5.05 * GIB)}


def test_a_drafters_start_does_not_hide_the_targets(from_text: Callable[[str], Run]) -> None:
    """0.5.12 loads the drafter, and makes its pool, after the target's pool was made."""
    memory = from_text(
        "[2026-11-20 10:00:30 TP0] Load weight begin. avail mem=93.73 GB\n"
        "[2026-11-20 10:06:10 TP0] Load weight end. elapsed=9 s, type=Big, avail mem=21.33 GB, mem usage=72.40 GB.\n"
        "[2026-11-20 10:06:11 TP0] KV Cache is allocated. #tokens: 100, KV size: 14.30 GB\n"
        "[2026-11-20 10:06:12 TP0] Load weight begin. avail mem=6.95 GB\n"
        "[2026-11-20 10:06:30 TP0] Load weight end. elapsed=18 s, type=Draft, avail mem=5.64 GB, mem usage=1.31 GB.\n"
        "[2026-11-20 10:06:31 TP0] KV Cache is allocated. #tokens: 100, K size: 0.31 GB, V size: 0.31 GB\n"
    ).header.capabilities.settings["memory"]
    assert memory["available_before_weights_bytes"] == pytest.approx(93.73 * GIB)
    assert memory["available_after_weights_bytes"] == pytest.approx(21.33 * GIB)
    assert memory["weight_bytes"] == pytest.approx(72.40 * GIB)
    assert memory["kv_cache_bytes"] == pytest.approx(14.92 * GIB)
