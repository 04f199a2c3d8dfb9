"""Numbers as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.units import seconds_text, token_count, token_counts, tokens_text


@pytest.mark.parametrize(
    ("text", "value"),
    [("1400", 1400), ("1.4k", 1400), ("128k", 128_000), ("32Ki", 32_768), ("1M", 1_000_000), ("60_010", 60_010)],
)
def test_token_count_reads_what_people_write(text: str, value: int) -> None:
    assert token_count(text) == value


@pytest.mark.parametrize("text", ["", "k", "-5", "0", "1.5", "1.0001k", "12kb", "nan", "1e3", "١٢x"])
def test_token_count_refuses_the_rest(text: str) -> None:
    with pytest.raises(UsageError):
        token_count(text)


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1k,11k,32k", (1_000, 11_000, 32_000)),
        ("1k-8k*2", (1_000, 2_000, 4_000, 8_000)),
        ("8k-32k+8k", (8_000, 16_000, 24_000, 32_000)),
        ("1k, 1000 ,2k", (1_000, 2_000)),
        ("1k-10k*3,185k", (1_000, 3_000, 9_000, 185_000)),
        ("32k,1k", (32_000, 1_000)),
    ],
)
def test_token_counts_reads_lists_and_ranges(text: str, values: tuple[int, ...]) -> None:
    assert token_counts(text) == values


@pytest.mark.parametrize("text", ["", ",", "1k-8k", "8k-1k*2", "1k-8k*1", "1k-8k*x", "1k-8k+0"])
def test_token_counts_refuses_the_rest(text: str) -> None:
    with pytest.raises(UsageError):
        token_counts(text)


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_durations_print_three_digits_and_a_unit(seconds: float) -> None:
    number, unit = seconds_text(seconds).split(" ")
    scale = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}[unit]
    assert float(number) * scale == pytest.approx(seconds, rel=0.006)
    assert len(number) <= 9


@given(st.integers(min_value=1, max_value=10_000_000))
def test_token_texts_are_short_and_close(num_tokens: int) -> None:
    text = tokens_text(num_tokens)
    assert len(text) <= 5
    assert token_count(text) == pytest.approx(num_tokens, rel=0.06)


@pytest.mark.parametrize(("text", "num_tokens"), [("4.1M", 4_100_000), ("1.1k", 1_100), ("0.29M", 290_000)])
def test_decimal_fractions_that_binary_cannot_hold_are_whole_tokens(text: str, num_tokens: int) -> None:
    assert token_count(text) == num_tokens
