import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.infer.kernels.triton.tile import MAX_SHARED_BYTES, Splitting, max_shared_bytes, tile

ARCHS = (*MAX_SHARED_BYTES, "sm_87", "gfx1201")


@given(
    st.integers(1, 200_000), st.integers(1, 5000), st.sampled_from((16, 84, 108, 132, 188, 304)), st.integers(1, 4)
)
def test_programs_cover_the_device_wherever_the_context_is_long_enough(kv_len, num_programs, num_sms, per_sm):
    splitting = Splitting(programs_per_sm=per_sm)
    num_splits = splitting.num_splits(max_kv_len=kv_len, num_programs=num_programs, num_sms=num_sms)
    assert num_splits >= 1
    assert num_splits == 1 or num_splits * num_programs <= per_sm * num_sms
    is_long_enough = kv_len >= splitting.min_split_len * per_sm * num_sms
    if is_long_enough and num_programs <= num_sms:
        assert num_splits * num_programs > per_sm * num_sms / 2


def test_a_single_request_of_a_long_context_uses_every_multiprocessor():
    assert Splitting().num_splits(max_kv_len=128_000, num_programs=1, num_sms=188) == 376


def test_a_short_context_is_not_cut_into_crumbs():
    assert Splitting().num_splits(max_kv_len=300, num_programs=1, num_sms=188) == 3


def test_splitting_can_be_bounded():
    assert Splitting(max_splits=1).num_splits(max_kv_len=128_000, num_programs=1, num_sms=188) == 1


@pytest.mark.parametrize("arch", ARCHS)
@given(
    num_rows=st.integers(1, 4096),
    widest_dim=st.sampled_from((16, 64, 128, 192, 512)),
    dot_bytes=st.sampled_from((2, 4)),
)
def test_tiles_are_what_the_kernel_can_take(arch, num_rows, widest_dim, dot_bytes):
    chosen = tile(arch, num_rows=num_rows, widest_dim=widest_dim, dot_bytes=dot_bytes)
    assert chosen.block_m >= 16, "matrix products want 16 rows"
    assert 64 % chosen.block_n == 0, "a block's columns of the tail mask lie in one word"
    assert chosen.num_warps in (4, 8)
    held_bytes = chosen.num_stages * chosen.block_n * widest_dim * dot_bytes
    assert held_bytes <= max_shared_bytes(arch)
