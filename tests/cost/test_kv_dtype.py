import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost.kv_dtype import BFLOAT16, FLOAT32, FP8, kv_dtype
from deepdraft.errors import UsageError


@pytest.mark.parametrize(
    ("name", "bytes_of_576"),
    [
        ("bf16", 1152), ("torch.bfloat16", 1152), ("fp16", 1152), ("f32", 2304), ("fp8_e4m3", 576), ("fp8_e5m2", 576),
        ("q8_0", 18 * 34), ("q4_0", 18 * 18), ("q5_1", 18 * 24), ("fp4_e2m1", 288 + 36), ("mxfp8", 576 + 18),
    ],
)  # fmt: skip
def test_a_row_of_a_latent(name, bytes_of_576):
    assert kv_dtype(name).row_bytes(576) == bytes_of_576


def test_part_of_a_block_takes_a_whole_one():
    assert kv_dtype("q8_0").row_bytes(1) == kv_dtype("q8_0").row_bytes(32) == 34
    assert kv_dtype("q8_0").row_bytes(33) == 68
    assert kv_dtype("q8_0").row_bytes(0) == 0


def test_an_unknown_type_is_refused_with_those_that_are_known():
    with pytest.raises(UsageError, match="turbo3") as refused:
        kv_dtype("turbo3")
    assert "q8_0" in (refused.value.hint or "")


@given(st.integers(0, 100_000))
def test_wider_types_never_cost_less(num_elements):
    sizes = [kv_dtype(name).row_bytes(num_elements) for name in ("q4_0", "q5_0", "q8_0", "bf16", "f32")]
    assert sizes == sorted(sizes)
    assert FP8.row_bytes(num_elements) * 4 == BFLOAT16.row_bytes(num_elements) * 2 == FLOAT32.row_bytes(num_elements)
