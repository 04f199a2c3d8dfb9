from collections import Counter
from dataclasses import replace

import pytest
from sweeps import Sweep, alternating, apart, plain, reported_run

from deepdraft.compare.comparison import compare_runs
from deepdraft.compare.verdict import Verdict
from deepdraft.records import Run
from findings_cases import f06


def verdict_of(before: Run, after: Run, figure: str = "tpot_s", place: int = 0) -> Verdict:
    found = compare_runs(before, after).points[place].verdict(figure)
    assert found is not None
    return found


@pytest.mark.parametrize(("factor", "answer"), [(0.9, "better"), (1.1, "worse")])
def test_a_clear_difference(factor: float, answer: str) -> None:
    found = verdict_of(*alternating(Sweep(), Sweep(tpot=lambda n: factor * plain(n))))
    assert found.answer == answer
    assert found.is_interleaved
    assert found.ratio.value == pytest.approx(factor, rel=0.03)
    assert found.ratio.num_pairs == 4


def test_no_difference_says_how_large_one_may_be() -> None:
    found = verdict_of(*alternating(Sweep(noise_frac=0.005), Sweep(noise_frac=0.005)))
    assert found.answer == "no difference"
    assert found.text.startswith("no difference larger than ")
    assert found.ratio.minimum_detectable_frac is not None


def test_noise_that_hides_a_difference_cannot_tell_and_says_what_would() -> None:
    found = verdict_of(*apart(Sweep(noise_frac=0.2, num_repeats=3), Sweep(noise_frac=0.2, num_repeats=3)))
    assert found.answer == "cannot tell"
    assert found.reason is not None and "more would tell" in found.reason


def test_drift_cancels_where_trials_alternate_and_only_there() -> None:
    steady, slowing = (
        Sweep(drift_frac=0.05, noise_frac=0.002),
        Sweep(drift_frac=0.05, noise_frac=0.002, tpot=lambda n: 1.06 * plain(n)),
    )
    assert verdict_of(*alternating(steady, slowing)).answer == "worse"
    assert verdict_of(*apart(steady, slowing)).answer == "cannot tell"


def test_verdicts_are_right_as_often_as_they_say() -> None:
    answers = Counter(
        verdict_of(*alternating(Sweep(seed=seed, lengths=(8_000,)), Sweep(seed=seed + 500, lengths=(8_000,)))).answer
        for seed in range(100)
    )
    assert answers["better"] + answers["worse"] <= 10  # 5 expected: there is no difference


def test_more_tokens_a_second_is_better_though_the_ratio_is_of_times() -> None:
    found = verdict_of(
        reported_run({1_000: (71.0,)}, half_width=0.5), reported_run({1_000: (218.0,)}, half_width=0.5)
    )
    assert found.answer == "better"
    assert found.ratio.value == pytest.approx(71 / 218)


def test_single_values_that_are_close_cannot_tell() -> None:
    found = verdict_of(reported_run({1_000: (70.9,)}), reported_run({1_000: (70.7,)}))
    assert found.answer == "cannot tell"
    assert found.reason is not None and "single values" in found.reason


def test_a_tree_that_loses_with_graphs_and_cannot_be_told_when_eager() -> None:
    runs = f06()
    eager = verdict_of(runs["eager_chain"], runs["eager_tree"])
    graphs = verdict_of(runs["graph_chain"], runs["graph_tree"])
    assert eager.answer == "cannot tell"
    assert graphs.answer == "worse"
    assert 1 / graphs.ratio.value == pytest.approx(1 - 0.316, abs=0.001)


def test_a_figure_in_doubt_gets_no_verdict() -> None:
    before, after = reported_run({64_000: (10.0,)}), reported_run({64_000: (10.0,)})
    measured, cached = apart(Sweep(), Sweep(ttft=lambda n: 0.01))
    found = compare_runs(measured, cached).points[0]
    assert found.verdict("ttft_s") is not None
    assert verdict_of(before, after).answer == "cannot tell"


def test_a_hit_in_the_prefix_cache_takes_the_verdict_on_ttft_away() -> None:
    before, after = apart(Sweep(), Sweep(ttft=lambda n: 0.001))
    hits = tuple(
        replace(one, trace=replace(one.trace, usage=replace(one.trace.usage, cached_tokens=one.prompt.asked_len - 1)))
        for one in after.measurements
        if one.trace.usage is not None
    )
    found = verdict_of(before, replace(after, measurements=hits), "ttft_s")
    assert found.answer == "cannot tell"
    assert found.reason is not None and "cold_prefix in B" in found.reason
    assert found.is_in_doubt
