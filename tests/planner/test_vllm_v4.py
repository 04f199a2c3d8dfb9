"""DeepSeek-V4 in vLLM 0.32 against what vLLM's own functions make of its layers."""

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
from deepdraft.planner.settings import VllmSettings
from deepdraft.planner.v4_layers import v4_families, v4_layers
from deepdraft.planner.vllm_blocks import BlockLayout
from deepdraft.planner.vllm_v4 import late_bytes, v4_layout, workspace_bytes

H200 = device("H200")
POOL_BYTES, IN_FLIGHT, LENS = 20 * 2**30, 16_384, (32_768, 1_048_576)
CASES: dict[str, dict[str, Any]] = {
    "Flash": {"name": "deepseek-v4-flash"},
    "Flash with MTP": {"name": "deepseek-v4-flash", "num_draft_layers": 1},
    "Pro": {"name": "deepseek-v4-pro"},
    "Pro with MTP": {"name": "deepseek-v4-pro", "num_draft_layers": 1},
    "Flash, blocks of 512": {"name": "deepseek-v4-flash", "block_size": 512},
    "few with an index": {"name": "deepseek-v4-flash", "ratios": [4, *[128] * 30]},
    "all with an index": {"name": "deepseek-v4-flash", "ratios": [4] * 12},
    "none with an index": {"name": "deepseek-v4-flash", "ratios": [0, *[128] * 40]},
}
# Of vLLM 0.32.0 by vllm_own_v4.py: groups, bytes of a block, and at each of LENS tokens and a request's bytes.
OWN: dict[str, tuple[int, int, tuple[int, int], tuple[int, int]]] = {
    "Flash": (5, 1_002_240, (103_096, 6_825_254_400), (2_084_504, 10_802_142_720)),
    "Flash with MTP": (5, 1_002_240, (103_096, 6_825_254_400), (2_084_504, 10_802_142_720)),
    "Pro": (5, 1_435_968, (71_954, 9_778_942_080), (1_454_852, 15_476_863_104)),
    "Pro with MTP": (5, 1_435_968, (71_954, 9_778_942_080), (1_454_852, 15_476_863_104)),
    "Flash, blocks of 512": (5, 1_992_960, (52_338, 13_444_508_160), (1_294_204, 17_398_540_800)),
}


def ratios_of(case: dict[str, Any]) -> list[int]:
    found = bundled_config(case["name"])
    assert found is not None
    ratios: list[int] = case.get("ratios") or found.config["compress_ratios"][: found.config["num_hidden_layers"]]
    return ratios


def layout_of(case: dict[str, Any], in_flight_len: int = IN_FLIGHT) -> BlockLayout:
    families = v4_families(ratios_of(case), dim=512, rope_dim=64, index_dim=128, window=128)
    layers = v4_layers(families)
    assert layers is not None
    layers = replace(layers, num_layers=layers.num_layers + case.get("num_draft_layers", 0))
    block_len = case.get("block_size", 256)
    return v4_layout(layers, pp_size=1, block_len=block_len, in_flight_len=in_flight_len, num_draft=0)


def figures(case: dict[str, Any], max_len: int) -> tuple[int, int, int, int]:
    layout = layout_of(case)
    tokens = int(layout.num_requests(POOL_BYTES, max_len) * max_len)
    return len(layout.groups), layout.block_bytes, tokens, layout.request_bytes(max_len)


@pytest.mark.parametrize("case", OWN)
def test_as_vllm_itself(case: str) -> None:
    groups, block_bytes, *by_len = OWN[case]
    for max_len, (tokens, request_bytes) in zip(LENS, by_len, strict=True):
        assert figures(CASES[case], max_len) == (groups, block_bytes, tokens, request_bytes)


@pytest.mark.engine
def test_as_the_vllm_that_is_installed() -> None:
    python = Path(os.environ.get("DEEPDRAFT_ENGINES", "nowhere")) / "vllm" / "bin" / "python"
    if not python.exists():
        pytest.skip("DEEPDRAFT_ENGINES names no folder with a vLLM that tests/engines/setup_vllm.sh set up")
    found = bundled_config("deepseek-v4-flash")
    assert found is not None
    cases = []
    for case in CASES.values():
        ratios = ratios_of(case)
        config = found.config | {"compress_ratios": ratios, "num_hidden_layers": len(ratios)}
        cases.append(case | {"config": config})
    script = Path(__file__).with_name("vllm_own_v4.py")
    words = [str(python), str(script), json.dumps(cases), str(POOL_BYTES), str(IN_FLIGHT), *map(str, LENS)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=170, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    for name, theirs in zip(CASES, json.loads(done.stdout.splitlines()[-1]), strict=True):
        assert [list(figures(CASES[name], length)) for length in LENS] == theirs, name


def planned(model: Any = None, **flags: Any) -> Plan:
    settings = VllmSettings(**{"tensor_parallel_size": 4, "max_model_len": 200_000} | flags)
    return plan_for("vllm", None, model or open_model("deepseek-v4-flash"), H200, settings)


def test_the_engines_own_choices() -> None:
    plan = planned()
    assert plan.effective["block_size"] == 256
    assert plan.effective["kv_cache_dtype"] == "fp8_ds_mla"
    assert plan.bytes_per_token == 1_002_240 / 256
    assert planned(kv_cache_dtype="fp8").kv_pool_tokens == plan.kv_pool_tokens


def test_what_a_request_holds_follows_the_batch() -> None:
    """4,099 blocks of 4 tokens and 2,065 of 8 for two batches of 8,192, each a block of the pool."""
    plan = planned()
    windows = 2 * (-(-(127 + 16_384) // 64) + 1)
    states = (-(-(7 + 16_384) // 4) + 1) + (-(-(127 + 16_384) // 8) + 1)
    assert plan.bytes_per_sequence == (windows + states) * 1_002_240
    small = planned(max_num_batched_tokens=2048)
    assert small.bytes_per_sequence < 0.26 * plan.bytes_per_sequence
    assert any("--max-num-batched-tokens" in note for note in plan.notes)


def test_what_is_allocated_after_the_pool_comes_out_of_the_reserve() -> None:
    """Places of 8,192 tokens among 1,664 rows of ratio 128 (200,000 / 128 in whole 128s), twice, 4 bytes each."""
    plan = planned()
    (late,) = (entry for entry in plan.ledger.entries if entry.name == "places of compressed rows")
    assert late.num_bytes == 2 * 8192 * 1664 * 4
    parts = plan.ledger.total_bytes("outside", "weights", "pool", "slack")
    assert parts + plan.reserve_bytes == plan.device_bytes
    assert late.num_bytes < planned(max_model_len=1_048_576).ledger.total_bytes("slack")


def test_the_prediction_layer_adds_a_window() -> None:
    model = open_model("deepseek-v4-flash", drafter="mtp")
    plan = planned(model, num_speculative_tokens=1)
    assert plan.true_bytes_per_token == plan.target_bytes_per_token
    assert plan.bytes_per_token == planned().bytes_per_token


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        ({"kv_cache_dtype": "bfloat16"}, "packed fp8"),
        ({"block_size": 64}, "256 tokens"),
        ({"decode_context_parallel_size": 2}, "not known here"),
    ],
)
def test_what_the_engine_refuses(flags: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        planned(**flags)


def test_a_foreign_drafter_is_refused() -> None:
    model = replace(
        open_model("deepseek-v4-flash"), drafter=open_model("kimi-k2.6", drafter="kimi-k2.6-dflash").drafter
    )
    with pytest.raises(UsageError, match="prediction layers"):
        planned(model, num_speculative_tokens=4)


def test_workspaces_by_hand() -> None:
    layers = v4_layers(open_model("deepseek-v4-flash").shape.families)
    assert layers is not None
    sizes = {"max_len": 1_048_576, "num_batched": 8192, "topk": 512}
    gathered = 4 * (262_144 + 128 + 8192) * 512 * 2 + 8192 * (640 + 1) * 4
    assert workspace_bytes(layers, **sizes, is_flashmla=True) == gathered + 512 * 2**20
    keys = 1_048_576 * 8 * 2 // 4 * 132
    assert workspace_bytes(layers, **sizes, is_flashmla=False) == keys + 512 * 2**20
    assert late_bytes(layers, max_len=1_048_576, num_batched=8192) == 2 * 8192 * 8192 * 4


@given(st.sampled_from(sorted(CASES)), st.integers(1, 2_000_000), st.integers(1, 40_000))
def test_a_request_grows_with_its_length_and_with_tokens_in_flight(case: str, max_len: int, in_flight: int) -> None:
    layout = layout_of(CASES[case], in_flight)
    assert layout.request_bytes(max_len) <= layout.request_bytes(max_len + 1)
    assert layout.request_bytes(max_len) <= layout_of(CASES[case], in_flight + 1).request_bytes(max_len)
    assert layout.request_bytes(max_len) % layout.block_bytes == 0
