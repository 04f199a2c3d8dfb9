"""DeepSeek-V4 in SGLang 0.5.23 against what SGLang's own functions answer, and what holds for every plan."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost.bundled_config import bundled_config
from deepdraft.cost.device import device
from deepdraft.errors import UsageError
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_v4 import PAGE_SIZE, V4Form
from deepdraft.planner.sglang_v4_pool import V4Pool, v4_pool
from deepdraft.planner.v4_layers import v4_layers

H200 = device("H200")
FLASH = open_model("deepseek-v4-flash")
DRAFTED = open_model("deepseek-v4-flash", drafter="mtp")
CASES: dict[str, dict[str, Any]] = {
    "Flash": {"name": "deepseek-v4-flash", "available": 40 * 10**9},
    "Flash with MTP": {"name": "deepseek-v4-flash", "available": 40 * 10**9, "max_running": 8, "num_draft_tokens": 4},
    "Pro, windows of 0.05": {
        "name": "deepseek-v4-pro", "available": 20 * 10**9, "context_len": 1_048_576, "swa_ratio": 0.05,
        "max_running": 64,
    },
    "TRT-LLM's rows": {"name": "deepseek-v4-flash", "available": 40 * 10**9, "backend": "trtllm"},
    "unified": {"name": "deepseek-v4-flash", "available": 40 * 10**9, "unified": True},
    "unified fp8 with MTP": {
        "name": "deepseek-v4-flash", "available": 40 * 10**9, "unified": True, "unified_fp8": True,
        "num_draft_tokens": 4, "max_running": 32,
    },
}  # fmt: skip
# Of SGLang 0.5.23 by sglang_own_v4.py: bytes of a token, the "DSV4 pool sizes" of its log (full, swa, c4_state,
# c128_state), and bytes allocated for target and drafter.
OWN: dict[str, tuple[float, tuple[int, int, int, int], tuple[int, int]]] = {
    "Flash": (7086.75, (5_261_056, 526_080, 16_440, 32_896), (40_016_082_880, 0)),
    "Flash with MTP": (
        7939.186046511628, (5_010_432, 500_992, 31_312, 2_304), (39_111_932_928, 293_230_080),
    ),
    "Pro, windows of 0.05": (7851.0, (2_408_704, 120_320, 3_760, 8_320), (20_019_649_472, 0)),
    "TRT-LLM's rows": (6334.6, (5_885_696, 588_544, 18_392, 32_896), (40_012_906_240, 0)),
    "unified": (6229.0, (5_681_408, 568_064, 2_056, 32_896), (40_000_608_512, 0)),
    "unified fp8 with MTP": (
        4249.581395348838, (9_186_048, 918_528, 528, 8_448), (39_111_581_056, 2_766_720),
    ),
}  # fmt: skip


def form_of(case: dict[str, Any]) -> V4Form:
    layers = v4_layers(open_model(case["name"]).shape.families)
    assert layers is not None
    return V4Form(
        layers=layers,
        window_ratio=case.get("swa_ratio", 0.1),
        num_requests=case.get("max_running", 256),
        num_draft_tokens=case.get("num_draft_tokens", 0),
        has_uniform_rows=case.get("backend") == "trtllm",
        is_unified=case.get("unified", False),
        is_unified_fp8=case.get("unified_fp8", False),
    )


def pool_of(case: dict[str, Any]) -> V4Pool:
    return v4_pool(form_of(case), case["available"], context_len=case.get("context_len", 200_000))


def figures(case: dict[str, Any]) -> tuple[float, tuple[int, int, int, int], tuple[int, int]]:
    pool = pool_of(case)
    num_bytes = {entry.name: entry.num_bytes for entry in pool.entries()}
    draft_bytes = num_bytes.pop("draft KV pool", 0)
    return (
        pool.form.token_bytes * pool.form.inflation,
        (pool.num_tokens, pool.window_tokens, *pool.state_rows),
        (sum(num_bytes.values()), draft_bytes),
    )


@pytest.mark.parametrize("case", CASES)
def test_as_sglang_itself(case: str) -> None:
    token_bytes, tokens, allocated = figures(CASES[case])
    assert token_bytes == pytest.approx(OWN[case][0], rel=1e-12)
    assert (tokens, allocated) == OWN[case][1:]


@pytest.mark.engine
def test_as_the_sglang_that_is_installed() -> None:
    python = Path(os.environ.get("DEEPDRAFT_ENGINES", "nowhere")) / "sglang" / "bin" / "python"
    if not python.exists():
        pytest.skip("DEEPDRAFT_ENGINES names no folder with an SGLang that tests/engines/setup_sglang.sh set up")
    cases = []
    for case in CASES.values():
        found = bundled_config(case["name"])
        assert found is not None
        cases.append({"context_len": 200_000, **case, "config": found.config})
    words = [str(python), str(Path(__file__).with_name("sglang_own_v4.py")), json.dumps(cases)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for case, theirs in zip(CASES.values(), json.loads(done.stdout.splitlines()[-1]), strict=True):
        token_bytes, tokens, allocated = figures(case)
        assert token_bytes == pytest.approx(theirs["bytes_per_full_token"], rel=1e-12)
        assert list(tokens) == [theirs[name] for name in ("full", "swa", "c4_state", "c128_state")]
        assert allocated == (theirs["allocated"], theirs["draft_allocated"])


def planned(model: Any = FLASH, version: str | None = None, **flags: Any) -> Plan:
    settings = SglangSettings(**{"tp_size": 4, "context_length": 200_000, "mem_fraction_static": 0.85} | flags)
    return plan_for("sglang", version, model, H200, settings)


def test_the_engines_own_choices() -> None:
    """As SGLang 0.5.23 resolves them for 4 ranks of 80 GiB and no flags: 0.825, for the graphs' default of 512 is
    lowered to 256 requests after the fraction was chosen, and a prefill is not captured."""
    settings = SglangSettings(tp_size=4)
    plan = plan_for("sglang", "0.5.23", FLASH, device("memory=80GiB,bandwidth=3.3TB/s"), settings)
    chosen = {name: plan.effective[name] for name in ("mem_fraction_static", "max_running_requests")}
    assert chosen == {"mem_fraction_static": 0.825, "max_running_requests": 256}
    assert plan.effective["attention_backend"] == "dsv4"
    assert plan.effective["kv_cache_dtype"] == "fp8"
    assert plan.effective["cuda_graph_max_bs"] == 256
    assert plan.kv_pool_tokens % PAGE_SIZE == 0
    assert plan.max_context_len == 1_048_576


def test_speculation_costs_a_layer_more_than_it_takes() -> None:
    plain = planned(DRAFTED)
    drafted = planned(DRAFTED, speculative_algorithm="EAGLE")
    assert drafted.kv_pool_tokens < plain.kv_pool_tokens
    assert drafted.bytes_per_token == pytest.approx(drafted.target_bytes_per_token * 44 / 43)
    assert drafted.target_bytes_per_token < drafted.true_bytes_per_token < drafted.bytes_per_token
    entries = {entry.name: entry.num_bytes for entry in drafted.ledger.entries}
    assert any("--speculative-eagle-topk 1" in note for note in drafted.notes)
    assert entries["draft KV pool"] * 43 == entries["KV pool: windows"]
    assert entries["hidden states for the drafter"] == 2 * 8192 * 4096 * 4 * 2  # four streams, captured and joined


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        ({"kv_cache_dtype": "bfloat16"}, "packed fp8"),
        ({"kv_cache_dtype": "fp4_e2m1"}, "packed fp8"),
        ({"dsv4_attn_backend": "flashmla_mega"}, "flashmla_mega"),
        ({"dsv4_unified_kv": True, "dsv4_attn_backend": "trtllm"}, "AMD"),
        ({"speculative_algorithm": "DFLASH"}, "DFLASH"),
        ({"speculative_algorithm": "EAGLE", "speculative_num_draft_tokens": 11}, "compressors hold"),
    ],
)
def test_what_the_engine_refuses(flags: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        planned(DRAFTED, **flags)


def test_a_foreign_drafter_is_refused() -> None:
    foreign = replace(FLASH, drafter=open_model("kimi-k2.6", drafter="kimi-k2.6-dflash").drafter)
    with pytest.raises(UsageError, match="prediction layer"):
        planned(foreign, speculative_algorithm="EAGLE")


def test_the_older_version_has_one_layout() -> None:
    with pytest.raises(UsageError, match=r"0\.5\.12"):
        planned(version="0.5.12", dsv4_attn_backend="trtllm")
    plan = planned(version="0.5.12")
    assert plan.kv_pool_tokens % PAGE_SIZE == 0
    assert plan.kv_pool_tokens < planned().kv_pool_tokens / 2


def test_windows_that_hold_no_request_do_not_start() -> None:
    """Prefill asks for a window and a page; a pool below that would wait forever, so the engine refuses it."""
    plan = planned(swa_full_tokens_ratio=0.0001, max_total_tokens=1_000_000)
    assert plan.verdict.outcome == "does_not_start"
    assert any("--swa-full-tokens-ratio" in note for note in plan.notes)


@pytest.mark.parametrize(("tokens", "admitted"), [(3840, False), (4096, True), (7680, True)])
def test_the_least_windows_pool_is_more_than_a_window_and_a_page(tokens: int, admitted: bool) -> None:
    """128 + 256: at 0.1 a pool of 3,840 tokens has windows of 256, and one of 5,120 the first that does."""
    form = replace(form_of(CASES["Flash"]), window_ratio=0.125)
    pool = v4_pool(form, 10**12, context_len=200_000, max_tokens=tokens)
    assert (pool.num_tokens > 0) == admitted


def test_windows_bind_requests_where_their_pool_is_small() -> None:
    roomy, narrow = (
        planned(max_running_requests=4096),
        planned(max_running_requests=4096, swa_full_tokens_ratio=0.0005),
    )
    assert roomy.num_full_requests == roomy.kv_pool_tokens // 200_000
    assert narrow.num_full_requests < narrow.kv_pool_tokens // 200_000
    windows = int(narrow.kv_pool_tokens * 0.0005) // PAGE_SIZE * PAGE_SIZE
    assert narrow.num_full_requests == windows // (128 + PAGE_SIZE)


def test_requests_move_the_pool_of_rings_more() -> None:
    """Ratio 128's states are the requests' on every path; on the unified one windows and the others are, too."""
    paged = [planned(max_running_requests=count).kv_pool_tokens for count in (8, 1024)]
    rings = [planned(max_running_requests=count, dsv4_unified_kv=True).kv_pool_tokens for count in (8, 1024)]
    assert 0 < paged[0] - paged[1] < rings[0] - rings[1]
    note = "--max-running-requests moves the pool"
    assert any(note in each for each in planned(dsv4_unified_kv=True).notes)
    assert not any(note in each for each in planned().notes)


def test_a_rank_of_data_parallel_attention_runs_its_share() -> None:
    alone = planned(tp_size=8, max_running_requests=256)
    shared = planned(tp_size=8, max_running_requests=256, dp_size=8, enable_dp_attention=True)
    assert (alone.max_running_requests, shared.max_running_requests) == (256, 32)


FORMS = st.builds(
    V4Form,
    layers=st.just(form_of(CASES["Flash"]).layers),
    window_ratio=st.floats(0.01, 1.0),
    num_requests=st.integers(1, 4096),
    num_draft_tokens=st.integers(0, 10),
    has_uniform_rows=st.booleans(),
    is_unified=st.booleans(),
)


@given(FORMS, st.integers(0, 10**11), st.integers(0, 10**9))
def test_a_pool_is_whole_pages_and_grows_with_the_budget(form: V4Form, budget: int, more: int) -> None:
    now = v4_pool(form, budget, context_len=200_000)
    then = v4_pool(form, budget + more, context_len=200_000)
    assert now.num_tokens % PAGE_SIZE == now.window_tokens % PAGE_SIZE == 0
    assert then.num_tokens >= now.num_tokens
    assert now.num_requests <= min(form.num_requests, now.num_tokens // 2)


@given(FORMS, st.integers(10**10, 10**11))
def test_buffers_take_the_budget_and_little_more(form: V4Form, budget: int) -> None:
    """Pages to spare, and a drafter's window within the layer that speculation was charged."""
    pool = v4_pool(form, budget, context_len=200_000)
    if not pool.num_tokens:
        return
    used = sum(entry.num_bytes for entry in pool.entries())
    spare = 3 * PAGE_SIZE * 1024 * form.layers.num_layers
    assert used <= budget + spare
    charged = (form.inflation - 1) * (pool.num_tokens * form.token_bytes + form.window_ring_bytes(pool.num_requests))
    assert used >= budget - charged - 2 * form.fixed_bytes(1) - PAGE_SIZE * form.token_bytes * form.inflation - spare


@given(st.floats(0.5, 0.95), st.floats(0, 0.02), st.booleans(), st.sampled_from([None, 8, 512]))
def test_the_pool_grows_with_the_fraction_and_the_parts_fill_the_device(
    fraction: float, more: float, is_unified: bool, max_running: int | None
) -> None:
    flags = {"max_running_requests": max_running, "dsv4_unified_kv": is_unified}
    now = planned(mem_fraction_static=fraction, **flags)
    then = planned(mem_fraction_static=fraction + more, **flags)
    assert now.kv_pool_tokens <= then.kv_pool_tokens
    assert now.kv_pool_tokens_range[0] <= now.kv_pool_tokens <= now.kv_pool_tokens_range[1]
    parts = now.ledger.total_bytes("outside", "weights", "pool", "slack")
    assert parts + now.reserve_bytes == now.device_bytes
