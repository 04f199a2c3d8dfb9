from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.reference import DEVICE, MODEL, SETTINGS

from deepdraft.cost.device import device
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_choice import sglang_choice
from deepdraft.planner.sglang_spike import down_projection_bytes, spike_entries

GIB, MIB = 2**30, 2**20


def choice_of(name="kimi-k2.6", card="RTX PRO 6000", version="0.5.12", **flags):
    return sglang_choice(version, open_model(name), device(card), SglangSettings(tp_size=8, **flags))


REFERENCE = sglang_choice("0.5.12", MODEL, DEVICE, SETTINGS)


def needs(choice, prompt_len):
    return {each.name: each.num_bytes for each in spike_entries(choice, prompt_len)}


def test_a_dense_model_has_no_expert_buffers():
    assert not [name for name in needs(choice_of("qwen3-8b"), 8192) if "expert" in name]


@pytest.mark.parametrize(
    ("name", "buffer_mib"),
    [("kimi-k2.6", 896), ("deepseek-v3", 896), ("gpt-oss-120b", 8192 * 4 * 2880 * 2 / MIB),
     ("qwen3-next-80b-a3b", 8192 * 10 * 2048 * 2 / MIB)],
)  # fmt: skip
def test_the_experts_buffer_of_a_chunk_of_8192(name, buffer_mib):
    assert down_projection_bytes(choice_of(name), 8192) == buffer_mib * MIB


def test_experts_that_write_less_than_hidden():
    """Kimi K3's routed experts work on 3,584 of 7,168."""
    model = MODEL.shape
    narrow = replace(REFERENCE, model=replace(MODEL, shape=replace(model, moe_hidden=3584)))
    assert down_projection_bytes(narrow, 8192) == 448 * MIB


def test_the_prefix_is_expanded_by_every_back_end_but_triton():
    """8 heads of a rank x (2 x 256 + 64) x 2 bytes, for 131,072 tokens at most."""
    name = "expanded keys and values of the prefix"
    assert name not in needs(choice_of(), 200_000)
    fa3 = choice_of(card="H200")
    assert name not in needs(fa3, 8192)
    assert needs(fa3, 16_384)[name] == 8192 * 8 * 576 * 2
    assert needs(fa3, 200_000)[name] == 131_072 * 8 * 576 * 2


def test_fragments_come_with_the_second_chunk_and_not_with_expandable_segments():
    assert "fragmentation" not in needs(REFERENCE, 8192)
    found = needs(REFERENCE, 8193)
    assert found["fragmentation"] == pytest.approx(sum(found.values()) / 3, rel=0.001)
    expandable = replace(REFERENCE, settings=replace(SETTINGS, expandable_segments=True))
    assert "fragmentation" not in needs(expandable, 200_000)


def test_what_no_formula_foresees_is_an_error_and_no_need():
    unforeseen = spike_entries(REFERENCE, 200_000)[-1]
    assert (unforeseen.num_bytes, unforeseen.error_bytes) == (0, 3 * GIB)
    assert "probe" in unforeseen.source
    assert spike_entries(REFERENCE, 1000)[-1].error_bytes == 1000 * 20 * 1024


@given(
    st.integers(1, 200_000), st.integers(0, 50_000), st.sampled_from(["kimi-k2.6", "qwen3-8b", "qwen3-next-80b-a3b"])
)
def test_longer_prompts_never_need_less(prompt_len, more, name):
    choice = choice_of(name, "H200")
    assert sum(needs(choice, prompt_len + more).values()) >= sum(needs(choice, prompt_len).values())
