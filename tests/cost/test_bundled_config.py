import pytest

from deepdraft.cost.bundled_config import bundled_config, bundled_names
from deepdraft.cost.config_field import text_config, whole
from deepdraft.cost.known_model import known_model


@pytest.mark.parametrize("name", bundled_names())
def test_every_config_is_whole_and_tells_where_its_bytes_are_from(name):
    found = bundled_config(name)
    assert found is not None and found.name == name
    for field in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):
        assert whole(text_config(found.config), field) > 0
    assert found.total_bytes > 10**9 and found.mtp_bytes >= 0 and found.source


def test_names_with_an_owner_or_a_tuning():
    assert bundled_config("Qwen/Qwen3-Next-80B-A3B-Instruct") == bundled_config("qwen3-next-80b-a3b")
    assert bundled_config(" openai/GPT-OSS-20B ") == bundled_config("gpt-oss-20b")
    for other in ("", "kimi", "..", "shapes/kimi-k2.6/", "kimi-k2.6.json"):
        assert bundled_config(other) is None


def test_one_config_serves_cost_and_plan():
    shape = known_model("Kimi K2.6")
    config = text_config(bundled_config("kimi-k2.6").config)  # type: ignore[union-attr]
    assert shape is not None
    assert (shape.hidden, shape.num_experts) == (config["hidden_size"], config["n_routed_experts"])
