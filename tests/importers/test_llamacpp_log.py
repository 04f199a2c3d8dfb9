"""A llama.cpp log: requests by the engine's clock, in the newer and the older spelling."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deepdraft.metrics import acceptance_len
from deepdraft.records import Run

FILE = "llama.cpp-2026-10/server_log_spec.txt"
OLDER = """main: loading model '/models/m.gguf'
llama_kv_cache_unified: size = 16384.00 MiB (262144 cells,  16 layers,  4 seqs), K (f16): 8192.00 MiB
slot launch_slot_: id  0 | task 7 | processing task
slot print_timing: id  0 | task 7 |
prompt eval time =     100.00 ms /    50 tokens (    2.00 ms per token,   500.00 tokens per second)
       eval time =     470.00 ms /    48 tokens (    9.79 ms per token,   102.13 tokens per second)
      total time =     570.00 ms /    98 tokens
draft acceptance rate = 0.57576 (   19 accepted /    33 generated)
slot      release: id  0 | task 7 | stop processing: n_past = 1047, truncated = 0
"""


def test_a_real_log_with_a_drafter(imported: Callable[[str], Run]) -> None:
    run = imported(FILE)
    (line,) = run.reported
    assert (line.context_len, line.decode_len, line.is_cold) == (162, 48, True)
    assert line.figures["tpot_s"].values == (pytest.approx(13.32385 / 47),)
    assert line.figures["server_prefill_s"].values == (pytest.approx(8.71528),)
    assert "ttft_s" not in line.figures
    assert line.acceptance is not None
    length = acceptance_len(line.acceptance, line.decode_len)
    assert length is not None
    assert length.value == pytest.approx(2.61, abs=0.01)
    server = run.header.capabilities
    assert (server.model, server.max_context_len, server.num_slots) == ("SmolLM2-135M-Instruct.Q4_1.gguf", 2048, 1)
    assert server.speculation == "yes"
    assert [note.message for note in run.notes if note.topic == "loss"] == [
        "1 request did not end in this log: no length known"
    ]


def test_the_older_spelling_and_a_prefix_hit(from_text: Callable[[str], Run]) -> None:
    run = from_text(OLDER)
    (line,) = run.reported
    assert line.context_len == 1000
    assert line.is_cold is False
    assert line.remarks == ("950 of 1000 prompt tokens came from the cache",)
    assert line.acceptance is not None
    assert (line.acceptance.num_accepted_tokens, line.acceptance.num_draft_tokens) == (19, 33)
    assert "acceptance_len" not in line.figures  # this build prints no mean length
    assert run.header.capabilities.kv_pool_tokens == 262_144
    assert run.header.capabilities.settings["memory"]["kv_cache_bytes"] == 16 * 2**30


def test_task_numbers_that_begin_again_are_other_requests(from_text: Callable[[str], Run]) -> None:
    assert len(from_text(OLDER + OLDER).reported) == 2


def test_a_truncated_context_gives_no_length(from_text: Callable[[str], Run]) -> None:
    run = from_text(OLDER.replace("truncated = 0", "truncated = 1"))
    assert run.reported == ()
