import pytest
from trace_builder import repeats, steady

from deepdraft.guards import point_evidence
from deepdraft.guards.prompt_len import prompt_len
from deepdraft.metrics import points_of


def verdict(*counts):
    run = repeats(*[steady(8, prompt=count) for count in counts])
    (point,) = points_of(run)
    return prompt_len(point_evidence(run, point))


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ((1000, 1002, 998), "verified"),
        ((1000, 1003), "violated"),
        ((997,), "violated"),
        ((1000, None), "not_verifiable"),
    ],
)
def test_two_tokens_either_way_are_allowed(counts, state):
    assert verdict(*counts).state == state


def test_the_evidence_gives_both_numbers():
    report = verdict(1211, 1212)
    assert report.evidence == "the server counts 1,211 to 1,212 prompt tokens, asked 1,000"
    assert report.doubts == ("context_len",)
    assert verdict(None).evidence == "the server counts no prompt tokens in 1 of 1 answers"
