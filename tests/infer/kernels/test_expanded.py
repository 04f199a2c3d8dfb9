import pytest

from deepdraft.infer.kernels.expanded import EXPANSION_PRICE, fewest_expanded_queries


@pytest.mark.parametrize(
    ("latent_dim", "plain_dim", "value_dim", "low", "high"),
    [(64, 32, 32, 100, 200), (512, 128, 128, 200, 350)],
)
def test_the_break_even_lies_where_it_was_measured(latent_dim, plain_dim, value_dim, low, high):
    found = fewest_expanded_queries(latent_dim=latent_dim, plain_dim=plain_dim, value_dim=value_dim)
    assert found is not None
    assert low <= found <= high


def test_at_the_break_even_both_forms_cost_the_same():
    latent_dim, plain_dim, value_dim = 512, 128, 128
    num_queries = fewest_expanded_queries(latent_dim=latent_dim, plain_dim=plain_dim, value_dim=value_dim)
    assert num_queries is not None
    absorbed = num_queries * 2 * (latent_dim + 64)
    expanded = num_queries * 2 * (plain_dim + 64) + EXPANSION_PRICE * latent_dim * (plain_dim + value_dim)
    assert absorbed == pytest.approx(expanded, rel=0.01)


def test_heads_as_wide_as_the_latent_are_never_expanded():
    assert fewest_expanded_queries(latent_dim=32, plain_dim=32, value_dim=32) is None
