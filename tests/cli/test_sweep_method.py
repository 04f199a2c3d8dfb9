"""The two-point method and the capability check, end to end."""

from __future__ import annotations

from itertools import count

import pytest

from deepdraft.simulate.spec import Confounds

LONG = 700


def two_point(called, server, *flags, file="out.jsonl"):
    words = f"--method two-point --context-len 800 --warmups 0 --repeats 2 --out {file}"
    return called("sweep", server.url, *words.split(), *flags)


def sent(server, length=800):
    return [truth for truth in server.truths() if truth.prompt_len == length]


def test_a_good_pair(called, simulated, physics, measured, tmp_path, least_disturbed) -> None:
    server = simulated(dialect="sglang", physics=physics(prefill_a_s=0.05, step_d_s=0.01))
    files = (f"{number}.jsonl" for number in count())

    def measure() -> tuple[float, float]:
        file = next(files)
        ran = two_point(called, server, file=file)
        assert ran.code == 0, ran.err
        truths = [truth for truth in server.truths(reset=True) if truth.prompt_len == 800]
        assert [truth.max_tokens for truth in truths] == [1, 17, 1, 17]
        assert {truth.cached_len for truth in truths} == {0}
        point = measured(tmp_path / file)[800, 1]
        assert len(point.samples) + len(point.refused_pairs) == 2
        if point.refused_pairs:  # the machine held the first of the two up for longer than 16 tokens take
            return 0.0, 0.0
        return point.figures["ttft_s"].summary.median, point.figures["tpot_s"].summary.median

    def error(found: tuple[float, float]) -> float:
        return max(abs(found[0] / 0.05 - 1), abs(found[1] / 0.01 - 1))

    ttft_s, tpot_s = least_disturbed(measure, error, enough=0.15)
    assert ttft_s == pytest.approx(0.05, rel=0.2)
    assert tpot_s == pytest.approx(0.01, rel=0.15)


@pytest.mark.parametrize("flush", ["works", "ignored"])
def test_unique_heads_keep_the_second_cold_even_when_a_flush_lies(called, simulated, measured, tmp_path, flush):
    server = simulated(dialect="sglang", confounds=Confounds(prefix_cache=True, flush=flush))
    ran = two_point(called, server)
    assert ran.code == 0, ran.err
    point = measured(tmp_path / "out.jsonl")[800, 1]
    # On a busy machine the first of a pair may take longer than the second; no pair is refused for what was cached.
    assert all("was not longer than the first" in pair.reason for pair in point.refused_pairs)
    assert len(point.samples) + len(point.refused_pairs) == 2
    assert max(truth.cached_len for truth in sent(server)) == 0


def test_a_pair_whose_second_request_hit_the_cache_is_refused(called, simulated, measured, tmp_path) -> None:
    server = simulated(dialect="sglang", confounds=Confounds(prefix_cache=True, cached_tokens_report="usage"))
    ran = two_point(called, server, "--keep-cache", "--json")
    (point,) = ran.json["points"]
    assert point["ttft_s"] is None
    assert point["tpot_s"] is None
    reasons = [pair["reason"] for pair in point["refused_pairs"]]
    assert len(reasons) == 2
    assert reasons[0] == "the second request was served from a cache: 799 of 800 prompt tokens"
    assert "Pairs refused (800): 2: the second request was served from a cache" in " ".join(
        called("show", "out.jsonl").out.split()
    )
    # The same prompt, both times and in both repeats: that is what keeping the cache means.
    assert [truth.cached_len for truth in sent(server)] == [0, 799, 799, 799]


def test_a_pair_that_ended_early_is_refused(called, simulated) -> None:
    server = simulated(confounds=Confounds(eos_at=5, eos_beats_ignore_eos=True))
    ran = two_point(called, server, "--json")
    (point,) = ran.json["points"]
    assert point["tpot_s"] is None
    assert {pair["reason"] for pair in point["refused_pairs"]} == {"the second request ended early: 5 of 17 tokens"}


def test_a_pair_whose_second_is_quicker_is_refused(called, simulated, physics, least_disturbed) -> None:
    # The first measured request is slow for another reason than its length.
    slow = {"physics": physics(prefill_a_s=0.3), "confounds": Confounds(drift_frac=-0.05)}
    files = (f"{number}.jsonl" for number in count())

    def reasons() -> list[str]:
        flags = ("--decode-len", "2", "--repeats", "1", "--json")
        ran = two_point(called, simulated(**slow), *flags, file=next(files))
        return [pair["reason"].split(" (")[0] for pair in ran.json["points"][0]["refused_pairs"]]

    # The machine may hold the second up by more than the 15 ms that it is quicker.
    found = least_disturbed(reasons, lambda seen: 1 - len(seen), enough=0)
    assert found == ["the second request was not longer than the first"]


def test_fewer_tokens_where_each_costs_most(called, simulated) -> None:
    server = simulated()
    ran = two_point(called, server, "--context-len", "1k,100k", "--repeats", "1")
    assert ran.code == 0, ran.err
    assert [truth.max_tokens for truth in sent(server, 1_000)] == [1, 17]
    assert [truth.max_tokens for truth in sent(server, 100_000)] == [1, 9]


def needle(called, server, *flags):
    words = "--needle --repeats 1 --warmups 0 --out out.jsonl"
    return called("sweep", server.url, *words.split(), *flags)


def test_a_needle_at_60_010_tokens(called, simulated, measured, tmp_path) -> None:
    server = simulated()
    ran = needle(called, server, "--context-len", "60010")
    assert ran.code == 0, ran.err
    assert "needle found" in ran.err
    assert "Needle found: 1 of 1 at 60k" in ran.out
    assert measured(tmp_path / "out.jsonl")[60010, 1].context_len == 60010
    assert [truth.prompt_len for truth in server.truths()].count(60010) == 1


@pytest.mark.parametrize("depth", ["0", "0.9"])
def test_a_needle_near_either_end(called, plain, depth) -> None:
    ran = needle(called, plain, "--needle", depth, "--context-len", "900", "--repeats", "2", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["points"][0]["needle"] == {"num_found": 2, "num_asked": 2}


def test_a_needle_that_is_not_found(called, simulated, recorded, tmp_path) -> None:
    server = simulated(confounds=Confounds(needle_wrong=True))
    ran = needle(called, server, "--context-len", "400")
    assert ran.code == 0, ran.err
    assert "needle found in 0 of 1" in ran.err
    assert "Needle found: 0 of 1 at 400" in ran.out
    (result,) = recorded(tmp_path / "out.jsonl").measurements
    assert result.needle_found is False
    assert result.prompt.needle
    assert result.trace.output_text
