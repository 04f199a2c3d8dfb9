import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.stats import spearman


def test_a_rising_figure_has_rho_one_whatever_its_shape():
    assert spearman([1.0, 10.0, 100.0, 1000.0], range(4)) == pytest.approx(1.0)
    assert spearman([9.0, 3.0, 2.0], range(3)) == pytest.approx(-1.0)


def test_ties_share_their_rank():
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: the textbook value.
    assert spearman([1.0, 2.0, 2.0, 3.0], range(4)) == pytest.approx(4.5 / (4.5 * 5.0) ** 0.5)


def test_what_can_not_be_told_is_none():
    assert spearman([1.0, 2.0], range(2)) is None
    assert spearman([5.0, 5.0, 5.0], range(3)) is None
    with pytest.raises(ValueError, match="paired"):
        spearman([1.0], [1.0, 2.0])


@given(st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=12))
def test_rho_is_symmetric_and_within_its_range(samples):
    rho = spearman(samples, range(len(samples)))
    if rho is not None:
        assert -1 <= rho <= 1
        assert spearman(range(len(samples)), samples) == pytest.approx(rho)
        assert spearman([-sample for sample in samples], range(len(samples))) == pytest.approx(-rho)
