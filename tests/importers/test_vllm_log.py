"""A vLLM log: memory and acceptance, and no points."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deepdraft.records import Run

FILE = "vllm-0.32.0/server_log.txt"


def test_a_real_log(imported: Callable[[str], Run]) -> None:
    run = imported(FILE)
    server = run.header.capabilities
    assert (server.engine, server.version, server.model) == ("vllm", "0.32.0", "tiny-llama")
    assert (server.kv_pool_tokens, server.max_context_len) == (524_288, 32_768)
    assert (server.speculation, server.speculation_method) == ("yes", "ngram")
    assert run.reported == ()
    (acceptance,) = [note.message for note in run.notes if note.topic == "acceptance"]
    assert f"{(3.57 * 77 + 2.90 * 40) / 117:.2f}" in acceptance  # weighted by drafts


def test_memory_lines(from_text: Callable[[str], Run]) -> None:
    run = from_text(
        "INFO Model loading took 14.25 GiB memory and 12.1 seconds\n"
        "INFO Available KV cache memory: 55.80 GiB\n"
        "INFO GPU KV cache size: 401,232 tokens, Maximum concurrency for 40,960 tokens per request: 9.80x\n"
        "INFO Graph capturing finished in 21 secs, took 0.61 GiB\n"
    )
    server = run.header.capabilities
    assert (server.kv_pool_tokens, server.max_context_len, server.speculation) == (401_232, 40_960, "unknown")
    memory = server.settings["memory"]
    assert memory["weight_bytes"] == pytest.approx(14.25 * 2**30)
    assert memory["kv_cache_bytes"] == pytest.approx(55.80 * 2**30)
    assert memory["graph_bytes"] == pytest.approx(0.61 * 2**30)
