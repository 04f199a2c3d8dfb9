from sweeps import Sweep, drafted, plain, prefill, reported_run, run_of

from deepdraft.compare.best import best_of, frontier_of


def test_the_best_per_context_length() -> None:
    runs = [
        run_of(Sweep(noise_frac=0.003)),
        run_of(Sweep(noise_frac=0.003, tpot=drafted), run_id="s"),
        run_of(Sweep(noise_frac=0.003, tpot=lambda n: 2 * plain(n)), run_id="t"),
    ]
    found = {best.context_len: best for best in best_of(runs) if best.figure == "tpot_s"}
    assert found[8_000].run_index == 1
    assert found[128_000].run_index == 0
    assert found[8_000].tied == found[128_000].tied == ()


def test_what_cannot_be_told_apart_shares_the_first_place() -> None:
    runs = [run_of(Sweep(seed=seed, noise_frac=0.02), run_id=f"r{seed}") for seed in range(3)]
    num_tied = [len(best.tied) for best in best_of(runs) if best.figure == "tpot_s"]
    assert len(num_tied) == 5
    assert num_tied.count(2) >= 3  # the smallest of three is chosen, so chance favours it


def test_the_frontier_leaves_out_what_loses_in_both() -> None:
    runs = [
        run_of(Sweep(noise_frac=0)),
        run_of(Sweep(noise_frac=0, tpot=lambda n: 0.5 * plain(n), ttft=lambda n: 2 * prefill(n)), run_id="s"),
        run_of(Sweep(noise_frac=0, tpot=lambda n: 2 * plain(n), ttft=lambda n: 2 * prefill(n)), run_id="t"),
    ]
    assert {frontier.run_indexes for frontier in frontier_of(runs)} == {(0, 1)}


def test_points_that_only_one_run_has_are_no_contest() -> None:
    assert best_of([reported_run({1_000: (5.0,)}), reported_run({2_000: (5.0,)})]) == ()
