"""Several requests at once: exactly as many in flight as asked, or exactly when the schedule says."""

from __future__ import annotations

from itertools import count, pairwise
from math import inf
from statistics import median

import pytest

FLAGS = ("--context-len", "200", "--decode-len", "8", "--warmups", "0", "--repeats", "1", "--out", "out.jsonl")


def measured_truths(server):
    """What the server saw of the measured requests; what calibrates them is another length."""
    return sorted((truth for truth in server.truths() if truth.prompt_len == 200), key=lambda truth: truth.received_s)


def in_flight(truths) -> int:
    """The most requests that the server held at one moment."""
    return most_at_once([(truth.received_s, truth.end_s) for truth in truths])


def most_at_once(spans) -> int:
    changes = sorted(change for start, end in spans for change in ((start, 1), (end, -1)))
    most = now = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


def test_closed_loop_keeps_exactly_c_in_flight(called, simulated, physics, measured, tmp_path) -> None:
    server = simulated(physics=physics(prefill_b_s=1e-3))
    ran = called("sweep", server.url, *FLAGS, "--concurrency", "3", "--requests", "12")
    assert ran.code == 0, ran.err
    point = measured(tmp_path / "out.jsonl")[200, 3]
    assert (point.num_ok, point.peak_concurrency) == (12, 3)
    truths = measured_truths(server)
    assert len(truths) == 12
    assert in_flight(truths) == 3
    # The first three come together; after that each follows the end of another, without waiting for a batch.
    assert truths[2].received_s < min(truth.end_s for truth in truths)
    ends = sorted(truth.end_s for truth in truths)
    for position, truth in enumerate(truths[3:]):
        assert truth.received_s >= ends[position]
    assert median(truth.received_s - ends[position] for position, truth in enumerate(truths[3:])) < 0.1
    assert "in flight: 3 at the peak" in ran.out


def test_concurrency_is_a_dimension_of_the_table(called, simulated, physics, least_disturbed) -> None:
    server = simulated(physics=physics(prefill_a_s=0.3, interference=0.5, step_d_s=0.004))
    # A step takes d (1 + 0.5 (r - 1)) when r requests run.
    expected_s = {1: 0.004, 2: 0.006, 4: 0.010}
    files = (f"{number}.jsonl" for number in count())

    def measure():
        file = next(files)
        flags = (*FLAGS[:-1], file, "--decode-len", "24", "--concurrency", "1,2,4", "--json")
        ran = called("sweep", server.url, *flags)
        assert ran.code == 0, ran.err
        points = {point["concurrency"]: point for point in ran.json["points"]}
        assert set(points) == {1, 2, 4}
        assert [points[c]["peak_concurrency"] for c in (1, 2, 4)] == [1, 2, 4]
        # Without a time a token where the machine held the client up until all of an answer was there.
        tokens_s = {c: point["tpot_s"]["median"] if point["tpot_s"] else inf for c, point in points.items()}
        return file, {c: tokens_s[c] / expected_s[c] for c in points}

    def error(seen) -> float:
        return max(abs(frac - 1) for frac in seen[1].values())

    file, fracs = least_disturbed(measure, error, enough=0.15)
    assert fracs == pytest.approx({1: 1, 2: 1, 4: 1}, rel=0.15)
    table = called("show", file).out
    assert [line.split()[:2] for line in table.splitlines() if line.startswith("  200 ")] == [
        ["200", "1"],
        ["200", "2"],
        ["200", "4"],
    ]


def test_open_loop_at_a_constant_rate(called, simulated, physics, measured, recorded, tmp_path) -> None:
    # One request at a time takes 50 ms and one comes every 25 ms: each waits longer than the one before.
    server = simulated(physics=physics(prefill_b_s=2e-4, max_running=1))
    ran = called("sweep", server.url, *FLAGS, "--arrival", "constant:40", "--requests", "20", "--json")
    assert ran.code == 0, ran.err
    results = sorted(recorded(tmp_path / "out.jsonl").measurements, key=lambda result: result.request_index)
    due_s = [result.scheduled_at_s for result in results]
    assert [later - earlier for earlier, later in pairwise(due_s)] == pytest.approx([0.025] * 19)
    late_s = [result.started_at_s - result.scheduled_at_s for result in results]
    assert min(late_s) >= 0
    assert median(late_s) < 0.1  # sent when due: 250 ms if each waited for the one before it
    (point,) = ran.json["points"]
    spans = [(result.started_at_s, result.started_at_s + result.trace.end_s) for result in results]
    assert point["peak_concurrency"] == most_at_once(spans) > 5
    # What the server holds of them is one less or more, and up to four where the machine held one of the two up.
    assert point["peak_concurrency"] == pytest.approx(in_flight(measured_truths(server)), abs=4)
    scheduled = point["ttft_from_scheduled_s"]
    assert scheduled["high"] > 0.4  # 20 x 50 ms of work in 500 ms
    assert scheduled["median"] >= point["ttft_s"]["median"]
    # Twenty samples carry a median, and no 99th percentile.
    percentiles = point["percentiles"]["ttft_from_scheduled_s"]
    assert scheduled["low"] < percentiles["p50"]["value"] < scheduled["high"]
    assert percentiles["p99"]["value"] is None
    assert percentiles["p99"]["bound"]


def test_open_loop_counts_from_the_schedule_when_the_client_is_late(measured, called, simulated, recorded, tmp_path):
    server = simulated()
    ran = called("sweep", server.url, *FLAGS, "--arrival", "poisson:200", "--requests", "60", "--json")
    assert ran.code == 0, ran.err
    (point,) = ran.json["points"]
    assert point["num_ok"] == 60
    results = recorded(tmp_path / "out.jsonl").measurements
    gaps = sorted(result.scheduled_at_s for result in results)
    mean_gap_s = (gaps[-1] - gaps[0]) / 59
    assert 0.0025 < mean_gap_s < 0.01
    by_index = {result.request_index: result for result in results}
    for sample in measured(tmp_path / "out.jsonl")[200, 1].samples:
        result = by_index[sample.request.request_index]
        late_s = result.started_at_s - result.scheduled_at_s
        assert sample.figures["ttft_from_scheduled_s"] == pytest.approx(sample.figures["ttft_s"] + late_s, abs=1e-6)


def test_the_same_seed_gives_the_same_schedule(called, plain, recorded, tmp_path) -> None:
    schedules = []
    for name in ("a.jsonl", "b.jsonl"):
        flags = (*FLAGS[:-1], name)
        assert called("sweep", plain.url, *flags, "--arrival", "poisson:300", "--requests", "10").code == 0
        results = sorted(recorded(tmp_path / name).measurements, key=lambda result: result.request_index)
        schedules.append([result.scheduled_at_s - results[0].scheduled_at_s for result in results])
    assert schedules[0] == pytest.approx(schedules[1])
