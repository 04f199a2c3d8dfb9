import pytest

from deepdraft.infer.kernels.expanded import EXPANSION_PRICES, NATIVE_PRICE, TORCH_PRICE, fewest_expanded_queries
from deepdraft.infer.kernels.select import BACKENDS

EMBEDDED = {"latent_dim": 64, "plain_dim": 32, "value_dim": 32}
KIMI = {"latent_dim": 512, "plain_dim": 128, "value_dim": 128}


@pytest.mark.parametrize(
    ("dims", "price", "measured"),
    [
        (EMBEDDED, TORCH_PRICE, 150),
        (EMBEDDED, NATIVE_PRICE, 300),
        (KIMI, TORCH_PRICE, 230),
        (KIMI, NATIVE_PRICE, 235),
    ],
)
def test_the_break_even_lies_where_it_was_measured(dims, price, measured):
    found = fewest_expanded_queries(**dims, price=price)
    assert found is not None
    assert found == pytest.approx(measured, rel=0.03)


@pytest.mark.parametrize("price", [TORCH_PRICE, NATIVE_PRICE])
@pytest.mark.parametrize("dims", [EMBEDDED, KIMI, {"latent_dim": 512, "plain_dim": 192, "value_dim": 64}])
def test_at_the_break_even_both_forms_cost_the_same(dims, price):
    latent_dim, plain_dim, value_dim = dims.values()
    num_queries = fewest_expanded_queries(**dims, price=price)
    assert num_queries is not None
    absorbed = num_queries * (latent_dim + 64 + latent_dim)
    expanding = (plain_dim + value_dim) * (latent_dim * price.per_multiplication + price.per_number)
    assert absorbed == pytest.approx(num_queries * (plain_dim + 64 + value_dim) + expanding, rel=0.01)


def test_heads_as_wide_as_the_latent_are_never_expanded():
    assert fewest_expanded_queries(latent_dim=32, plain_dim=32, value_dim=32) is None


def test_every_back_end_has_a_price():
    assert EXPANSION_PRICES.keys() == BACKENDS.keys()
