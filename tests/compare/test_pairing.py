from dataclasses import replace
from typing import Any

import pytest
from sweeps import Sweep, apart, reported_run, run_of

from deepdraft.compare.pairing import pairing
from deepdraft.records import Run


def reasons(before: Run, after: Run) -> set[str]:
    found = pairing(before, after)
    assert not found.pairs
    return {one.reason for one in found.unpaired}


def test_what_asked_the_same_is_paired() -> None:
    found = pairing(*apart(Sweep(), Sweep()))
    assert [pair.context_len for pair in found.pairs] == [8_000, 16_000, 32_000, 64_000, 128_000]
    assert found.unpaired == ()


@pytest.mark.parametrize(
    ("spec", "word"),
    [({"text": "repeat"}, "text"), ({"keep_cache": True}, "keep_cache"), ({"temperature": 1.0}, "temperature")],
)
def test_what_was_asked_otherwise_is_refused_with_the_reason(spec: dict[str, Any], word: str) -> None:
    (reason,) = reasons(*apart(Sweep(), Sweep(spec=spec)))
    assert reason.startswith(f"A and B differ in {word}")


def test_answers_of_other_lengths_are_refused() -> None:
    (reason,) = reasons(*apart(Sweep(), Sweep(decode_len=32)))
    assert "16 and 32 tokens" in reason


def test_a_point_in_one_run_only_is_named() -> None:
    found = pairing(*apart(Sweep(lengths=(8_000, 16_000)), Sweep(lengths=(16_000, 32_000))))
    assert [pair.context_len for pair in found.pairs] == [16_000]
    assert {(one.context_len, one.reason) for one in found.unpaired} == {(8_000, "only in A"), (32_000, "only in B")}


def test_a_label_is_no_length() -> None:
    before = reported_run({128_000: (46.0,)})
    point = replace(before.reported[0], asked_context_len=128_000, context_len=82_845)
    (reason,) = reasons(before, replace(before, reported=(point,)))
    assert "82,845" in reason


def test_cold_and_cached_are_not_mixed() -> None:
    (reason,) = reasons(
        reported_run({172_000: (5.5,)}, is_cold=True), reported_run({172_000: (12.6,)}, is_cold=False)
    )
    assert "prefix cache" in reason


def test_other_workloads_are_not_mixed() -> None:
    (reason,) = reasons(
        reported_run({1_000: (5.0,)}, workload="code"), reported_run({1_000: (6.0,)}, workload="chat")
    )
    assert "chat" in reason and "code" in reason


def test_two_points_of_one_length_are_not_guessed_between() -> None:
    before = reported_run({1_000: (5.0,)})
    (reason,) = reasons(before, replace(before, reported=before.reported * 2))
    assert reason.startswith("2 points of that length in B")


def test_differences_that_may_explain_are_remarked() -> None:
    before, after = apart(Sweep(), Sweep(capabilities={"model": "other"}, spec={"seed": 3}))
    remarks = " ".join(pairing(before, after).remarks)
    assert "other" in remarks and "seeds" in remarks
    assert "same run" in " ".join(pairing(run_of(Sweep()), run_of(Sweep())).remarks)
