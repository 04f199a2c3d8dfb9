"""vLLM's plan: the fraction's arithmetic, calibration, verdicts, and public cases of users who were puzzled by it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost.device import device
from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import LlamacppSettings, SglangSettings, VllmSettings
from deepdraft.planner.sglang_0_5_12 import plan_sglang_0_5_12
from deepdraft.planner.shape import Model
from deepdraft.planner.shape_config import shape_of_config
from deepdraft.planner.vllm import plan_vllm
from deepdraft.planner.weights import stated_weights

GIB = 2**30
H100 = device("H100")
QWEN3_8B = open_model("qwen3-8b")
KIMI = open_model("kimi-k2.6", drafter="kimi-k2.6-dflash")
RTX = device("RTX PRO 6000 Blackwell")
QWEN3_235B_CONFIG: dict[str, Any] = {
    "model_type": "qwen3_moe", "num_hidden_layers": 94, "hidden_size": 4096, "num_attention_heads": 64,
    "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936, "num_experts": 128, "num_experts_per_tok": 8,
    "moe_intermediate_size": 1536, "intermediate_size": 12288, "max_position_embeddings": 40960,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def planned(model: Model = QWEN3_8B, on: Any = H100, calibration: Calibration | None = None, **flags: Any) -> Plan:
    return plan_vllm(model, on, VllmSettings(**flags), calibration)


def test_every_byte_of_the_device_is_in_the_ledger_once() -> None:
    for plan in (planned(), planned(KIMI, RTX, tensor_parallel_size=8, num_speculative_tokens=7)):
        used = plan.ledger.total_bytes("outside", "weights", "pool", "slack")
        assert plan.device_bytes == used + plan.reserve_bytes
        assert plan.prefill_spike_bytes == plan.ledger.total_bytes("spike")


def test_the_pool_is_the_fraction_less_weights_activations_and_graphs() -> None:
    plan = planned(gpu_memory_utilization=0.9, max_model_len=32_768)
    (pool,) = plan.ledger.at("pool")
    inside = plan.ledger.total_bytes("weights", "slack") + pool.num_bytes
    requested = 0.9 * (plan.device_bytes - 0.55 * GIB)
    assert 0 <= requested - inside < 16 * 147_456 + 1
    assert plan.kv_pool_tokens == pool.num_bytes // 147_456
    assert plan.num_full_requests == plan.kv_pool_tokens // 32_768
    assert plan.bytes_per_token == plan.true_bytes_per_token == 147_456
    assert plan.bytes_per_sequence == 0


def test_defaults_are_told() -> None:
    assert planned().effective == {
        "gpu_memory_utilization": 0.92,
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 1024,
        "block_size": 16,
        "max_model_len": 40_960,
        "kv_cache_dtype": "bfloat16",
    }
    assert planned(on=device("RTX 4090")).effective["max_num_batched_tokens"] == 2048
    assert planned(on=device("A100 80GB")).effective["max_num_seqs"] == 256
    assert planned(on=device("B200")).effective["max_num_batched_tokens"] == 16384


def test_bytes_of_the_pool_itself_bypass_the_fraction() -> None:
    plan = planned(kv_cache_memory_bytes=8 * GIB, gpu_memory_utilization=0.5)
    assert plan.kv_pool_tokens == 8 * GIB // (16 * 147_456) * 16
    assert plan.kv_pool_tokens_range == (plan.kv_pool_tokens, plan.kv_pool_tokens)


def test_a_drafter_costs_its_weights_and_its_layers() -> None:
    plain = planned(KIMI, RTX, tensor_parallel_size=8, max_model_len=65_536)
    drafting = planned(KIMI, RTX, tensor_parallel_size=8, max_model_len=65_536, num_speculative_tokens=7)
    assert plain.bytes_per_token == 70_272  # 61 layers x 576 x 2, on every rank
    assert drafting.bytes_per_token == drafting.true_bytes_per_token == 73_344  # + 1 head x 256 x 6 layers x 2
    assert drafting.target_bytes_per_token == 70_272
    assert drafting.kv_pool_tokens < plain.kv_pool_tokens
    assert any(entry.name == "draft weights" for entry in drafting.ledger.at("weights"))


def test_speculation_needs_a_drafter() -> None:
    with pytest.raises(UsageError, match="without a drafter"):
        planned(num_speculative_tokens=3)


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.5])
def test_a_fraction_that_is_none_is_refused(fraction: float) -> None:
    with pytest.raises(UsageError, match="gpu-memory-utilization"):
        planned(gpu_memory_utilization=fraction)


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="memory of"):
        planned(on=device("bandwidth=1TB/s"))
    endless = replace(QWEN3_8B, shape=replace(QWEN3_8B.shape, max_context_len=None))
    with pytest.raises(UsageError, match="context limit"):
        planned(endless)


# -- how it fails to start


def test_more_asked_than_is_free() -> None:
    plan = planned(gpu_memory_utilization=0.999)
    assert plan.verdict.outcome == "does_not_start"
    assert "Lower --gpu-memory-utilization below 0.9" in plan.verdict.advice[0]


def test_nothing_left_for_the_cache() -> None:
    plan = planned(on=device("RTX 4090"), gpu_memory_utilization=0.7)
    assert plan.verdict.outcome == "does_not_start"
    assert plan.kv_pool_tokens == plan.max_request_tokens == 0
    assert plan.verdict.advice[0].startswith("Raise --gpu-memory-utilization")


def test_no_room_for_one_request_names_the_length_that_fits() -> None:
    plan = planned(KIMI, RTX, tensor_parallel_size=8)
    assert plan.verdict.outcome == "does_not_start"
    assert f"{plan.max_request_tokens:,}" in plan.verdict.advice[0]
    shorter = planned(KIMI, RTX, tensor_parallel_size=8, max_model_len=plan.max_request_tokens)
    assert shorter.verdict.outcome != "does_not_start"


# -- calibration


def test_one_start_replaces_the_estimates() -> None:
    """Whatever it took: the pool of that start comes out, and another fraction adds its share of the memory."""
    then = VllmSettings(gpu_memory_utilization=0.85, max_model_len=32_768)
    seen = Calibration(source="server.log", settings=then, kv_cache_bytes=40 * GIB)
    same = plan_vllm(QWEN3_8B, H100, then, seen)
    assert same.is_calibrated
    assert same.kv_pool_tokens == 40 * GIB // (16 * 147_456) * 16
    assert same.kv_pool_tokens_range == (same.kv_pool_tokens, same.kv_pool_tokens)
    assert [entry.certainty for entry in same.ledger.entries if entry.name.startswith("unexplained")] == ["measured"]
    more = planned(calibration=seen, gpu_memory_utilization=0.90, max_model_len=32_768)
    gained = (more.kv_pool_tokens - same.kv_pool_tokens) * 147_456
    assert gained == pytest.approx(0.05 * (H100.memory_bytes - 0.55 * GIB), rel=0.001)


def test_the_pools_tokens_do_where_its_bytes_are_not_told() -> None:
    then = VllmSettings(gpu_memory_utilization=0.9)
    plain = plan_vllm(open_model("gpt-oss-20b"), H100, then)
    seen = Calibration(source="metrics", settings=then, kv_pool_tokens=plain.kv_pool_tokens - 50_000)
    calibrated = plan_vllm(open_model("gpt-oss-20b"), H100, then, seen)
    assert calibrated.kv_pool_tokens == pytest.approx(plain.kv_pool_tokens - 50_000, abs=32)


def test_a_calibration_of_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match="another engine"):
        planned(calibration=Calibration(source="x.log", settings=LlamacppSettings()))
    with pytest.raises(UsageError, match="2 ranks"):
        planned(calibration=Calibration(source="x.log", settings=VllmSettings(tensor_parallel_size=2)))


def test_a_start_that_told_nothing_changes_nothing() -> None:
    silent = Calibration(source="x.log", settings=VllmSettings())
    assert planned(calibration=silent).kv_pool_tokens == planned().kv_pool_tokens


# -- cases of users


def test_two_engines_make_pools_twice_apart() -> None:
    """M06, vllm issue 21348: Qwen3-235B-A22B-FP8 on 4 x H100, 178,880 tokens from vLLM at 0.90, 367,404 from SGLang
    at 0.93. Both hold 48,128 bytes a token; the difference is what each fraction includes."""
    shape = shape_of_config(QWEN3_235B_CONFIG, "Qwen3-235B-A22B-FP8")
    weights = stated_weights(QWEN3_235B_CONFIG, shape, round(220.2 * GIB), source="stored size")
    model = Model(shape=shape, weights=weights)
    settings = VllmSettings(tensor_parallel_size=4, gpu_memory_utilization=0.90)
    seen = Calibration(source="issue", settings=settings, kv_cache_bytes=round(8.11 * GIB))
    vllm = plan_vllm(model, H100, settings, seen)
    assert vllm.bytes_per_token == 94 * 1 * 256 * 2 == 48_128
    assert vllm.kv_pool_tokens == pytest.approx(178_880, rel=0.015)  # the GiB and the tokens are of two ranks
    low, high = plan_vllm(model, H100, settings).kv_pool_tokens_range
    assert low <= 178_880 <= high
    sglang = plan_sglang_0_5_12(model, H100, SglangSettings(tp_size=4, mem_fraction_static=0.93))
    assert sglang.kv_pool_tokens == pytest.approx(367_404, rel=0.05)
    (words,) = [note for note in vllm.notes if "SGLang" in note]
    assert "activations and CUDA graphs" in words
    assert "before the weights" in words


def test_the_pool_of_a_hybrid_is_no_capacity() -> None:
    """M07, vllm issue 51041: "GPU KV cache size" follows max_model_len though the memory stays; the fixed part and
    the slope do not."""
    plans = [
        planned(open_model("gpt-oss-120b"), kv_cache_memory_bytes=8 * GIB, max_model_len=length)
        for length in (8_192, 32_768, 131_072)
    ]
    assert plans[0].kv_pool_tokens < plans[1].kv_pool_tokens < plans[2].kv_pool_tokens
    assert len({plan.ledger.total_bytes("pool") for plan in plans}) == 1
    assert len({plan.bytes_per_token for plan in plans}) == 1
    last = plans[-1]
    held = last.bytes_per_sequence + 131_072 * last.bytes_per_token
    assert last.kv_pool_tokens == int(last.ledger.total_bytes("pool") / held * 131_072)
    assert any("concurrency x max_model_len" in note for note in last.notes)
    assert not any("concurrency" in note for note in planned().notes)


def test_gpt_oss_grows_by_its_full_layers_alone() -> None:
    """M05 (ollama issue 5136, aiconfigurator pull request 912) and M12: every second of 36 layers has a window of
    128; a head is 64 wide, not 2880 / 64."""
    plan = planned(open_model("gpt-oss-120b"))
    assert plan.bytes_per_token == plan.true_bytes_per_token == 18 * 8 * (64 + 64) * 2
    assert plan.bytes_per_sequence > 0


def test_qwen3_next_attends_in_twelve_layers_with_heads_of_256() -> None:
    """M12: modelinfo takes 2048 / 16 = 128 for a head."""
    plan = planned(open_model("qwen3-next-80b-a3b"), tensor_parallel_size=2, max_model_len=65_536)
    assert plan.true_bytes_per_token == 12 * 1 * (256 + 256) * 2
    assert plan.bytes_per_token == plan.true_bytes_per_token  # groups of 12 layers: nothing is padded
    assert plan.effective["block_size"] % 16 == 0
    assert plan.effective["block_size"] > 16


def test_headroom_in_a_long_prefill_is_a_probes_result() -> None:
    """M13, rtx6kpro issue 103: 3 GiB above the profiled peak at 150k tokens of KV, with expandable segments. With
    less than that to spare the plan is not called safe, and it always says to probe."""
    model = open_model("deepseek-v3")
    for fraction in (0.90, 0.97):
        plan = planned(model, device("H200"), tensor_parallel_size=8, gpu_memory_utilization=fraction)
        assert any("probe" in words for words in plan.verdict.advice)
        assert any("3.0 GiB" in note for note in plan.notes)
        is_tight = plan.verdict.margin_bytes is not None and plan.verdict.margin_bytes < 3 * GIB
        assert (plan.verdict.outcome == "safe") is not is_tight
    short = planned(model, device("H200"), tensor_parallel_size=8, gpu_memory_utilization=0.97, max_model_len=4096)
    assert short.verdict.outcome == "safe" or short.verdict.margin_bytes < 2 * GIB


def test_a_sparse_index_needs_room_for_its_scores() -> None:
    config = {
        "model_type": "deepseek_v32", "num_hidden_layers": 61, "hidden_size": 7168, "num_attention_heads": 128,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128, "q_lora_rank": 1536,
        "index_head_dim": 128, "index_n_heads": 64, "index_topk": 2048, "vocab_size": 129280,
        "max_position_embeddings": 163840, "intermediate_size": 18432, "torch_dtype": "bfloat16",
    }  # fmt: skip
    shape = shape_of_config(config, "DeepSeek-V3.2")
    model = Model(shape=shape, weights=stated_weights(config, shape, 640 * GIB, source="stored size"))
    plan = planned(model, device("H200"), tensor_parallel_size=8, kv_cache_dtype="fp8")
    assert plan.bytes_per_token == 61 * (656 + 132)
    assert plan.prefill_spike_bytes == 512 * 2**20
    assert planned(model, device("H200"), tensor_parallel_size=8).bytes_per_token == 61 * (1152 + 132)


def test_it_stands_in_the_catalogue() -> None:
    assert plan_for("vllm", None, QWEN3_8B, H100, VllmSettings()) == planned()
    assert plan_for("vllm", "0.33.0", QWEN3_8B, H100, VllmSettings()).engine_version == "0.20 to 0.33"


# -- properties


@given(st.floats(0.5, 0.9), st.floats(0.0, 0.05))
def test_the_pool_grows_with_the_fraction(fraction: float, more: float) -> None:
    small = planned(gpu_memory_utilization=fraction)
    large = planned(gpu_memory_utilization=fraction + more)
    assert small.kv_pool_tokens <= large.kv_pool_tokens
    assert small.reserve_bytes >= large.reserve_bytes - 16 * 147_456


@given(st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_ranks_share_heads_and_not_latent_rows(tp_size: int) -> None:
    assert planned(tensor_parallel_size=tp_size).bytes_per_token == 147_456 / min(tp_size, 8)
    latent = planned(KIMI, RTX, tensor_parallel_size=tp_size)
    assert latent.bytes_per_token == 70_272


@given(st.sampled_from([16, 32, 64, 128]), st.floats(0.5, 0.9))
def test_the_pool_is_whole_blocks(block_size: int, fraction: float) -> None:
    plan = planned(block_size=block_size, gpu_memory_utilization=fraction)
    assert plan.ledger.total_bytes("pool") % (block_size * 147_456) == 0


@given(st.integers(256, 32_768), st.integers(1, 8192))
def test_a_larger_batch_takes_from_the_pool(num_tokens: int, more: int) -> None:
    small = planned(max_num_batched_tokens=num_tokens, max_num_seqs=16)
    large = planned(max_num_batched_tokens=num_tokens + more, max_num_seqs=16)
    assert small.kv_pool_tokens >= large.kv_pool_tokens


def test_a_start_that_was_seen() -> None:
    """vLLM 0.32.0 on a CPU, 2 GiB for the cache, 4 layers of 2 heads of 64 in float32, blocks of 128: its log said
    524,288 tokens, 16.00x of 32,768."""
    config = {
        "model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256, "num_attention_heads": 4, "head_dim": 64,
        "num_key_value_heads": 2, "intermediate_size": 688, "vocab_size": 49152, "max_position_embeddings": 131072,
        "torch_dtype": "float32",
    }  # fmt: skip
    shape = shape_of_config(config, "tiny-llama")
    model = Model(shape=shape, weights=stated_weights(config, shape, 60_000_000, source="stored size"))
    plan = planned(model, kv_cache_memory_bytes=2 * GIB, max_model_len=32_768, block_size=128, max_num_seqs=16)
    assert (plan.kv_pool_tokens, plan.num_full_requests) == (524_288, 16)


def test_ranks_that_share_tokens_hold_so_many_times_more() -> None:
    """Kimi K2.6 on 8 ranks, 8 of which share: one latent row in 8, and the log's figure 8 times as much."""
    settings = VllmSettings(tensor_parallel_size=8, max_model_len=131_072)
    model = open_model("kimi-k2.6")
    alone = plan_vllm(model, device("H200"), settings)
    shared = plan_vllm(model, device("H200"), replace(settings, decode_context_parallel_size=8))
    assert shared.bytes_per_token == shared.true_bytes_per_token == alone.bytes_per_token / 8
    assert shared.kv_pool_tokens == pytest.approx(8 * alone.kv_pool_tokens, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "size", "match"),
    [("kimi-k2.6", 3, "does not fit"), ("qwen3-8b", 2, "does not fit"), ("gpt-oss-120b", 2, "does not fit"),
     ("qwen3-next-80b-a3b", 2, "states")],
)  # fmt: skip
def test_ranks_that_cannot_share_tokens(name: str, size: int, match: str) -> None:
    settings = VllmSettings(tensor_parallel_size=8, max_model_len=8192, decode_context_parallel_size=size)
    with pytest.raises(UsageError, match=match):
        plan_vllm(open_model(name), device("H200"), settings)
