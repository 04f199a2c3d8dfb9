"""The JSON form: the promised keys, values of the plan itself, nothing that JSON can't hold."""

from __future__ import annotations

import json

import pytest
from tests.planner.deployment import calibrated, kimi, qwen_llamacpp, qwen_vllm, sglang

from deepdraft.planner.back import settings_for
from deepdraft.planner.check import checks
from deepdraft.planner.json_object import checks_object, lever_object, option_object, plan_object
from deepdraft.planner.lever import freed_by_flag

PROMISED = {
    "kv_pool_tokens", "bytes_per_token", "reserve_bytes", "prefill_spike_bytes", "ledger", "verdict", "flags",
}  # fmt: skip


@pytest.mark.parametrize("plan", [calibrated(sglang()), kimi(sglang()), qwen_vllm(), qwen_llamacpp()])
def test_a_plan(plan) -> None:
    found = json.loads(json.dumps(plan_object(plan), allow_nan=False))
    assert set(found) >= PROMISED
    assert found["kv_pool_tokens"] == plan.kv_pool_tokens
    assert found["verdict"]["outcome"] == plan.verdict.outcome
    assert {entry["certainty"] for entry in found["ledger"]} <= {"exact", "formula", "estimate", "measured"}
    assert all(entry["source"] for entry in found["ledger"])
    places = ("outside", "weights", "pool", "slack")
    used = sum(entry["num_bytes"] for entry in found["ledger"] if entry["place"] in places)
    assert used + found["reserve_bytes"] == found["device_bytes"]
    spike = sum(entry["num_bytes"] for entry in found["ledger"] if entry["place"] == "spike")
    assert spike == found["prefill_spike_bytes"]


def test_flags_are_those_given_and_those_chosen() -> None:
    flags = plan_object(kimi(sglang(cuda_graph_max_bs=None)))["flags"]
    assert flags["mem_fraction_static"] == 0.94
    assert "cuda_graph_max_bs" not in flags
    assert flags["chosen"]["cuda_graph_max_bs"] == 8


def test_options_levers_and_checks() -> None:
    options = settings_for(calibrated, sglang(), target_context_len=200_000)
    found = json.loads(json.dumps([option_object(option) for option in options]))
    assert all(option["holds"] for option in found)
    fractions = [change for change in found[0]["changes"] if change["field"] == "mem_fraction_static"]
    assert fractions == [{"field": "mem_fraction_static", "before": 0.94, "after": 0.93}]
    levers = [lever_object(lever) for lever in freed_by_flag(calibrated, sglang())]
    assert json.loads(json.dumps(levers))[0]["freed_bytes"] > 0
    (check,) = checks_object(checks(calibrated(sglang()), {"kv_pool_tokens": 101_134}, {}))
    assert (check["reported"], check["agrees"]) == (101_134, False)
