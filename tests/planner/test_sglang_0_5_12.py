"""SGLang up to 0.5.12, held against the reference deployment and a published start of another model."""

from dataclasses import replace

import pytest
from tests.planner.reference import (
    DEVICE,
    GIB,
    MODEL,
    POOLS,
    PRE_BYTES,
    RESERVES_GIB,
    SETTINGS,
    plan_at,
    settings_at,
    started_at,
)

from deepdraft.cost.device import device
from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings, VllmSettings

MIB = 2**20
EIGHT = {"max_running_requests": 8}
STABLE = EIGHT | {"chunked_prefill_size": 4096, "expandable_segments": True}


def entry(plan, name):
    return next(each for each in plan.ledger.entries if each.name == name)


def test_a_token_of_the_pool():
    """(512 + 64) x 61 layers x 2 bytes, and 6 draft layers as if they cost the same."""
    plan = plan_at(0.94)
    assert plan.target_bytes_per_token == 70_272
    assert plan.bytes_per_token == 70_272 * 67 / 61 == 77_184
    assert plan.true_bytes_per_token == 73_344


@pytest.mark.parametrize("fraction", POOLS)
def test_the_pools_without_any_measurement(fraction):
    plan = plan_at(fraction)
    assert plan.kv_pool_tokens == pytest.approx(POOLS[fraction], rel=0.05)
    low, high = plan.kv_pool_tokens_range
    assert low < POOLS[fraction] < high
    assert not plan.is_calibrated


@pytest.mark.parametrize("known", POOLS)
@pytest.mark.parametrize("asked", POOLS)
def test_the_pools_by_one_start(known, asked):
    assert plan_at(asked, started_at(known)).kv_pool_tokens == pytest.approx(POOLS[asked], rel=0.002)
    assert plan_at(known, started_at(known)).kv_pool_tokens == POOLS[known]


@pytest.mark.parametrize("known", POOLS)
def test_the_pools_between_as_reported(known):
    assert plan_at(0.92, started_at(known)).kv_pool_tokens == pytest.approx(192_406, rel=0.0002)
    assert plan_at(0.93, started_at(known)).kv_pool_tokens == pytest.approx(205_445, rel=0.0002)


def test_the_pools_by_a_log_of_free_memory_alone():
    """Two decimals of a GiB: a tenth of a per cent of the pool."""
    log = started_at(0.85, kv_pool_tokens=None, available_after_weights_bytes=round(21.33 * GIB))
    for fraction, tokens in POOLS.items():
        assert plan_at(fraction, log).kv_pool_tokens == pytest.approx(tokens, rel=0.002)


def test_the_pools_by_two_pools():
    slope = (POOLS[0.94] - POOLS[0.85]) / 0.09
    two = Calibration(
        source="two pools", settings=settings_at(0.85), kv_pool_tokens=POOLS[0.85], tokens_per_frac=slope
    )
    assert plan_at(0.94, two).kv_pool_tokens == pytest.approx(POOLS[0.94], abs=2)


@pytest.mark.parametrize("fraction", RESERVES_GIB)
def test_what_stays_free_without_any_measurement(fraction):
    """Draft weights, graph buffers and the rest add up to what the reported reserves leave."""
    assert plan_at(fraction, **EIGHT).reserve_bytes / GIB == pytest.approx(RESERVES_GIB[fraction], abs=0.3)


def test_what_stays_free_by_one_start():
    start = Calibration(
        source="server.log",
        settings=settings_at(0.94, **EIGHT),
        kv_pool_tokens=POOLS[0.94],
        available_before_weights_bytes=PRE_BYTES,
        reserve_bytes=round(4.2 * GIB),
    )
    assert plan_at(0.94, start, **EIGHT).reserve_bytes == pytest.approx(4.2 * GIB, abs=MIB)
    for fraction, gib in RESERVES_GIB.items():
        assert plan_at(fraction, start, **EIGHT).reserve_bytes / GIB == pytest.approx(gib, abs=0.25)
    assert "unexplained at the measured start" in {each.name for each in plan_at(0.93, start).ledger.entries}


@pytest.mark.parametrize(("chunk_len", "mib"), [(8192, 896), (4096, 448), (2048, 224)])
def test_the_experts_buffer_is_in_proportion_to_the_chunk(chunk_len, mib):
    """8,192 x 8 x 7,168 x 2 bytes; the deployment's own note of 224 MiB at 4,096 was wrong."""
    plan = plan_at(0.93, chunked_prefill_size=chunk_len)
    assert entry(plan, "experts' down-projection").num_bytes == mib * MIB
    assert any(f"{mib:,} MiB at {chunk_len:,}" in note and "not a quarter" in note for note in plan.notes)


def test_hidden_states_for_the_drafter():
    """6 taps of 7,168: 672 MiB a chunk, once as captured and once joined."""
    assert entry(plan_at(0.94), "hidden states for the drafter").num_bytes == 2 * 672 * MIB


def test_the_setting_that_died_and_the_one_that_held():
    """0.94 died in a prefill of 32k tokens; 0.93 with half the chunk and expandable segments held."""
    reported = {
        fraction: Calibration(
            source="server.log",
            settings=settings_at(fraction, **EIGHT),
            available_before_weights_bytes=PRE_BYTES,
            kv_pool_tokens=POOLS.get(fraction),
            reserve_bytes=round(gib * GIB),
        )
        for fraction, gib in RESERVES_GIB.items()
    }
    for start in (None, reported[0.94]):
        died = plan_at(0.94, start, **EIGHT).verdict
        assert died.outcome == "out_of_memory_in_prefill"
        assert died.fails_at_len is not None and died.fails_at_len <= 32_000
        assert "probe" in " ".join(died.advice)
    for start in (None, reported[0.93], reported[0.94]):
        assert plan_at(0.93, start, **STABLE).verdict.outcome == "safe"


def test_the_graph_buffers_nobody_counts():
    """64 requests of 8 tokens at 200k: 0.76 GiB of page indices, 2.0 of partial attention; 8 requests: an eighth."""
    many, few = plan_at(0.93), plan_at(0.93, **EIGHT)
    indices, partial = "CUDA graph page indices", "CUDA graph partial attention"
    assert entry(many, indices).num_bytes == 512 * 200_000 * 8
    assert entry(many, partial).num_bytes == pytest.approx(2.0 * GIB, rel=0.01)
    assert entry(many, indices).num_bytes == 8 * entry(few, indices).num_bytes
    assert entry(many, partial).num_bytes == 8 * entry(few, partial).num_bytes
    assert few.kv_pool_tokens == many.kv_pool_tokens
    assert few.reserve_bytes - many.reserve_bytes > 2.4 * GIB


def test_the_table_of_pages_is_small():
    assert entry(plan_at(0.93), "table of requests' pages").num_bytes / MIB == pytest.approx(49.6, abs=0.1)
    assert entry(plan_at(0.93, **EIGHT), "table of requests' pages").num_bytes / MIB == pytest.approx(6.9, abs=0.1)


def test_the_context_limit_moves_buffers_and_not_the_pool():
    short, long = plan_at(0.93, context_length=32_000), plan_at(0.93)
    assert short.kv_pool_tokens == long.kv_pool_tokens
    assert short.reserve_bytes > long.reserve_bytes
    assert any("holds 101," in note for note in plan_at(0.85, started_at(0.85)).notes)


def test_the_fraction_that_the_engine_would_choose():
    """0.791 before the factor for models with an image encoder: far from a usable pool."""
    plan = plan_for("sglang", "0.5.12", MODEL, DEVICE, SETTINGS)
    assert plan.effective["mem_fraction_static"] == pytest.approx(0.791 * 0.95)
    assert plan.kv_pool_tokens < 30_000


def test_ledger_and_reserve_fill_the_device():
    plan = plan_at(0.93, **STABLE)
    assert plan.ledger.total_bytes("outside", "weights", "pool", "slack") + plan.reserve_bytes == plan.device_bytes
    assert plan.ledger.total_bytes("spike") == plan.prefill_spike_bytes
    assert {each.certainty for each in plan.ledger.entries} == {"formula", "estimate"}
    assert all(each.source for each in plan.ledger.entries)
    assert all(each.error_bytes == 0 for each in plan.ledger.entries if each.certainty == "formula")


def test_a_published_start_of_another_model():
    """Qwen3-235B-A22B-FP8 on 4 x H100 at 0.93 (vLLM issue 21348): 367,404 tokens, foreseen from its config alone."""
    config = {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 4096,
        "num_hidden_layers": 94, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
        "vocab_size": 151936, "intermediate_size": 12288, "num_experts": 128, "num_experts_per_tok": 8,
        "moe_intermediate_size": 1536, "decoder_sparse_step": 1, "max_position_embeddings": 40960,
        "torch_dtype": "bfloat16", "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    }  # fmt: skip
    from deepdraft.planner.shape import Model
    from deepdraft.planner.shape_config import shape_of_config
    from deepdraft.planner.weights import estimated_weights

    shape = shape_of_config(config, "Qwen3-235B-A22B-FP8")
    model = Model(shape=shape, weights=estimated_weights(config, shape))
    settings = SglangSettings(tp_size=4, mem_fraction_static=0.93)
    plan = plan_for("sglang", "0.4.9", model, device("H100"), settings)
    assert plan.bytes_per_token == 94 * 256 * 2
    assert plan.kv_pool_tokens == pytest.approx(367_404, rel=0.05)


def test_flags_that_can_not_be_planned():
    with pytest.raises(UsageError, match="needs the drafter"):
        plan_for("sglang", "0.5.12", open_model("kimi-k2.6"), DEVICE, SETTINGS)
    with pytest.raises(UsageError, match="between 0 and 1"):
        plan_at(1.2)
    with pytest.raises(UsageError, match="--page-size"):
        plan_at(0.9, page_size=0)
    with pytest.raises(UsageError, match="memory is not known"):
        plan_for("sglang", "0.5.12", MODEL, device("bandwidth=1TB/s"), SETTINGS)
    with pytest.raises(UsageError, match="tp 8"):
        plan_at(0.9, started_at(0.85), tp_size=4)
    other = Calibration(source="server.log", settings=VllmSettings(), kv_pool_tokens=1)
    with pytest.raises(UsageError, match="another engine"):
        plan_at(0.9, other)


def test_weights_that_do_not_fit():
    plan = plan_for("sglang", "0.5.12", MODEL, DEVICE, replace(SETTINGS, tp_size=4, mem_fraction_static=0.9))
    assert plan.kv_pool_tokens == plan.num_full_requests == plan.max_request_tokens == 0
    assert plan.verdict.outcome == "does_not_start"
