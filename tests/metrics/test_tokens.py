from hypothesis import given
from hypothesis import strategies as st
from trace_builder import recorded, steady, trace

from deepdraft.metrics import event_tokens, output_tokens


def test_what_the_server_states_for_each_event_comes_first():
    one = trace([(0.1, "t"), (0.2, "t")], usage=20, stated=(16, 4), tokenizer=(3, 3))
    counted = event_tokens(one)
    assert (counted.counts, counted.source, counted.is_exact) == ((16, 4), "continuous usage", True)
    assert (counted.total, counted.total_source) == (20, "usage")


def test_as_many_tokens_as_events_is_one_each():
    counted = event_tokens(steady(32, tokenizer=(2,) * 32))
    assert counted.counts == (1,) * 32
    assert counted.is_exact


def test_the_end_token_has_no_event():
    counted = event_tokens(steady(20, usage=21, finish="stop"))
    assert counted.counts == (1,) * 20
    assert counted.is_exact
    assert counted.num_unplaced == 1
    assert event_tokens(steady(20, usage=21, finish="length")).is_exact is False


def test_a_finer_tokenizer_is_scaled_to_the_servers_total():  # C23
    one = trace([(0.1, "t"), (0.12, "t"), (0.14, "t"), (0.16, "t")], usage=28, tokenizer=(48, 12, 12, 12))
    counted = event_tokens(one)
    assert counted.counts == (16, 4, 4, 4)
    assert (counted.total, counted.total_source) == (28, "usage")
    assert not counted.is_exact
    assert counted.mismatch == "usage says 28 tokens, gpt2 counts 84; usage is used"


def test_a_tokenizer_within_two_per_cent_is_no_mismatch():
    one = trace([(0.1, "t"), (0.2, "t")], usage=100, tokenizer=(51, 51))
    assert event_tokens(one).mismatch is None
    assert event_tokens(trace([(0.1, "t"), (0.2, "t")], usage=100, tokenizer=(52, 51))).mismatch is not None


def test_characters_are_the_last_resort():
    counted = event_tokens(trace([(0.1, "t", 40), (0.2, "t", 10)], usage=10))
    assert counted.counts == (8, 2)
    assert counted.source == "characters, scaled to 10 tokens"
    assert not counted.is_exact


def test_without_usage_the_tokenizer_counts_and_is_named():
    counted = event_tokens(trace([(0.1, "t"), (0.2, "t")], tokenizer=(3, 5)))
    assert (counted.counts, counted.total) == ((3, 5), 8)
    assert counted.total_source == "tokenizer gpt2"
    assert not counted.is_total_by_server


def test_events_are_never_taken_for_tokens():
    counted = event_tokens(trace([(0.1, "t"), (0.2, "t"), (0.3, "t")]))
    assert counted.total is None
    assert counted.counts is None
    assert not counted.is_exact


def test_a_usage_of_zero_beside_text_is_not_counted():
    assert output_tokens(trace([(0.1, "t"), (0.2, "t")], usage=0)) is None
    assert output_tokens(trace([(0.1, "o"), (0.2, "d")], usage=0)) == 0


def test_fewer_tokens_than_events_leaves_some_events_empty():
    counted = event_tokens(trace([(0.1 * place, "t") for place in range(1, 7)], usage=4))
    assert counted.counts is not None
    assert sum(counted.counts) == 4
    assert set(counted.counts) <= {0, 1}
    assert not counted.is_exact


def test_reasoning_and_answer_count_once_together():  # C15
    one = trace([(0.1, "r"), (0.2, "r"), (0.3, "t"), (0.4, "c")], usage=12, stated=(3, 3, 3, 3))
    assert event_tokens(one).total == 12
    assert sum(event_tokens(one).counts) == 12


def test_two_statements_of_the_server_that_disagree_are_both_named():
    counted = event_tokens(trace([(0.1, "t"), (0.2, "t")], usage=100, stated=(10, 10)))
    assert not counted.is_exact
    assert counted.mismatch == "usage says 100 tokens, continuous usage 20"


def test_vllm_speculation_is_split_by_its_text():
    counted = event_tokens(recorded("vllm-0.32.0/completions_stream_specdecode_timed.sse"))
    assert counted.counts == (1, 1, 1, 2, 2, 4, 5, 5, 3)  # each token of this stream is the same word


WEIGHTS = st.lists(st.integers(0, 60), min_size=1, max_size=40).filter(any)


@given(WEIGHTS, st.integers(1, 400), st.booleans())
def test_the_events_tokens_sum_to_the_servers_total(weights, total, has_tokenizer):
    events = [(0.1 * place, "t", weight) for place, weight in enumerate(weights, start=1)]
    counted = event_tokens(trace(events, usage=total, tokenizer=weights if has_tokenizer else None))
    assert counted.counts is not None
    assert sum(counted.counts) + counted.num_unplaced == total
    assert min(counted.counts) >= 0
    if total >= len(weights) and counted.counts != tuple(weights):
        assert min(counted.counts) >= 1


@given(st.lists(st.integers(1, 16), min_size=1, max_size=30), st.integers(1, 5))
def test_a_tokenizer_finer_by_a_whole_factor_gives_the_true_split(sizes, factor):
    one = trace(
        [(0.1 * place, "t") for place in range(1, len(sizes) + 1)],
        usage=sum(sizes),
        tokenizer=[factor * size for size in sizes],
    )
    assert event_tokens(one).counts == tuple(sizes)
