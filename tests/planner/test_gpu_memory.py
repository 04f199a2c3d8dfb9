"""Held against the public logs that the estimates are from, and against one that they are not from."""

import pytest

from deepdraft.cost.device import device
from deepdraft.planner.gpu_memory import absorbed_entry, outside_entries, weight_entries
from deepdraft.planner.open_model import open_model

GIB = 2**30


@pytest.mark.parametrize(
    ("name", "num_ranks", "avail_gib"),
    [
        pytest.param("RTX PRO 6000", 4, 94.01, id="sglang issue 40558"),
        pytest.param("H200", 8, 137.29, id="sglang pull request 11716"),
        pytest.param("H200", 8, 137.46, id="sglang issue 6017"),
        pytest.param("RTX PRO 6000", 8, 93.73, id="the reference deployment"),
    ],
)
def test_free_memory_before_weights(name, num_ranks, avail_gib):
    card = device(name)
    entries = outside_entries(card, num_ranks)
    free = int(card.memory_bytes or 0) - sum(each.num_bytes for each in entries)
    error = sum(each.error_bytes for each in entries)
    assert abs(free - avail_gib * GIB) <= error
    assert free == pytest.approx(avail_gib * GIB, rel=0.005)


def test_one_rank_talks_to_nobody():
    assert [each.name for each in outside_entries(device("H100"), 1)] == ["driver and context"]
    assert len(outside_entries(device("H100"), 2)) == 2


def test_a_rank_of_kimi_k2():
    """A public start of Kimi K2.5 with 8 ranks, of the same shape and size, used 73.58 GiB (on MI355X)."""
    model = open_model("kimi-k2.6")
    entries = (
        *weight_entries(model.shape, model.weights, tp_size=8, pp_size=1),
        *absorbed_entry(model.shape, tp_size=8, pp_size=1),
    )
    assert sum(each.num_bytes for each in entries) == pytest.approx(73.58 * GIB, rel=0.02)
    assert absorbed_entry(model.shape, tp_size=8, pp_size=1)[0].num_bytes == 61 * 8 * 256 * 512 * 2
    assert absorbed_entry(open_model("qwen3-8b").shape, tp_size=8, pp_size=1) == ()
