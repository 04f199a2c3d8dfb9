"""Caches of known models against arithmetic done by hand (benchmarks/planners/case.py says it in words)."""

from __future__ import annotations

import pytest
from benchmarks.planners.case import CASES, Case
from benchmarks.planners.planner import deepdrafts

BYTES = {
    "Qwen3-8B": 4_831_838_208,
    "DeepSeek-V3 (flat)": 2_302_672_896,
    "Kimi K2.6 (nested)": 2_302_672_896,
    "Gemma 3 27B": 3_120_562_176,
    "Gemma 3 27B, layer_types": 3_120_562_176,
    "gpt-oss-120b": 1_212_678_144,
    "Qwen3-Next-80B-A3B": 882_573_312,
    "DeepSeek-V4-Flash": 221_954_048,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_sequence(case: Case) -> None:
    assert case.num_bytes == BYTES[case.name]
    assert deepdrafts(case).num_bytes == case.num_bytes
