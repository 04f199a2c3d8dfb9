"""What a log and a server tell of a start, before any plan."""

from __future__ import annotations

import pytest
from tests.cli.plan_log import VLLM_LOG, sglang_log

from deepdraft.cli.plan_start import start_of_capabilities, start_of_log
from deepdraft.planner.settings import LlamacppSettings, SglangSettings, VllmSettings
from deepdraft.records import Capabilities

GIB = 2**30


def test_a_drafters_lines_do_not_hide_the_targets(tmp_path) -> None:
    path = tmp_path / "server.log"
    path.write_text(sglang_log(0.94, 218_484, 4.2))
    start = start_of_log(path)
    assert start.engine == "sglang"
    assert start.kv_pool_tokens == 218_484
    assert start.memory["available_before_weights_bytes"] == round(93.73 * GIB)
    assert start.memory["available_after_weights_bytes"] == round(21.33 * GIB)
    assert start.memory["weight_bytes"] == round(72.4 * GIB)
    assert start.memory["reserve_bytes"] == round(4.2 * GIB)
    assert start.memory["kv_cache_bytes"] == pytest.approx((14.3 + 0.62) * GIB, rel=1e-3)
    found = start.calibration({"mem_fraction_static": 0.5, "tp_size": 2}, {})
    assert found.settings == SglangSettings(
        mem_fraction_static=0.94,
        tp_size=8,
        context_length=200_000,
        chunked_prefill_size=8192,
        max_running_requests=8,
        attention_backend="triton",
        speculative_algorithm="DFLASH",
        speculative_num_draft_tokens=8,
    )


@pytest.mark.parametrize("has_arguments", [True, False])
def test_the_last_of_several_starts_counts(tmp_path, has_arguments) -> None:
    path = tmp_path / "server.log"
    first = sglang_log(0.85, 101_134, 12.2, has_arguments=has_arguments).replace("93.73", "90.00")
    path.write_text(first + sglang_log(0.94, 218_484, 4.2, has_arguments=has_arguments))
    start = start_of_log(path)
    assert start.kv_pool_tokens == 218_484
    assert start.memory["available_before_weights_bytes"] == round(93.73 * GIB)
    assert start.memory["reserve_bytes"] == round(4.2 * GIB)


def test_what_the_user_says_of_the_start_lies_over_its_log(tmp_path) -> None:
    path = tmp_path / "server.log"
    path.write_text(sglang_log(0.94, 218_484, 4.2))
    found = start_of_log(path).calibration({}, {"mem_fraction_static": "0.9", "expandable_segments": "True"})
    assert isinstance(found.settings, SglangSettings)
    assert found.settings.mem_fraction_static == 0.9
    assert found.settings.expandable_segments is True


def test_a_vllm_log(tmp_path) -> None:
    path = tmp_path / "vllm.log"
    path.write_text(VLLM_LOG)
    start = start_of_log(path)
    assert (start.engine, start.version) == ("vllm", "0.33.0")
    found = start.calibration({}, {})
    assert found.settings == VllmSettings(gpu_memory_utilization=0.9, max_model_len=40_960)
    assert found.kv_cache_bytes == round(66.71 * GIB)
    assert found.graph_bytes == round(0.7 * GIB)


def test_a_vllm_server_by_its_labels_and_its_configuration() -> None:
    found = Capabilities(
        engine="vllm",
        detected_by="a test",
        version="0.33.0",
        kv_pool_tokens=485_760,
        max_context_len=40_960,
        settings={
            "cache_config": {"gpu_memory_utilization": "0.9", "block_size": "16", "cache_dtype": "auto"},
            "vllm_config": {"parallel_config": {"tensor_parallel_size": 2}, "scheduler_config": {"max_num_seqs": 64}},
        },
    )
    settings = start_of_capabilities("http://h", found).calibration({}, {}).settings
    assert settings == VllmSettings(
        gpu_memory_utilization=0.9, block_size=16, tensor_parallel_size=2, max_num_seqs=64, max_model_len=40_960
    )


def test_a_llamacpp_server_tells_only_its_slots() -> None:
    found = Capabilities(engine="llamacpp", detected_by="a test", max_context_len=2560, num_slots=4)
    start = start_of_capabilities("http://h", found)
    assert dict(start.stated) == {"parallel": 4}
    assert start.figures["max_context_len"] == 2560
    assert start.kv_pool_tokens is None
    assert LlamacppSettings(parallel=4).parallel == start.num_slots
