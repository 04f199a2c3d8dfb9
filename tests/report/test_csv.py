import csv
import io

from trace_builder import header, repeats, request, steady, trace, trial

from deepdraft.records import Run
from deepdraft.report import results_csv


def rows(run):
    return list(csv.DictReader(io.StringIO(results_csv(run))))


def test_one_row_a_point():
    (row,) = rows(repeats(*[steady(64, ttft_s=ttft) for ttft in (0.50, 0.51, 0.505)], speculation="no"))
    assert (row["context_len"], row["concurrency"], row["engine"]) == ("1000", "1", "llamacpp")
    assert (row["ttft_s_median"], row["ttft_s_low"], row["ttft_s_high"]) == ("0.505", "0.5", "0.51")
    assert row["ttft_s_num_samples"] == "3"
    assert row["acceptance_len_median"] == ""  # not known is empty, not 0
    assert row["guard_cold_prefix"] == "verified"
    assert row["num_ok"] == "3"


def test_doubts_are_in_the_row():
    (row,) = rows(repeats(steady(20, cached=None, finish="stop")))
    assert "tpot_s" in row["in_doubt"].split()
    assert "ttft_s" in row["unverified"].split()


def test_a_failed_point_has_its_row_and_commas_are_quoted():
    run = Run(
        header=header(model='tiny, "quoted"'),
        measurements=(request(trace([]), failed="stalled"),),
        trials=(trial(),),
    )
    (row,) = rows(run)
    assert row["model"] == 'tiny, "quoted"'
    assert (row["num_failed"], row["ttft_s_median"]) == ("1", "")


def test_no_points_leave_the_head():
    text = results_csv(Run(header=header()))
    assert text.startswith("run_id,url,engine,") and text.count("\n") == 1
