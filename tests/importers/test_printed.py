"""Printed numbers: value, unit and rounding."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import ResultsError
from deepdraft.importers.printed import printed, printed_len


@pytest.mark.parametrize(
    ("text", "name", "value", "half_width"),
    [
        ("118.6", "decode_tok_s", 118.6, 0.05),
        ("0.7", "decode_tok_s", 0.7, 0.05),
        ("3104", "prefill_tok_s", 3104, 0.5),
        ("0.46 s", "ttft_s", 0.46, 0.005),
        ("51 s", "ttft_s", 51, 0.5),
        ("3.1 min", "ttft_s", 186, 3),
        ("8.4 ms", "step_s", 0.0084, 0.00005),
        ("1430 ± 5 ms", "step_s", 1.43, 0.005),
        ("1430 +/- 5 ms", "step_s", 1.43, 0.005),
        ("5,604 tok/s", "prefill_tok_s", 5604, 0.5),
        ("~144 ms", "step_s", 0.144, None),
        ("about 71", "decode_tok_s", 71, None),
        ("~70 ± 5", "decode_tok_s", 70, 5),
    ],
)
def test_value_and_rounding(text: str, name: str, value: float, half_width: float | None) -> None:
    found = printed(text, name)
    assert found.value == pytest.approx(value)
    assert found.half_width == (None if half_width is None else pytest.approx(half_width))


@pytest.mark.parametrize(
    ("text", "name"),
    [("0.46", "ttft_s"), ("3 ms", "decode_tok_s"), ("fast", "ttft_s"), ("1-2 s", "ttft_s"), ("", "ttft_s")],
)
def test_what_is_no_number_or_has_the_wrong_unit_is_refused(text: str, name: str) -> None:
    with pytest.raises(ResultsError, match=name):
        printed(text, name)


@given(st.integers(1, 10**7), st.integers(0, 3))
def test_the_true_value_lies_within_the_rounding(thousandths: int, num_digits: int) -> None:
    truth = thousandths / 1000
    found = printed(f"{truth:.{num_digits}f}", "decode_tok_s")
    assert found.half_width is not None
    assert abs(found.value - truth) <= found.half_width * (1 + 1e-9)


def test_lengths() -> None:
    assert [printed_len(text, "context_len") for text in (1400, "1.4k", "82,845", "32Ki")] == [
        1400,
        1400,
        82845,
        32768,
    ]
    for wrong in ("1.4 s", "0.5", "many", -3, True, 1.5):
        with pytest.raises(ResultsError, match="context_len"):
            printed_len(wrong, "context_len")  # type: ignore[arg-type]
