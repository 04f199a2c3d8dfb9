import pytest
from trace_builder import repeats, steady

from deepdraft.guards import point_evidence
from deepdraft.guards.early_stop import early_stop
from deepdraft.metrics import points_of


def verdict(*traces, **fields):
    run = repeats(*traces, **({"max_tokens": 128} | fields))
    (point,) = points_of(run)
    return early_stop(point_evidence(run, point))


def test_a_short_answer_is_named_with_what_the_figures_rest_on():  # C33
    report = verdict(steady(128), steady(20, finish="stop"))
    assert report.state == "violated"
    assert report.evidence == (
        "1 of 2 ended early, the shortest at 20 of 128 (finish: stop); "
        "decode figures rest on 19 to 127 tokens a request"
    )
    assert "tpot_s" in report.doubts and "ttft_s" not in report.doubts


def test_a_server_limit_below_ours_is_an_early_stop_too():
    assert verdict(steady(100, finish="length")).state == "violated"


def test_full_answers_are_verified():
    report = verdict(steady(128), steady(128))
    assert (report.state, report.evidence) == ("verified", "all 2 answers have the 128 tokens asked")


@pytest.mark.parametrize(
    ("finish", "state"), [("length", "verified"), ("stop", "not_verifiable"), (None, "not_verifiable")]
)
def test_uncounted_answers_are_known_by_their_finish_alone(finish, state):
    assert verdict(steady(100, usage=None, finish=finish)).state == state


def test_one_token_gives_no_decode_figures():
    assert verdict(steady(1, finish="stop")).evidence.endswith("; no decode figures")
