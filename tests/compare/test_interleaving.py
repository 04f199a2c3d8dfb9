import pytest
from sweeps import Sweep, alternating, apart, run_of

from deepdraft.compare.interleaving import is_interleaved, paired_values
from deepdraft.compare.pairing import pairing


def test_trials_that_alternate_are_interleaved() -> None:
    before, after = alternating(Sweep(), Sweep())
    assert all(is_interleaved(pair, before, after) for pair in pairing(before, after).pairs)


def test_trials_one_after_the_other_are_not() -> None:
    before, after = apart(Sweep(), Sweep())
    pairs = pairing(before, after).pairs
    assert pairs
    assert not any(is_interleaved(pair, before, after) for pair in pairs)


def test_trials_at_the_same_time_are_not() -> None:
    before, after = run_of(Sweep(), turn=0), run_of(Sweep(), turn=0, run_id="s")
    assert not any(is_interleaved(pair, before, after) for pair in pairing(before, after).pairs)


def test_a_repeat_without_counterpart_breaks_the_turns() -> None:
    before, after = alternating(Sweep(num_repeats=4), Sweep(num_repeats=3))
    assert not any(is_interleaved(pair, before, after) for pair in pairing(before, after).pairs)


def test_values_are_paired_by_repeat() -> None:
    before, after = alternating(Sweep(noise_frac=0), Sweep(noise_frac=0, tpot=lambda n: 0.1))
    first, second = paired_values(pairing(before, after).pairs[0], "tpot_s")
    assert len(first) == 4
    assert first == pytest.approx([0.0208] * 4)
    assert second == pytest.approx([0.1] * 4)
