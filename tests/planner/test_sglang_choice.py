from dataclasses import replace

import pytest
from tests.planner.reference import MODEL, SETTINGS

from deepdraft.cost.device import device
from deepdraft.errors import UsageError
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_choice import num_graphs, sglang_choice

QWEN = open_model("qwen3-8b")


def chosen(name="H100", version="0.5.12", model=QWEN, **flags):
    return sglang_choice(version, model, device(name), SglangSettings(**flags))


@pytest.mark.parametrize(
    ("version", "name", "chunk_len"),
    [("0.5.12", "RTX 4090", 2048), ("0.5.23", "RTX 4090", 4096), ("0.5.12", "L40S", 4096), ("0.5.12", "H100", 8192),
     ("0.5.12", "RTX PRO 6000", 8192), ("0.5.12", "B200", 16384)],
)  # fmt: skip
def test_the_chunk_by_the_card(version, name, chunk_len):
    assert chosen(name, version).chunk_len == chunk_len


def test_larger_graphs_on_small_cards_since():
    assert [chosen("RTX 4090", version).graph_max_bs for version in ("0.5.12", "0.5.23")] == [24, 48]
    assert [chosen("RTX 4090", version, tp_size=4).graph_max_bs for version in ("0.5.12", "0.5.23")] == [80, 160]


def test_data_parallel_attention_lowers_the_fraction():
    plain, dp = chosen(tp_size=8), chosen(tp_size=8, dp_size=8, enable_dp_attention=True)
    assert dp.mem_fraction < plain.mem_fraction


def test_a_chunk_that_is_turned_off_is_the_whole_context():
    assert chosen(chunked_prefill_size=-1).chunk_len == 40_960


def test_graphs_go_up_to_the_request_cap():
    assert chosen().graph_max_bs == 256
    assert chosen(tp_size=8).graph_max_bs == 512
    assert chosen(max_running_requests=8).graph_max_bs == 8
    assert chosen(disable_cuda_graph=True).graph_max_bs == 0
    assert (
        sglang_choice("0.5.12", MODEL, device("H200"), replace(SETTINGS, max_running_requests=None)).graph_max_bs
        == 48
    )


@pytest.mark.parametrize(
    ("model", "name", "backend"),
    [("kimi-k2.6", "RTX PRO 6000", "triton"), ("kimi-k2.6", "H200", "fa3"), ("kimi-k2.6", "B200", "trtllm_mla"),
     ("qwen3-8b", "RTX 4090", "flashinfer"), ("qwen3-8b", "MI300X", "aiter")],
)  # fmt: skip
def test_the_back_end_by_card_and_attention(model, name, backend):
    assert chosen(name, model=open_model(model)).backend == backend
    assert chosen(name, model=open_model(model), attention_backend="triton").backend == "triton"


def test_tokens_of_a_verify_step():
    plain = replace(SETTINGS, speculative_num_draft_tokens=None)
    assert sglang_choice("0.5.12", MODEL, device("H200"), plain).num_draft_tokens == 8
    assert chosen(speculative_algorithm="NGRAM", speculative_num_draft_tokens=12).num_draft_tokens == 12
    assert chosen().num_draft_tokens == 1


def test_attention_of_data_parallel_ranks():
    assert chosen(tp_size=8, dp_size=8, enable_dp_attention=True).attention_tp == 1
    assert chosen(tp_size=8, dp_size=8).attention_tp == 8
    with pytest.raises(UsageError, match="does not divide"):
        chosen(tp_size=8, dp_size=3, enable_dp_attention=True)


def test_the_cache_in_the_type_that_the_checkpoint_was_made_for():
    quantised = replace(QWEN, shape=replace(QWEN.shape, kv_cache_dtype="fp8"))
    assert chosen(model=quantised).form.key.name == "fp8"
    assert chosen(model=quantised, kv_cache_dtype="bfloat16").form.key.name == "bfloat16"


def test_a_context_limit_is_needed():
    endless = replace(QWEN, shape=replace(QWEN.shape, max_context_len=None))
    with pytest.raises(UsageError) as refused:
        chosen(model=endless)
    assert "--context-length" in (refused.value.hint or "")
    assert chosen(model=endless, context_length=1000).context_len == 1000


def test_batch_sizes_that_are_captured():
    assert num_graphs(0, is_speculative=False) == 0
    assert num_graphs(8, is_speculative=True) == 8
    assert num_graphs(8, is_speculative=False) == 4
    assert num_graphs(256, is_speculative=False) == 5 + 31
    assert num_graphs(512, is_speculative=False) == 5 + 31 + 15 + 1
    assert num_graphs(3, is_speculative=False) == 3


def test_a_cap_that_speculation_sets_comes_after_the_fraction():
    """As ServerArgs of 0.5.23 resolves them: graphs of 512 in the fraction, whatever speculation allows later."""
    card = device("memory=80GiB,bandwidth=3.3TB/s")
    plain = sglang_choice("0.5.23", QWEN, card, SglangSettings(tp_size=4))
    drafted = replace(open_model("kimi-k2.6", drafter="kimi-k2.6-dflash"), shape=QWEN.shape)
    speculative = sglang_choice("0.5.23", drafted, card, SglangSettings(tp_size=4, speculative_algorithm="DFLASH"))
    assert speculative.mem_fraction == plain.mem_fraction
    assert (speculative.graph_max_bs, plain.graph_max_bs) == (48, 512)


def test_deepep_is_left_2_gib():
    """As ServerArgs of 0.5.23 resolves it for DeepSeek-V4-Flash on 4 x 80 GiB: 0.8 instead of 0.825."""
    card, flash = device("memory=80GiB,bandwidth=3.3TB/s"), open_model("deepseek-v4-flash")
    fractions = [
        sglang_choice("0.5.23", flash, card, SglangSettings(tp_size=4, moe_a2a_backend=backend)).mem_fraction
        for backend in ("none", "deepep")
    ]
    assert fractions == [0.825, 0.8]
    older = SglangSettings(tp_size=4, moe_a2a_backend="deepep")
    assert (
        chosen(version="0.5.12", tp_size=4).mem_fraction
        == sglang_choice("0.5.12", QWEN, device("H100"), older).mem_fraction
    )
