import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.diagnosis.number import bytes_s, flops, gib, ms, percent, plain, times


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [
        (0.0, 2, "0"),
        (0.0087, 2, "0.0087"),
        (1.249, 3, "1.25"),
        (14_000.0, 2, "14000"),
        (123_456.0, 2, "120000"),
        (99.95, 3, "100"),
        (-64.2, 2, "-64"),
        (5.0, 3, "5"),
    ],
)
def test_plain(value, digits, text):
    assert plain(value, digits) == text


@given(st.floats(min_value=1e-6, max_value=1e12), st.integers(min_value=2, max_value=4))
def test_plain_keeps_the_value_to_its_digits(value, digits):
    assert float(plain(value, digits)) == pytest.approx(value, rel=10 ** (1 - digits), abs=1e-10)
    assert "e" not in plain(value, digits)


def test_units():
    assert ms(0.00843) == "8.43 ms" and ms(1.43) == "1430 ms"
    assert times(129.6) == "130x" and times(1.03) == "1x"
    assert bytes_s(13.6e9) == "14 GB/s" and bytes_s(1.792e12) == "1.8 TB/s"
    assert flops(58e12) == "58 TFLOP/s"
    assert percent(0.316, 3) == "31.6 %" and percent(0.0078) == "0.78 %"
    assert gib(896 * 2**20) == "0.88 GiB"
