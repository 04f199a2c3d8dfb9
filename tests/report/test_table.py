import dataclasses

import pytest
from trace_builder import accepted, header, recorded, repeats, request, steady, trace, trial

from deepdraft.metrics import points_of
from deepdraft.records import End, Refusal, Reported, ReportedFigure, Run, Source
from deepdraft.report import point_line, results_table


def row(table, name):
    return next(line for line in table.splitlines() if line.strip().startswith(f"{name} "))


def joined(table):
    """The table's text without its line breaks, for sentences that are wrapped."""
    return " ".join(table.split())


def test_a_clean_run_looks_like_this():
    run = repeats(*[steady(64, ttft_s=ttft, gap_s=0.05) for ttft in (0.50, 0.51, 0.505)], speculation="no")
    run = dataclasses.replace(run, ends=(End(at_s=40.0, outcome="complete"),))
    lines = results_table(run).splitlines()
    assert lines[:7] == [
        "llamacpp b1, model m, http://127.0.0.1:8080",
        "streaming method, 3 repeats, text: prose, no drafter",
        "",
        "                prefill  decode    ms/   tok/     ms/",
        "  ctx     TTFT   tok/s   tok/s   token   step    step  accept spread   n",
        " 1.0k   505 ms    1980    20.0    50.0   1.00    50.0      -   2.0 %   3",
        "",
    ]
    assert lines[7].startswith("Not verifiable: background_load: ")
    assert not any(mark in row(results_table(run), "1.0k") for mark in "!?")


def test_the_reference_deployments_rows_print_as_reported():
    """118.6 tok/s at 1.4k, 0.7 at 185k: what was called ms/step there is ms/token here, and ms/step is unknown."""
    requests = [
        request(
            steady(4, ttft_s=ttft_s, gap_s=1 / tok_s, prompt=length),
            f"len{length}-c1-r0",
            asked=length,
            started_at_s=at_s,
            max_tokens=4,
        )
        for length, ttft_s, tok_s, at_s in ((1400, 0.451, 118.6, 0.0), (185_000, 386.2, 0.7, 100.0))
    ]
    table = results_table(Run(header=header(speculation="yes"), measurements=tuple(requests)))
    assert row(table, "1.4k").split() == ["1.4k", "451", "ms", "3104", "118.6", "8.43", "-", "-", "-", "-", "1"]
    assert row(table, "185k").split() == ["185k", "6.44", "min", "479.0", "0.7", "1429", "-", "-", "-", "-", "1"]


def test_figures_in_doubt_carry_a_mark_and_a_footnote():
    run = repeats(steady(20, cached=None, finish="stop"), steady(20, cached=None, finish="stop"))
    table = results_table(run)
    cells = row(table, "1.0k")
    assert "500 ms?" in cells and "20.0!" in cells
    assert "! early_stop: 2 of 2 ended early, the shortest at 20 of 64" in joined(table)
    assert "? cold_prefix: the server tells no cached tokens" in joined(table)
    assert "Verified at every point: prompt_len" in joined(table)


def test_marks_never_shift_the_columns():
    clean = results_table(repeats(*[steady(64)] * 3)).splitlines()
    doubted = results_table(repeats(*[steady(64, cached=None)] * 3)).splitlines()
    (first,) = [line for line in clean if line.startswith(" 1.0k")]
    (second,) = [line for line in doubted if line.startswith(" 1.0k")]
    assert second.replace("?", " ") == first


def test_speculation_side_by_side_with_its_sources():  # C53
    one = recorded("llama.cpp-2026-10/spec_selfdraft.sse")
    counts = accepted(num_accepted_tokens=52)
    table = results_table(
        repeats(one, context_len=982, speculation="yes", speculation_method="draft-simple", acceptance=counts)
    )
    cells = row(table, "982").replace("!", "").replace("?", "").split()
    assert cells[4:9] == ["18.0", "55.4", "5.73", "317.4", "5.73"]
    assert "drafter: draft-simple" in table
    assert "timings.draft_n_accepted; steps = output tokens - 1 - accepted" in joined(table)


def test_definitions_are_printed():  # C24, C54
    text = joined(results_table(repeats(steady(64))))
    assert "ms/token: (last - first token arrival) / tokens after the first arrival" in text
    assert "ms/step: one decode or verify step, which is not ms/token" in text
    assert "median of n requests, one vote each" in text


def test_text_is_labelled():  # C55
    prompt = {"is_repetitive": True, "text_kind": "repeat"}
    plain = results_table(repeats(steady(64), speculation="no", prompt=prompt))
    assert "text: repeat (repetitive)" in plain
    assert "! text" not in plain
    assert "! text: repetitive text flatters a drafter" in results_table(
        repeats(steady(64), speculation="yes", prompt=prompt)
    )


def test_failed_and_refused_points_are_listed_with_reasons():
    run = Run(
        header=header(),
        measurements=(request(trace([]), asked=64_000, failed="nothing came for 400 s"),),
        trials=(trial(context_len=64_000),),
        refusals=(Refusal(context_len=200_000, concurrency=1, reason="exceeds the KV pool of 101,134 tokens"),),
        damage=("line 7 can't be read",),
    )
    table = results_table(run)
    assert "Failed (64k): 1 of 1 requests: Stalled: nothing came for 400 s" in table
    assert "Not sent (200k): exceeds the KV pool of 101,134 tokens" in table
    assert "Damaged file: line 7 can't be read" in table
    assert "No point gave figures." in table
    assert "Not complete: the file has no end line" in table


def test_refused_pairs_are_listed_with_reasons():
    first = request(steady(1, usage=1), role="first", max_tokens=1)
    second = request(steady(17, cached=990), role="second", max_tokens=17, started_at_s=2.0)
    table = results_table(
        Run(header=header(spec={"method": "two-point"}), measurements=(first, second), trials=(trial(),))
    )
    assert "Pairs refused (1.0k): 1: the second request was served from a cache: 990 of 1,000" in joined(table)
    assert "two-point method" in table


def loaded(num_requests, **spec):
    requests = [
        request(
            steady(64, ttft_s=0.5 + 0.001 * place),
            "len1000-c4-r0",
            request_index=place,
            started_at_s=0.01 * place,
            **({"scheduled_at_s": 0.0} if spec else {}),
        )
        for place in range(num_requests)
    ]
    return Run(
        header=header(spec=spec),
        measurements=tuple(requests),
        trials=(trial("len1000-c4-r0", concurrency=4, took_s=20.0),),
    )


def test_concurrency_has_its_column_and_its_throughput():
    table = results_table(loaded(4))
    assert row(table, "1.0k").split()[1] == "4"
    assert "in flight: 4 at the peak" in joined(table)
    assert "no higher percentile from 4 samples" in joined(table)  # C50
    assert max(map(len, table.splitlines())) <= 80


def test_percentiles_that_the_samples_carry():
    text = joined(results_table(loaded(64)))
    assert "TTFT: median 532 ms, p90 557 ms" in text
    assert "p95" not in text


def test_open_loop_percentiles_count_from_the_schedule():
    assert "TTFT from schedule: median" in joined(results_table(loaded(12, arrival="poisson:4")))


def test_needles_superseded_tries_and_interruption():
    run = repeats(steady(8), steady(8))
    measurements = tuple(
        dataclasses.replace(one, needle_found=place == 0) for place, one in enumerate(run.measurements)
    )
    old = request(steady(8), "len1000-c1-r1", started_at_s=5.0)
    run = dataclasses.replace(
        run, measurements=(*measurements, old), ends=(End(at_s=9.0, outcome="interrupted", message="Ctrl-C"),)
    )
    table = results_table(run)
    assert "Needle found: 1 of 2 at 1.0k" in table
    assert "Not complete (interrupted): Ctrl-C" in table
    assert "1 requests of cut-short trials were measured again and count only once" in table


@pytest.mark.parametrize("width", [60, 80, 120])
def test_prose_is_wrapped_at_the_width(width):
    run = repeats(steady(20, cached=None, finish="stop"), speculation="yes", prompt={"is_random": True})
    table = results_table(run, width)
    prose = [line for line in table.splitlines() if "ctx" not in line and "tok/s" not in line and "1.0k" not in line]
    assert max(map(len, prose)) <= width


def test_the_widest_cells_fit_80_columns():
    long = steady(64, ttft_s=5400.0, gap_s=1.43, prompt=1_200_000)
    requests = [
        request(long, f"len1200000-c64-r{place}", asked=1_200_000, started_at_s=1e4 * place) for place in range(3)
    ]
    trials = [
        trial(f"len1200000-c64-r{place}", context_len=1_200_000, concurrency=64, started_at_s=1e4 * place)
        for place in range(3)
    ]
    table = results_table(Run(header=header(), measurements=tuple(requests), trials=tuple(trials)))
    assert max(map(len, table.splitlines())) <= 80
    assert "1.5 h" in row(table, "1.2M")


def test_a_live_line():
    run = repeats(steady(64, gap_s=0.05), speculation="no")
    (point,) = points_of(run)
    assert point_line(run, point) == (
        "1.0k: TTFT 500 ms, prefill 2000 tok/s, decode 20.0 tok/s, 50.0 ms/token, 1.00 tok/step, 50.0 ms/step"
    )
    failed = Run(header=header(), measurements=(request(trace([]), failed="x"),), trials=(trial(),))
    assert point_line(failed, points_of(failed)[0]) == "1.0k: no figures (1 failed, 0 pairs refused)"
    assert point_line(loaded(4), points_of(loaded(4))[0]).startswith("1.0k x 4: TTFT ")
    doubted = repeats(steady(64, cached=None))
    assert "TTFT 500 ms?" in point_line(doubted, points_of(doubted)[0])


def test_reported_points_print_with_what_their_source_cannot_tell():
    reported = Reported(
        asked_context_len=128_000,
        context_len=82_845,
        figures={
            "decode_tok_s": ReportedFigure(values=(9.0,), doubt="wall-clock time with prefill in it"),
            "ttft_s": ReportedFigure(values=(20.0,)),
        },
    )
    source = Source(tool="a published table", unknowns=("how many repeats",), traps=("rows are labelled as asked",))
    run = Run(header=dataclasses.replace(header(), source=source), reported=(reported,))
    table = results_table(run)
    assert row(table, "83k").split() == ["83k", "20", "s?", "4142?", "9.00?", "111.1?", "-", "-", "-", "-", "1"]
    for sentence in (
        "reported by a published table",
        "? cold_prefix: the source does not tell whether its prompts were cold",
        "The source can't tell: how many repeats",
        "Mind: rows are labelled as asked",
        "In doubt (83k): wall-clock time with prefill in it",
        "the requests behind reported figures are not known",
    ):
        assert sentence in joined(table)
