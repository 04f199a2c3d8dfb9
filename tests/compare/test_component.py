"""Two runs of a component: faster and slower need both the seconds and the yardstick; the rest is not told."""

from __future__ import annotations

import json

import pytest
from component_cases import case, run
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.compare.component import ComparedCase, compare_components
from deepdraft.compare.component_table import component_comparison_object, component_comparison_table
from deepdraft.errors import UsageError
from deepdraft.records.component import ComponentCase

STEADY = (1.0, 1.01, 0.99, 1.0)


def compared(before: ComponentCase, after: ComponentCase) -> ComparedCase:
    (only,) = compare_components(run(before), run(after)).cases
    return only


def scaled(factor: float) -> tuple[float, ...]:
    return tuple(factor * each for each in STEADY)


@pytest.mark.parametrize(
    ("factor", "answer"),
    [(0.5, "faster"), (2.0, "slower"), (1.0, "no difference shown"), (1.001, "no difference shown")],
)
def test_what_changed_by_itself_is_told(factor: float, answer: str) -> None:
    found = compared(case(STEADY), case(scaled(factor)))
    assert found.answer == answer
    assert found.ratio.value == pytest.approx(factor)
    assert found.yardstick == "ceiling"


def test_a_machine_that_became_slower_is_no_slower_component() -> None:
    slow_machine = case(scaled(2.0), rates={"copy": 4.0, "matmul": 1.0})
    found = compared(case(STEADY), slow_machine)
    assert found.in_yardsticks is not None
    assert found.in_yardsticks.value == pytest.approx(1.0)
    assert (found.answer, found.reason) == (
        "cannot tell",
        "seconds and yardsticks disagree: the machine may have changed",
    )


def test_a_faster_component_on_a_slower_machine_is_not_told_from_seconds_alone() -> None:
    found = compared(case(STEADY), case(STEADY, rates={"copy": 4.0, "matmul": 1.0}))
    assert found.answer == "cannot tell"


def test_without_a_ceiling_a_peer_is_the_yardstick() -> None:
    before, after = (
        case(scaled(factor), work={}, peer_factors={"plain": peer}) for factor, peer in ((1, 4), (0.5, 8))
    )
    found = compared(before, after)
    assert (found.yardstick, found.answer) == ("plain", "faster")
    first, second = found.peers["plain"]
    assert (first.value, second.value) == (pytest.approx(4), pytest.approx(8))


def test_with_neither_the_seconds_stand_alone() -> None:
    found = compared(case(STEADY, work={}), case(scaled(2.0), work={}))
    assert (found.yardstick, found.in_yardsticks, found.answer) == (None, None, "slower")


def test_one_repeat_in_each_tells_nothing() -> None:
    found = compared(case((1.0,)), case((3.0,)))
    assert found.answer == "cannot tell"
    assert found.reason is not None and "one repeat" in found.reason


def test_cases_that_are_not_the_same_task_are_not_compared() -> None:
    comparison = compare_components(
        run(case(name="same", facts={"num_threads": 1}), case(name="only A")),
        run(case(name="same", facts={"num_threads": 2}), case(name="only B")),
    )
    assert comparison.cases == ()
    assert set(comparison.not_compared) == {
        ("only A", "not in B"),
        ("only B", "not in A"),
        ("same", "they differ in num_threads"),
    }
    assert "nothing could be compared" in component_comparison_table(comparison, ("a", "b"))


def test_different_components_are_refused() -> None:
    with pytest.raises(UsageError, match="kernels and tree are different components"):
        compare_components(run(case()), run(case(), component="tree"))


def test_the_table_fits_80_columns_and_has_every_case() -> None:
    name = "512+64 128k, 16 rows, page 64, native"
    peers = {"torch": 4.0, "sdpa": 3.0, "one run": 1.0}
    before = run(case(STEADY, name=name, peer_factors=peers), case(STEADY, name="bare", work={}))
    after = run(case(scaled(0.5), name=name, peer_factors=peers), case(scaled(3.0), name="bare", work={}))
    comparison = compare_components(before, after)
    text = component_comparison_table(comparison, ("before.jsonl", "after.jsonl"))
    assert max(map(len, text.splitlines())) <= 80
    assert text.index(name) < text.index("faster") < text.index("bare") < text.index("slower")
    assert "torch: A 4.00 [4.00 - 4.00], B 4.00 [4.00 - 4.00]" in text


def test_json_survives_encoding() -> None:
    comparison = compare_components(run(case(STEADY)), run(case(scaled(2.0))))
    found = json.loads(json.dumps(component_comparison_object([comparison], ("a", "b"))))
    (only,) = found["comparisons"][0]["cases"]
    assert (only["answer"], found["component"], found["files"]) == ("slower", "kernels", ["a", "b"])
    assert only["ratio"]["value"] == pytest.approx(2.0)


@given(st.lists(st.floats(0.5, 2.0), min_size=2, max_size=5), st.lists(st.floats(0.5, 2.0), min_size=2, max_size=5))
def test_turning_the_comparison_round_turns_the_answer_round(before: list[float], after: list[float]) -> None:
    opposite = {"faster": "slower", "slower": "faster"}
    there, back = compared(case(before), case(after)), compared(case(after), case(before))
    assert back.ratio.value == pytest.approx(1 / there.ratio.value)
    if {there.answer, back.answer} & set(opposite) and "no difference shown" not in (there.answer, back.answer):
        assert back.answer == opposite[there.answer]
