import pytest
from trace_builder import repeats, steady

from deepdraft.guards import guards_of, point_evidence
from deepdraft.guards.truncation import truncation
from deepdraft.metrics import points_of


def verdict(*counts, sent=8192):
    run = repeats(*[steady(8, prompt=count) for count in counts], context_len=8192, prompt={"expected_len": sent})
    (point,) = points_of(run)
    return truncation(point_evidence(run, point))


def test_half_a_prompt_is_cut():  # C34
    report = verdict(4096, 4096)
    assert report.state == "violated"
    assert report.evidence == "the server cut the prompt: 4,096 of 8,192 tokens (2 of 2 requests)"
    assert report.doubts == ("context_len",)


def test_a_cut_prompt_is_never_a_point_at_the_asked_length():  # C34
    run = repeats(steady(8, prompt=4096), context_len=8192, prompt={"expected_len": 8192})
    (point,) = points_of(run)
    assert (point.context_len, point.asked_context_len) == (4096, 8192)
    states = {guard.name: guard.state for guard in guards_of(run, point)}
    assert states["truncation"] == states["prompt_len"] == "violated"


@pytest.mark.parametrize(
    ("count", "state"),
    [(8192, "verified"), (8200, "verified"), (8111, "verified"), (8110, "violated"), (None, "not_verifiable")],
)
def test_one_per_cent_may_be_another_tokenizer(count, state):
    assert verdict(count).state == state


def test_without_our_own_count_the_asked_length_was_sent():
    assert verdict(4096, sent=None).state == "violated"


def test_a_prompt_that_could_not_be_made_long_enough_is_not_whole():
    report = verdict(64, sent=64)
    assert report.state == "not_verifiable"
    assert "never counted more than 64 tokens when a prompt of 8,192 was made" in report.evidence
    assert report.doubts == ("context_len",)
