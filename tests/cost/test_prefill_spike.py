from deepdraft.cost.prefill_spike import expert_buffer_bytes, tapped_states_bytes

MIB = 2**20


def test_the_experts_buffer_of_kimi_k2():
    """8 of 384 experts a token, hidden 7,168: in proportion to the chunk."""
    for chunk, mib in ((8192, 896), (4096, 448), (2048, 224)):
        assert expert_buffer_bytes(chunk, num_experts_per_token=8, width=7168) == mib * MIB


def test_six_taps_of_7168():
    assert tapped_states_bytes(8192, num_taps=6, hidden=7168) == 672 * MIB
    assert tapped_states_bytes(8192, num_taps=0, hidden=7168) == 0
