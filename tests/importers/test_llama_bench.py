"""llama-bench: tests of the engine alone, at a depth or from an empty cache."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deepdraft.metrics import points_of
from deepdraft.records import Run

FILES = ("llama.cpp-2026-10/llama_bench.json", "llama.cpp-2026-10/llama_bench.jsonl")


@pytest.mark.parametrize("file", FILES)
def test_each_test_is_a_point_with_one_value_a_repeat(imported: Callable[[str], Run], file: str) -> None:
    run = imported(file)
    prefill, decode, deep_prefill, deep_decode, both = run.reported
    assert prefill.context_len == 512
    assert prefill.figures["prefill_tok_s"].values == pytest.approx((512 / 0.101, 512 / 0.1, 512 / 0.102))
    assert (decode.context_len, decode.decode_len) == (1, 128)
    assert "decoded from an empty cache" in decode.remarks
    assert deep_decode.context_len == 16_384
    assert deep_decode.figures["decode_tok_s"].values == pytest.approx((80.0, 128 / 1.61, 128 / 1.59))
    assert "decode_tok_s" not in both.figures  # prompt and answer in one time
    assert both.figures["total_tok_s"].values[0] == pytest.approx(640 / 1.125)
    assert "decode_tok_s" not in deep_prefill.figures


def test_a_prefill_behind_a_depth_gives_no_time_to_first_token(imported: Callable[[str], Run]) -> None:
    by_name = {point.reported.remarks[0]: point for point in points_of(imported(FILES[0])) if point.reported}
    deep = by_name["pp512 @ d16384"]
    assert "ttft_s" not in deep.figures
    assert deep.figures["server_prefill_tok_s"].summary.median == pytest.approx(512 / 0.16)
    assert "ttft_s" in by_name["pp512 @ d0"].figures


def test_the_server_is_llama_cpp_without_a_drafter(imported: Callable[[str], Run]) -> None:
    run = imported(FILES[0])
    server = run.header.capabilities
    assert (server.engine, server.speculation, server.model) == ("llamacpp", "no", "model-q4_k_m.gguf")
    assert server.settings["flash_attn"] == 1
    assert run.header.spec.text == "random tokens"


def test_depths_are_one_curve(imported: Callable[[str], Run]) -> None:
    assert {line.workload for line in imported(FILES[0]).reported} == {"random tokens"}


def test_other_settings_are_named_at_their_points(from_text: Callable[[str], Run]) -> None:
    base = '"build_commit": "c", "n_gen": 64, "n_prompt": 0, "n_depth": 4096, "avg_ns": 1000000000'
    run = from_text(f'[{{{base}, "type_k": "f16"}}, {{{base}, "type_k": "q8_0", "model_filename": "/a/b/m.gguf"}}]')
    first, second = run.reported
    assert first.workload == "random tokens"
    assert second.workload == "random tokens; type_k q8_0, model_filename m.gguf"
    assert first.figures["decode_tok_s"].statistic == "mean"  # no samples in the file


def test_builds_without_depth_read_as_depth_zero(from_text: Callable[[str], Run]) -> None:
    (line,) = from_text('[{"build_commit": "c", "n_prompt": 512, "n_gen": 0, "avg_ns": 1000000000}]').reported
    assert line.context_len == 512
    assert line.is_cold is True
