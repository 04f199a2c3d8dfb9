import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import accepted, repeats, steady

from deepdraft.metrics import STEP_PARTS, points_of, step_parts_s
from deepdraft.records import StepParts

PARTS = StepParts(draft_s=0.01, build_s=0.002, verify_s=0.1, compact_s=0.0, other_s=0.008)


def test_seconds_are_divided_by_all_decode_steps():
    """21 tokens: the prefill's, 8 accepted, so 12 steps; 3 of them had no draft."""
    told = accepted(num_steps=9, num_accepted_tokens=8, parts=PARTS)
    assert step_parts_s(told, 21) == pytest.approx(
        {"draft": 0.01 / 12, "build": 0.002 / 12, "verify": 0.1 / 12, "compact": 0.0, "other": 0.008 / 12}
    )


def test_what_is_not_told_is_left_out():
    told = accepted(num_steps=9, num_accepted_tokens=8, parts=StepParts(verify_s=0.1))
    assert list(step_parts_s(told, 21)) == ["verify"]
    assert step_parts_s(accepted(num_steps=9, num_accepted_tokens=8), 21) == {}


@pytest.mark.parametrize("num_output_tokens", [0, 1])
def test_an_answer_without_a_step_has_no_parts(num_output_tokens):
    assert step_parts_s(accepted(num_steps=0, num_accepted_tokens=0, parts=PARTS), num_output_tokens) == {}


@given(st.integers(1, 50), st.integers(0, 100), st.integers(0, 20))
def test_parts_times_steps_are_what_was_told(num_rounds, num_accepted, num_plain):
    told = accepted(num_steps=num_rounds, num_accepted_tokens=num_accepted, parts=PARTS)
    found = step_parts_s(told, 1 + num_rounds + num_accepted + num_plain)
    num_steps = num_rounds + num_plain
    assert {name: seconds * num_steps for name, seconds in found.items()} == pytest.approx(
        {name: getattr(PARTS, f"{name}_s") for name in STEP_PARTS}
    )


def test_they_are_figures_of_the_point():
    told = accepted(num_steps=3, num_accepted_tokens=4, parts=PARTS)
    (point,) = points_of(repeats(steady(8), steady(8), acceptance=told, speculation="yes"))
    assert point.figures["step_verify_s"].summary.median == pytest.approx(0.1 / 3)
    assert point.figures["step_verify_s"].sources == (told.source,)
