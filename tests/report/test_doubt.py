from trace_builder import accepted, repeats, steady

from deepdraft.metrics import points_of
from deepdraft.report.doubt import point_doubts


def doubts(*traces, **fields):
    run = repeats(*traces, **fields)
    (point,) = points_of(run)
    return point_doubts(run, point)


def test_a_violated_guard_outweighs_one_that_can_not_tell():
    one = doubts(steady(20, cached=None, finish="stop"))
    assert one.mark("ttft_s") == "?"
    assert one.mark("tpot_s") == "!"
    assert one.mark("e2el_s") == "!"  # in doubt by early_stop, unverified by cold_prefix
    assert one.violated["e2el_s"] == ("early_stop",)
    assert one.unverified["e2el_s"] == ("cold_prefix",)
    assert one.mark("context_len") == ""


def test_unnatural_text_marks_what_a_drafter_gives():
    one = doubts(steady(64), speculation="yes", prompt={"is_repetitive": True})
    assert one.violated["acceptance_len"] == ("text_label",)
    assert one.mark("tpot_s") == "!"
    assert doubts(steady(64), speculation="no", prompt={"is_repetitive": True}).mark("tpot_s") == ""


def test_a_lifetime_average_is_marked_and_explained():  # C52
    gauge = accepted(stated_acceptance_len=2.5, is_lifetime_average=True)
    run = repeats(*[steady(64)] * 3, acceptance=gauge, speculation="yes")
    (point,) = points_of(run)
    assert point_doubts(run, point).mark("acceptance_len") == "?"
    own = repeats(*[steady(64)] * 3, acceptance=accepted(num_steps=10, num_accepted_tokens=5), speculation="yes")
    (point,) = points_of(own)
    assert point_doubts(own, point).mark("acceptance_len") == ""
