import json

from sweeps import Sweep, alternating, apart, drafted, plain, reported_run, run_of

from deepdraft.compare.comparison import compare_runs
from deepdraft.compare.gate import gate_limits, gate_results
from deepdraft.compare.json_object import comparison_object
from deepdraft.compare.table import best_table, comparison_table, gate_table

LABELS = ("plain.jsonl", "drafter.jsonl")


def test_the_table_fits_80_columns_and_says_what_counts() -> None:
    comparison = compare_runs(*alternating(Sweep(), Sweep(tpot=drafted)))
    text = comparison_table(comparison, LABELS)
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "better" in words and "worse" in words
    assert "crossover of ms/token: 7" in words or "crossover of ms/token: 6" in words
    assert "A and B alternated" in words
    assert "A: plain.jsonl" in words


def test_the_widest_cells_still_fit() -> None:
    slow = Sweep(tpot=lambda n: 2.5, ttft=lambda n: 4_000.0, lengths=(128_000,), noise_frac=0.3, num_repeats=2)
    for runs in (apart(slow, Sweep(lengths=(128_000,), num_repeats=2)), alternating(slow, slow)):
        assert max(map(len, comparison_table(compare_runs(*runs), LABELS).splitlines())) <= 80


def test_single_values_and_what_is_not_compared_are_said() -> None:
    before, after = reported_run({1_000: (70.9,), 2_000: (60.0,)}), reported_run({1_000: (70.7,)})
    words = " ".join(comparison_table(compare_runs(before, after), LABELS).split())
    assert "cannot tell ms/token at 1.0k: single values" in words
    assert "not compared: 2.0k: only in A" in words
    assert "did not alternate" in words


def test_nothing_compared_is_said() -> None:
    text = comparison_table(compare_runs(*apart(Sweep(lengths=(1_000,)), Sweep(lengths=(2_000,)))), LABELS)
    assert "nothing could be compared" in text


def test_three_configurations() -> None:
    runs = [
        run_of(Sweep()),
        run_of(Sweep(tpot=drafted), run_id="s"),
        run_of(Sweep(tpot=lambda n: 3 * plain(n)), run_id="t"),
    ]
    text = best_table(runs, ("a", "b", "c"))
    assert max(map(len, text.splitlines())) <= 80
    assert "C: c" in text
    assert "frontier" in text


def test_the_gate_says_what_failed() -> None:
    comparison = compare_runs(*alternating(Sweep(), Sweep(tpot=lambda n: 1.3 * plain(n))))
    text = gate_table(gate_results(comparison.points, gate_limits("tpot=5%,ttft=10%")))
    assert text.startswith("gate: FAIL (5 failed, 5 passed, 0 can't be told)")
    assert "fail: 8.0k ms/token, limit 5 %: worse by" in text
    assert gate_table(gate_results(comparison.points, gate_limits("ttft=10%"))).startswith("gate: pass (0 failed, 5")
    assert gate_table(()).startswith("gate: no regression shown")


def test_json_is_plain_and_complete() -> None:
    comparison = compare_runs(*alternating(Sweep(noise_frac=0.003), Sweep(noise_frac=0.003, tpot=drafted)))
    found = json.loads(json.dumps(comparison_object([comparison], LABELS, None)))
    assert [point["context_len"] for point in found["points"]] == [8_000, 16_000, 32_000, 64_000, 128_000]
    verdict = found["points"][0]["figures"]["tpot_s"]
    assert verdict["verdict"] == "better"
    assert verdict["interval"]["low"] < verdict["ratio"] < verdict["interval"]["high"]
    crossover_len = found["crossover_len"]
    assert crossover_len["interval"]["low"] < 70_000 < crossover_len["interval"]["high"]
    assert found["crossover"]["state"] == "located"
    assert found["gate"] is None


def test_json_without_a_crossover_says_why() -> None:
    equal = compare_runs(*alternating(Sweep(), Sweep(tpot=lambda n: 0.5 * plain(n))))
    found = comparison_object([equal], LABELS, ())
    assert found["crossover_len"] is None
    assert found["crossover"]["state"] == "none"
    assert found["gate"] == []
    unknown = comparison_object([compare_runs(reported_run({1: (1.0,)}), reported_run({1: (1.0,)}))], LABELS, None)
    assert unknown["crossover"]["state"] == "cannot tell"
    assert unknown["crossover"]["would_tell"]


def test_json_of_three_has_each_and_the_best() -> None:
    runs = [run_of(Sweep(seed=seed), run_id=f"r{seed}") for seed in range(3)]
    comparisons = [compare_runs(runs[0], other) for other in runs[1:]]
    found = json.loads(json.dumps(comparison_object(comparisons, ("a", "b", "c"), None)))
    assert len(found["comparisons"]) == 2
    assert len(found["runs"]) == 3
    assert found["best"] and found["frontier"]
