import pytest
from trace_builder import accepted, request, steady

from deepdraft.metrics import Pair
from deepdraft.metrics.figure import FIGURE_NAMES
from deepdraft.metrics.sample import actual_prompt_len, pair_sample, prefill_len, request_sample


def sample(one, **fields):
    return request_sample(one, **({"acceptance": None, "speculation": "unknown", "repeat_index": 0} | fields))


def test_figures_have_the_names_of_the_catalogue():
    one = sample(request(steady(64, ttft_s=0.5, gap_s=0.02), scheduled_at_s=0.0), acceptance=accepted(num_steps=63))
    assert set(one.figures) <= set(FIGURE_NAMES)
    assert one.figures["ttft_s"] == pytest.approx(0.5)
    assert one.figures["prefill_tok_s"] == pytest.approx(2000)
    assert one.figures["decode_tok_s"] == pytest.approx(50)
    assert one.figures["acceptance_len"] == pytest.approx(1.0)
    assert one.figures["ttft_from_scheduled_s"] == pytest.approx(0.5)


def test_what_is_unknown_is_absent():
    figures = sample(request(steady(3, usage=None, cached=None, prompt=None), prompt={"expected_len": None})).figures
    assert {"tpot_s", "prefill_tok_s", "acceptance_len", "step_s", "server_prefill_s"}.isdisjoint(figures)


def test_cached_tokens_are_taken_off_the_prefill():
    assert sample(request(steady(8, ttft_s=0.5, prompt=1000, cached=600))).figures["prefill_tok_s"] == pytest.approx(
        800
    )


def test_prefill_says_how_its_tokens_were_counted():
    assert prefill_len(request(steady(8)))[1] == "uncached prompt tokens by the server / TTFT"
    untold = prefill_len(request(steady(8, cached=None)))
    assert untold[0] == 1000 and "not told" in untold[1]
    ours = prefill_len(request(steady(8, cached=None, prompt=None)))
    assert ours[0] == 1000 and "counted by token ids" in ours[1]


def test_the_length_of_a_prompt_comes_from_the_best_that_counted_it():
    assert actual_prompt_len(request(steady(8, prompt=1003))) == (1003, "the server")
    assert actual_prompt_len(request(steady(8, prompt=None, cached=None))) == (1000, "token ids")
    nobody = request(steady(8, prompt=None, cached=None), prompt={"expected_len": None})
    assert actual_prompt_len(nobody) == (1000, "as asked, nobody counted")


def test_a_pair_gives_the_two_point_figures():
    pair = Pair(
        first=request(steady(1, ttft_s=1.0, usage=1), role="first", max_tokens=1),
        second=request(steady(17, ttft_s=1.0, gap_s=0.05), role="second", max_tokens=17),
    )
    one = pair_sample(pair, acceptance=None, speculation="no", repeat_index=0)
    assert one.figures["ttft_s"] == pytest.approx(1.0)
    assert one.figures["tpot_s"] == pytest.approx(0.05)
    assert one.figures["step_s"] == pytest.approx(0.05)
    assert one.figures["prefill_tok_s"] == pytest.approx(1000)
    assert one.sources["tpot_s"] == "two-point: 1 and 17 tokens"
