import pytest

from deepdraft.cost.device import device
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_choice import sglang_choice
from deepdraft.planner.sglang_slack import slack_entries

MIB = 2**20


def entries(model="kimi-k2.6", name="RTX PRO 6000", version="0.5.12", max_running=8, **flags):
    settings = SglangSettings(tp_size=8, max_running_requests=max_running, **flags)
    choice = sglang_choice(version, open_model(model), device(name), settings)
    return {each.name: each for each in slack_entries(choice, max_running)}


def test_partial_attention_of_a_latent_model_by_the_cards_multiprocessors():
    """188 of them: 256 splits, 4 MiB a graph token (and a log-sum); 132: 256; a short context: 1,024 / 32 = 32."""
    one = entries(max_running=1)["CUDA graph partial attention"].num_bytes
    assert one == 8 * 256 * 513 * 4
    assert one == pytest.approx(4 * MIB, rel=0.01)
    assert entries(max_running=1, context_length=1024)["CUDA graph partial attention"].num_bytes == 8 * 32 * 513 * 4
    assert entries(max_running=1, context_length=64)["CUDA graph partial attention"].num_bytes == 8 * 8 * 513 * 4


def test_partial_attention_of_others_has_eight_splits():
    found = entries("qwen3-8b", attention_backend="triton", max_running=1)
    assert found["CUDA graph partial attention"].num_bytes == 4 * 8 * 129 * 4


def test_other_back_ends_keep_indices_by_page_and_a_buffer_of_their_own():
    found = entries("qwen3-8b", "RTX 4090", context_length=32_000, page_size=16)
    assert found["CUDA graph page indices"].num_bytes == 8 * 2_000 * 4
    assert found["CUDA graph page indices"].certainty == "estimate"
    assert found["workspaces of libraries"].num_bytes == (512 + 64) * MIB
    assert "CUDA graph partial attention" not in found


def test_without_graphs_there_are_no_graph_buffers():
    found = entries(disable_cuda_graph=True)
    assert not [name for name in found if "graph" in name.lower()]
    assert "table of requests' pages" in found


def test_a_plain_decode_has_no_mask():
    assert "CUDA graph verify mask" not in entries()


def test_a_captured_prefill_is_part_of_the_graphs():
    assert "captured prefill" in entries("qwen3-8b", version="0.5.23", post_capture_kv_sizing=True)
    assert "captured prefill" not in entries("kimi-k2.6", version="0.5.23", post_capture_kv_sizing=True)


def test_longer_contexts_and_more_requests_cost_more():
    sizes = [
        sum(each.num_bytes for each in entries(max_running=count, context_length=length).values())
        for count, length in ((1, 8_000), (8, 8_000), (8, 200_000), (64, 200_000))
    ]
    assert sizes == sorted(sizes) and len(set(sizes)) == 4
