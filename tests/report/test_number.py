import pytest

from deepdraft.report.number import ms_text, percent_text, rate_text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        (3104.2, "3104"),
        (999.96, "1000"),
        (118.64, "118.6"),
        (9.996, "10.0"),
        (6.294, "6.29"),
        (0.99951, "1.00"),
        (0.7, "0.7"),
        (0.0004, "4.0e-04"),
        (0.0, "0"),
    ],
)
def test_rates_have_three_digits_or_more(value, text):
    assert rate_text(value) == text


def test_seconds_are_printed_as_milliseconds():
    assert ms_text(0.0503) == "50.3"
    assert ms_text(None) == "-"


def test_shares():
    assert [percent_text(part) for part in (None, 0.0, 0.004, 0.0995, 0.32)] == ["-", "0 %", "0.4 %", "10 %", "32 %"]
