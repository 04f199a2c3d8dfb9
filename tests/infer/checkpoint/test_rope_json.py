from __future__ import annotations

from typing import Any

import pytest

from deepdraft.infer.checkpoint.config_json import model_config
from deepdraft.infer.config import RopeShape

YARN = {"factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 16, "beta_slow": 2}
LLAMA3 = {
    "factor": 8.0,
    "original_max_position_embeddings": 64,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
}


def rope(**stated: Any) -> RopeShape:
    return model_config({"model_type": "llama", "max_position_embeddings": 128, **stated}).rope


@pytest.mark.parametrize(
    ("kind", "stated", "expected"),
    [
        ("default", {}, {}),
        ("linear", {"factor": 2}, {"factor": 2.0}),
        ("llama3", LLAMA3, LLAMA3),
        ("yarn", YARN, {**YARN, "beta_fast": 16.0, "beta_slow": 2.0}),
    ],
)
def test_both_forms_say_the_same(kind: str, stated: dict[str, Any], expected: dict[str, Any]) -> None:
    wanted = RopeShape(theta=5e5, kind=kind, **expected)
    assert rope(rope_theta=500000, rope_scaling={"type": kind, **stated}) == wanted
    assert rope(rope_theta=500000.0, rope_scaling={"rope_type": kind, **stated}) == wanted
    assert rope(rope_parameters={"rope_type": kind, "rope_theta": 500000.0, **stated}) == wanted


def test_theta_by_default_and_from_either_place() -> None:
    assert rope().theta == 10_000.0
    assert rope(rope_scaling=None, rope_theta=7).theta == 7.0
    assert rope(rope_parameters={"rope_type": "default", "rope_theta": 8.0}, rope_theta=7).theta == 8.0
    assert rope(rope_parameters={"rope_type": "default"}, rope_theta=7).theta == 7.0


def test_rope_scaling_counts_where_both_stand() -> None:
    scaling, parameters = {"type": "linear", "factor": 3.0}, {"rope_type": "linear", "factor": 5.0}
    assert rope(rope_scaling=scaling, rope_parameters=parameters).factor == 3.0


def test_yarn_by_default() -> None:
    shape = rope(rope_scaling={"type": "yarn", "factor": 4.0})
    assert (shape.beta_fast, shape.beta_slow, shape.is_truncated) == (32.0, 1.0, True)
    assert (shape.mscale, shape.mscale_all_dim, shape.attention_factor) == (None, None, None)
    assert shape.original_max_position_embeddings == 128


def test_yarn_as_deepseek_and_gpt_oss_write_it() -> None:
    shape = rope(rope_scaling={"type": "yarn", **YARN, "mscale": 0.707, "mscale_all_dim": 0.5, "truncate": False})
    assert (shape.mscale, shape.mscale_all_dim, shape.is_truncated) == (0.707, 0.5, False)
    assert rope(rope_scaling={"type": "yarn", **YARN, "attention_factor": 1.25}).attention_factor == 1.25
    assert rope(rope_scaling={"type": "yarn", **YARN, "mscale": 0, "mscale_all_dim": 0.0}).mscale is None


def test_a_length_of_its_own_counts_first() -> None:
    assert rope(rope_scaling={"type": "yarn", **YARN}, original_max_position_embeddings=32) == RopeShape(
        theta=10_000.0,
        kind="yarn",
        factor=4.0,
        original_max_position_embeddings=32,
        beta_fast=16.0,
        beta_slow=2.0,
    )


@pytest.mark.parametrize(
    "stated",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "yarn", "factor": 4.0}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_scaling": {"type": "linear", "factor": 4.0}, "rope_theta": 100.0},
        {"rope_parameters": {"rope_type": "default"}, "rope_theta": 3e4},
        {"rope_theta": 3e4},
    ],
)
def test_transformers_reads_the_same(stated: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    parameters = transformers.LlamaConfig(max_position_embeddings=128, **stated).rope_parameters
    shape = rope(**stated)
    assert (shape.kind, shape.theta) == (parameters["rope_type"], parameters["rope_theta"])
    for name in ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"):
        assert getattr(shape, name) == parameters.get(name)
