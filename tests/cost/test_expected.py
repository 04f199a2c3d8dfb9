"""Expected times; where the optional package is installed against what was read from it once (version 0.12.0)."""

import importlib.util

import pytest

from deepdraft.cost.device import device
from deepdraft.cost.expected import PACKAGE, expected_times
from deepdraft.errors import UsageError

CARD = device("RTX PRO 6000")
HAS_PACKAGE = importlib.util.find_spec(PACKAGE) is not None


def times(**fields):
    asked = {"model": "Kimi K2.6", "device": CARD, "engine": "sglang", "tp_size": 8, "context_lens": (1_400, 32_000)}
    return expected_times(**(asked | fields))


@pytest.mark.skipif(HAS_PACKAGE, reason=f"{PACKAGE} is installed")
def test_without_the_package_it_says_how_to_get_it():
    with pytest.raises(UsageError, match="not installed") as refused:
        times()
    assert "deepdraft[expected]" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("fields", "named"),
    [({"device": device("bandwidth=1TB/s")}, "the device given"), ({"engine": "llamacpp"}, "llamacpp")],
)
def test_what_it_has_no_tables_for_is_refused(fields, named):
    with pytest.raises(UsageError, match=named):
        times(**fields)


@pytest.mark.skipif(not HAS_PACKAGE, reason=f"{PACKAGE} is not installed")
def test_the_times_it_gave_once():
    short, long = times()
    assert (short.context_len, long.context_len) == (1_400, 32_000)
    assert (short.ttft_s, short.tpot_s) == pytest.approx((0.326, 0.00994), rel=0.01)
    assert (long.ttft_s, long.tpot_s) == pytest.approx((16.31, 0.01376), rel=0.01)
    assert "Kimi-K2.5" in short.source and "TP 8" in short.source


@pytest.mark.skipif(not HAS_PACKAGE, reason=f"{PACKAGE} is not installed")
def test_a_model_it_does_not_ship_is_refused_and_not_downloaded():
    with pytest.raises(UsageError, match="no expected times for the model"):
        times(model="someone/some-model")
