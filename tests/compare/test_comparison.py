from dataclasses import replace

import pytest
from sweeps import LENGTHS, Sweep, alternating, apart, drafted, plain, reported_run

from deepdraft.compare.comparison import compare_runs
from deepdraft.compare.words import crossover_text
from deepdraft.stats.crossover import Crossover, NoCrossover
from deepdraft.stats.interval import CannotTell
from findings_cases import f02


@pytest.mark.parametrize("noise_frac", [0.003, 0.02])
def test_the_crossovers_interval_covers_the_truth(noise_frac: float) -> None:
    num_covered = 0
    for seed in range(25):
        before, after = alternating(
            Sweep(seed=seed, noise_frac=noise_frac), Sweep(seed=seed + 900, noise_frac=noise_frac, tpot=drafted)
        )
        found = compare_runs(before, after).crossover
        if isinstance(found, Crossover) and found.len.interval is not None:
            num_covered += found.len.interval.has(70_000)
    assert num_covered >= 22


def test_a_crossover_reads_well() -> None:
    found = compare_runs(*apart(Sweep(noise_frac=0.003), Sweep(noise_frac=0.003, tpot=drafted)))
    text = crossover_text(found)
    assert text.startswith(("69k", "70k", "71k"))
    assert "a token of B is faster below it and slower beyond" in text


def test_none_up_to_the_longest() -> None:
    found = compare_runs(*alternating(Sweep(), Sweep(tpot=lambda n: 0.5 * plain(n))))
    assert isinstance(found.crossover, NoCrossover)
    assert found.crossover.up_to == LENGTHS[-1]
    assert crossover_text(found).startswith("none up to 128k")


def test_a_drafter_that_loses_at_185k_without_points_between() -> None:
    runs = f02()
    for name in ("drafts_2", "drafts_4"):
        found = compare_runs(runs["off"], runs[name])
        verdict = found.points[0].verdict("tpot_s")
        assert verdict is not None and verdict.answer == "worse"
        assert isinstance(found.crossover, CannotTell)
        assert found.crossover.propose


def test_a_gain_at_short_and_a_loss_at_185k_bracket_a_crossover_that_is_not_located() -> None:
    found = compare_runs(
        reported_run({1_000: (71.0,), 185_000: (71.0,)}), reported_run({1_000: (218.0,), 185_000: (16.0,)})
    )
    assert isinstance(found.crossover, CannotTell)
    assert found.crossover.between == (1_000, 185_000)
    assert len(found.crossover.propose) >= 2
    assert "What would tell: points at" in crossover_text(found)


def test_nothing_in_common_is_said() -> None:
    found = compare_runs(*apart(Sweep(lengths=(1_000,)), Sweep(lengths=(2_000,))))
    assert found.points == ()
    assert isinstance(found.crossover, CannotTell)
    assert found.crossover_concurrency is None


def test_points_in_doubt_are_left_out_of_the_crossover_and_named() -> None:
    before, after = alternating(Sweep(noise_frac=0.003), Sweep(noise_frac=0.003, tpot=drafted))
    lagging = tuple(replace(one, loop_lag_max_s=0.5 if one.context_len == 8_000 else 0.0) for one in after.trials)
    found = compare_runs(before, replace(after, trials=lagging))
    assert found.left_out == (8_000,)
    assert isinstance(found.crossover, Crossover)
    assert crossover_text(found).endswith("(left out, since in doubt: 8.0k)")
