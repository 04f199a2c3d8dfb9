from trace_builder import recorded, repeats, steady, trace

from deepdraft.guards import point_evidence
from deepdraft.guards.bundled_tokens import bundled_tokens
from deepdraft.metrics import points_of


def verdict(*traces, **fields):
    run = repeats(*traces, **fields)
    (point,) = points_of(run)
    return bundled_tokens(point_evidence(run, point))


def test_one_token_an_event_is_verified():
    report = verdict(steady(64), steady(64))
    assert (report.state, report.evidence) == ("verified", "1 token in each event (one token an event)")


def test_bundles_that_the_server_states_are_verified():
    report = verdict(steady(21, usage=96, stated=(16, *[4] * 20)))
    assert report.state == "verified"
    assert report.evidence == "4 to 16 tokens an event, the first 16 (continuous usage)"


def test_bundles_that_are_estimated_are_violated_with_the_range():
    report = verdict(recorded("vllm-0.32.0/completions_stream_specdecode_timed.sse"))
    assert report.state == "violated"
    assert report.evidence == (
        "24 tokens in 9 events, split by characters, scaled to 24 tokens: time a token lies between 8.33 and 24 ms"
    )
    assert "tpot_s" in report.doubts and "ttft_s" not in report.doubts


def test_a_mismatch_of_counts_is_said():  # C23
    report = verdict(steady(12, usage=48, tokenizer=(12,) * 12))
    assert report.state == "violated"
    assert "usage says 48 tokens, gpt2 counts 144; usage is used" in report.evidence
    agreed = verdict(steady(12, tokenizer=(3,) * 12))
    assert agreed.state == "verified"
    assert "usage says 12 tokens, gpt2 counts 36" in agreed.evidence


def test_a_range_below_one_per_cent_counts_as_known():
    """One event of 200 holds two tokens, as when half a character waits for its other half."""
    assert verdict(steady(200, usage=201)).state == "verified"
    assert verdict(steady(20, usage=21)).state == "violated"


def test_uncounted_tokens_are_not_verifiable():
    report = verdict(trace([(0.1, "t"), (0.2, "t")]))
    assert (report.state, report.evidence) == (
        "not_verifiable",
        "the server counts no output tokens; nobody counts them",
    )
    named = verdict(steady(8, usage=None, tokenizer=(1,) * 8))
    assert named.state == "not_verifiable"
    assert named.evidence == "the server counts no output tokens; counted with tokenizer gpt2"
