import pytest

from deepdraft.cost.bundled_config import bundled_config, bundled_names
from deepdraft.cost.kv_dtype import BFLOAT16
from deepdraft.cost.kv_family import KvFormat, kv_bytes_per_token
from deepdraft.planner.bundled import bundled_drafter, bundled_model

KV = {"qwen3-8b": 147_456, "deepseek-v3": 70_272, "kimi-k2.6": 70_272, "gemma-3-27b": 81_920, "gpt-oss-120b": 36_864,
      "gpt-oss-20b": 24_576, "qwen3-next-80b-a3b": 24_576,
      "deepseek-v4-flash": 21 * (1024 + 132) / 4 + 20 * 1024 / 128,
      "deepseek-v4-pro": 30 * (1024 + 132) / 4 + 31 * 1024 / 128}  # fmt: skip


@pytest.mark.parametrize("name", bundled_names())
def test_every_shape_is_a_model_or_a_drafter(name):
    model, drafter = bundled_model(name), bundled_drafter(name)
    assert (model is None) != (drafter is None)
    if model is not None:
        assert kv_bytes_per_token(model.shape.families, KvFormat.of(BFLOAT16)) == KV[name]
        assert model.shape.max_context_len and model.weights.total_bytes > 10**10


def test_the_shapes_that_the_docs_name():
    assert set(KV) | {"kimi-k2.6-dflash"} == set(bundled_names())


def test_a_name_may_have_its_owner_and_any_case():
    assert bundled_model("moonshotai/Kimi-K2.6") == bundled_model("kimi-k2.6")
    assert bundled_model("google/gemma-3-27b-it") == bundled_model("gemma-3-27b")
    assert bundled_model("kimi") is None and bundled_config("../shape") is None and bundled_drafter("") is None


@pytest.mark.parametrize(("name", "checkpoint_gib"), [("deepseek-v4-flash", 148.66), ("deepseek-v4-pro", 805.3)])
def test_deepseek_v4s_weights_are_those_of_its_checkpoint(name, checkpoint_gib):
    """As vLLM's log prints it (issue 40802), and 865 GB (recipes pull request 779); the headers of 70,000 tensors are
    the rest."""
    weights = bundled_model(name).weights
    assert (weights.total_bytes + weights.mtp_bytes) / 2**30 == pytest.approx(checkpoint_gib, rel=5e-4)


def test_what_deepseek_v4_flash_holds_on_every_rank():
    """In fp8 projections to the queries' rank and to rows, and those of indices; in bfloat16 compressors, weights of
    the index and routers; in float32 what mixes four streams, twice a layer."""
    fp8 = 43 * 4096 * (1024 + 512) + 21 * 1024 * 64 * 128
    bfloat16 = 4096 * (21 * (2048 + 512 + 64) + 20 * 1024) + 43 * 256 * 4096
    streams = 43 * 2 * 24 * 4 * 4096
    assert bundled_model("deepseek-v4-flash").weights.replicated_bytes == fp8 + 2 * bfloat16 + 4 * streams


def test_the_reference_drafter():
    drafter = bundled_drafter("z-lab/Kimi-K2.6-DFlash")
    assert drafter is not None
    assert (drafter.kind, drafter.block_size, drafter.num_taps, drafter.shape.num_layers) == ("dflash", 8, 6, 6)
    assert kv_bytes_per_token(drafter.shape.families, KvFormat.of(BFLOAT16), tp_size=8) == 3_072
    # Its parameters are those of its layers and of the projection of its taps: no embedding, no head.
    layer = 7168 * 128 * (64 + 8 + 8 + 64) + 3 * 7168 * 18432
    assert drafter.weights.total_bytes == pytest.approx(2 * (6 * layer + 6 * 7168 * 7168), rel=0.001)
