import pytest

from deepdraft.planner.drafter_config import drafter_of_config, mtp_drafter
from deepdraft.planner.open_model import open_model
from deepdraft.planner.shape import Weights

LAYER = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}
EXACT = Weights(total_bytes=1000, is_exact=True, source="made up")
STATED = Weights(total_bytes=10**6, is_exact=False, source="made up")


@pytest.mark.parametrize(
    ("fields", "kind", "num_taps", "block_size"),
    [
        ({"architectures": ["DFlashDraftModel"], "block_size": 8, "dflash_config": {"target_layer_ids": [1, 5, 9]}},
         "dflash", 3, 8),
        ({"architectures": ["DFlashDraftModel"], "target_layer_ids": [1, 5]}, "dflash", 2, None),
        ({"architectures": ["LlamaForCausalLMEagle3"]}, "eagle3", 3, None),
        ({"architectures": ["LlamaForCausalLMEagle"]}, "eagle", 1, None),
        ({"architectures": ["Qwen3ForCausalLM"]}, "standalone", 0, None),
    ],
)  # fmt: skip
def test_kinds_of_drafters(fields, kind, num_taps, block_size):
    drafter = drafter_of_config(LAYER | fields, EXACT, "drafter")
    assert (drafter.kind, drafter.num_taps, drafter.block_size) == (kind, num_taps, block_size)
    assert drafter.weights == EXACT


def test_the_projection_of_taps_is_added_where_no_header_tells_it():
    fields = {"architectures": ["DFlashDraftModel"], "dflash_config": {"target_layer_ids": [1, 5, 9]}}
    assert drafter_of_config(LAYER | fields, STATED, "drafter").weights.replicated_bytes == 3 * 64 * 64 * 2


def test_prediction_layers_keep_what_the_targets_layers_keep():
    model = open_model("deepseek-v3")
    drafter = mtp_drafter(model)
    assert [each.num_layers for each in drafter.shape.families] == [1]
    assert drafter.weights.total_bytes == model.weights.mtp_bytes > 10**10
    hybrid = mtp_drafter(open_model("qwen3-next-80b-a3b"))
    assert [type(each).__name__ for each in hybrid.shape.families] == ["Grouped"]


def test_deepseek_v4s_prediction_layer_has_a_window_alone():
    drafter = mtp_drafter(open_model("deepseek-v4-flash"))
    (window,) = drafter.shape.families
    assert (window.num_layers, window.window, window.stride) == (1, 128, 1)
    assert drafter.weights.total_bytes == 3_593_787_756
